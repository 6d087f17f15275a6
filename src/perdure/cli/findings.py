"""Findings: what a check of `perdure doctor` says."""

from enum import StrEnum

import msgspec


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
