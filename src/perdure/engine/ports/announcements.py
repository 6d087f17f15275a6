"""Workflows that workers have announced: what others need to know to start them without their code."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec


class AnnouncedParameter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A parameter: the JSON schema of what is written, if that is known, and its default as JSON, if it has one."""

    name: str
    schema: dict[str, Any] | None = None
    default: str | None = None
    # `args` and `kwargs` take any number.
    takes: str | None = None


class AnnouncedChannel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A signal, a deferred or a request beside the code of a workflow, and the JSON schema of what it takes."""

    kind: str
    name: str
    schema: dict[str, Any] | None = None


class AnnouncedWorkflow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A workflow, as a worker tells of it."""

    name: str
    parameters: tuple[AnnouncedParameter, ...] = ()
    about: str = ""
    channels: tuple[AnnouncedChannel, ...] = ()


class Announcements(Protocol):
    """The workflows that a worker of a namespace ever had."""

    async def announce(self, namespace: str, workflows: Sequence[AnnouncedWorkflow]) -> None:
        """Let others know of these; nothing is written of those that are known as they are."""

    async def get(self, namespace: str, name: str) -> AnnouncedWorkflow | None:
        """The workflow of this name, as it was announced last."""

    async def names(self, namespace: str) -> tuple[str, ...]:
        """All that were announced."""
