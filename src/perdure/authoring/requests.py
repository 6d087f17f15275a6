"""Requests: what a running workflow is asked from outside, and answers."""

import asyncio
import typing
from collections.abc import AsyncIterator
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

import msgspec

from perdure.authoring.channels import Channel
from perdure.authoring.durations import Duration, seconds
from perdure.authoring.runtime import Runtime, answered, current, required
from perdure.codec import ValueType
from perdure.errors import AlreadyResolved, BadOption, NotInWorkflow
from perdure.kernel.requests import Answered, Refused, RequestAnswer

T = TypeVar("T")
A = TypeVar("A")

LONGEST_REFUSAL = 1000


class Asked(Generic[T, A]):
    """A request that the workflow took: `value` is what was asked, `id` what the caller named it, if it did.

    It is answered or refused once, now or later, from any branch of the workflow.
    """

    def __init__(self, request: "Request[T, A]", message_id: str, value: T, runtime: Runtime) -> None:
        self.value = value
        self._request = request
        self._message_id = message_id
        self._runtime = runtime
        self._is_answered = False

    @property
    def id(self) -> str:
        """What the caller named the request, or a name that was made for it."""
        return self._message_id.removeprefix("request:")

    def answer(self, value: A) -> None:
        """Tell the caller this; it hears it when it is on disk."""
        data, _ = self._request.answers.record(value, f"the answer to the request {self._request.name!r}")
        self._say(Answered(msgspec.Raw(data)))

    def refuse(self, reason: str) -> None:
        """Raise RequestRefused with this text where the caller waits."""
        self._say(Refused(_checked_refusal(reason)))

    def _say(self, answer: RequestAnswer) -> None:
        if current() is not self._runtime:
            raise NotInWorkflow("answering a request", "answer it in the workflow that took it")
        if self._is_answered:
            raise AlreadyResolved(self._runtime.info().id, f"the request {self._request.name!r}")
        self._runtime.answer(self._message_id, answer)
        self._is_answered = True

    def __repr__(self) -> str:
        return f"<asked {self._request.name}: {self.value!r}>"


class Request(Channel[T], Generic[T, A]):
    """A named kind of question with the types of what is asked and of what is answered: `Request("add", Item, int)`.

    Each is received once, in the order they were asked; those that the workflow does not wait for yet are kept.
    """

    what = "request"

    def __init__(self, name: str, type: type[T] | None = None, answer: type[A] | None = None) -> None:
        super().__init__(name, type)
        self._given_answer = answer
        if answer is not None:
            self.answers.refuse_clashes(f"the answer to the request {name!r}")
            self.answers.refuse_unreadable(f"the answer to the request {name!r}")

    @cached_property
    def answers(self) -> ValueType:
        """How answers are written and restored."""
        if self._given_answer is not None:
            return ValueType(self._given_answer)
        generic = typing.get_args(getattr(self, "__orig_class__", None))
        return ValueType(generic[1] if generic else Any)

    async def receive(self, timeout: Duration | None = None) -> Asked[T, A]:
        """The next request; TimeoutError when none came in time."""
        runtime = required(f"receiving the request {self.name!r}", "ask a workflow from outside with `run.ask(...)`")
        if timeout is None:
            return cast("Asked[T, A]", await answered(runtime.calls["request"](runtime, self)))
        # A request that is there already comes before any timer; so even 0 looks into the inbox.
        try:
            async with asyncio.timeout(max(seconds(timeout, "timeout"), 0.001)):
                return cast("Asked[T, A]", await answered(runtime.calls["request"](runtime, self)))
        except TimeoutError:
            raise TimeoutError(f"no request {self.name!r} came within {timeout}") from None

    async def __aiter__(self) -> AsyncIterator[Asked[T, A]]:
        """Every request in its turn, for ever: `async for asked in add:`."""
        while True:
            yield await self.receive()

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.name, self.payload.annotation, self.answers.annotation)


def _checked_refusal(reason: object) -> str:
    if not isinstance(reason, str) or not reason.strip() or "\0" in reason or len(reason) > LONGEST_REFUSAL:
        raise BadOption(f"a refusal says why, in a text of at most {LONGEST_REFUSAL:,} characters, not {reason!r:.80}")
    return reason
