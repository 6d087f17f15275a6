"""Findings: what a check of `perdure doctor` says, and how a command is written that helps."""

import shlex
from enum import StrEnum
from typing import Protocol

import msgspec


class Hint(Protocol):
    """How a command is written for the reader, who may have typed a URL or a namespace that belongs to it."""

    def __call__(self, *words: str) -> str: ...


def command(*words: str) -> str:
    """`perdure` with these words, each quoted where a shell wants it."""
    return shlex.join(["perdure", *words])


class State(StrEnum):
    """How a check went."""

    OK = "ok"
    WARNING = "warning"
    TROUBLE = "trouble"


class Finding(msgspec.Struct, frozen=True):
    """What a check found, and what to do if it is not well."""

    check: str
    state: State
    found: str
    remedy: str | None = None


def ok(check: str, found: str) -> Finding:
    return Finding(check, State.OK, found)


def warning(check: str, found: str, remedy: str) -> Finding:
    return Finding(check, State.WARNING, found, remedy)


def trouble(check: str, found: str, remedy: str) -> Finding:
    return Finding(check, State.TROUBLE, found, remedy)
