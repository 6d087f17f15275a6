"""Transport: how a request reaches a server, and its answer comes back.

In:   method, path, query, headers, body.
Out:  status, headers and body; frames of a stream. ConnectionError when there is no answer.
Tests put one here that calls the application without a socket.
"""

from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple, Protocol


class HttpAnswer(NamedTuple):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """The way to a server."""

    async def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        """Ask, and wait for the answer; ConnectionError when it is lost, or nobody is there."""

    def lines(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        """The lines of a stream, as they come; an answer that is no stream raises its problem."""

    async def close(self) -> None:
        """Let go of all connections."""
