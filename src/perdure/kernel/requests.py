"""Answers to requests: what a workflow says to the caller that asked it, kept beside the request."""

from typing import TypeAlias

import msgspec


class Answered(msgspec.Struct, frozen=True, gc=False, tag="answered"):
    """The workflow answered."""

    value: msgspec.Raw


class Refused(msgspec.Struct, frozen=True, gc=False, tag="refused"):
    """The workflow refused the request, and said why."""

    reason: str


class LeftUnanswered(msgspec.Struct, frozen=True, gc=False, tag="left"):
    """The workflow took the request and ended, or continued as another run, without an answer."""


RequestAnswer: TypeAlias = Answered | Refused | LeftUnanswered
