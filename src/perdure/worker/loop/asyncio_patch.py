"""Replacements: in workflows, and only there, some of asyncio's functions are ours.

In:   the type of a run's event loop.
Out:  asyncio's own function objects, which choose by the loop they are called in.

A module's attribute would not do: `from asyncio import gather` may have been said before
we come. So the function objects stay and get new code, which calls ours in a workflow
and the library's old code everywhere else. Knows nothing of what the functions do.
"""

import asyncio
import logging
from asyncio.events import _get_running_loop
from collections.abc import Callable
from types import FunctionType
from typing import Any

from perdure.worker.loop import asyncio_functions

log = logging.getLogger("perdure.worker")

_loop_type: object = None
# By name: the library's old code, and ours.
_choices: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}


def _perdure_choice(name: str, loop: asyncio.AbstractEventLoop | None = None) -> Any:
    """The function of this name for the loop, or for the one that runs."""
    return _choices[name][type(loop or _get_running_loop()) is _loop_type]


# The new code. Its names and parameters are the library's; it runs with the library's module
# as its globals, and so finds there no more than `_perdure_choice`.


def gather(*coros_or_futures: Any, return_exceptions: bool = False) -> Any:
    return _perdure_choice("gather")(*coros_or_futures, return_exceptions=return_exceptions)


async def wait_for(fut: Any, timeout: float | None) -> Any:
    return await _perdure_choice("wait_for")(fut, timeout)


def as_completed(fs: Any, *, timeout: float | None = None) -> Any:
    return _perdure_choice("as_completed")(fs, timeout=timeout)


def all_tasks(loop: Any = None) -> Any:
    return _perdure_choice("all_tasks", loop)(loop)


async def _group_exit(self: Any, et: Any, exc: Any, tb: Any) -> Any:
    return await _perdure_choice("TaskGroup.__aexit__")(self, et, exc, tb)


async def _timeout_enter(self: Any) -> Any:
    return await _perdure_choice("Timeout.__aenter__")(self)


async def _timeout_exit(self: Any, exc_type: Any, exc_val: Any, exc_tb: Any) -> Any:
    return await _perdure_choice("Timeout.__aexit__")(self, exc_type, exc_val, exc_tb)


async def _condition_wait(self: Any) -> Any:
    return await _perdure_choice("Condition.wait")(self)


async def _semaphore_acquire(self: Any) -> Any:
    return await _perdure_choice("Semaphore.acquire")(self)


def install(loop_type: object) -> None:
    """Put ours in the place of asyncio's, for loops of this type; once, and for good."""
    global _loop_type  # noqa: PLW0603 - the process has one asyncio
    if _loop_type is not None:
        return
    _loop_type = loop_type
    _replace(asyncio.gather, gather, asyncio_functions.gather)
    _replace(asyncio.wait_for, wait_for, asyncio_functions.wait_for)
    _replace(asyncio.as_completed, as_completed, asyncio_functions.as_completed)
    _replace(asyncio.all_tasks, all_tasks, asyncio_functions.all_tasks)
    _replace(asyncio.TaskGroup.__aexit__, _group_exit, asyncio_functions.leave_group)
    _replace(asyncio.Timeout.__aenter__, _timeout_enter, asyncio_functions.enter_timeout)
    _replace(asyncio.Timeout.__aexit__, _timeout_exit, asyncio_functions.leave_timeout)
    _replace(asyncio.Condition.wait, _condition_wait, asyncio_functions.wait_for_notice)
    _replace(asyncio.Semaphore.acquire, _semaphore_acquire, asyncio_functions.acquire_permit)


def _replace(library: Any, chooser: Any, ours: Callable[..., Any]) -> None:
    if not isinstance(library, FunctionType) or _parameters(library) != _parameters(chooser):
        # A Python we do not know: better its own function than a wrong one.
        log.warning("asyncio.%s of this Python is not known; workflows use it as it is", library.__qualname__)
        return
    _choices[library.__qualname__] = (_copy(library), ours)
    library.__globals__["_perdure_choice"] = _perdure_choice
    library.__code__ = chooser.__code__.replace(co_name=library.__code__.co_name, co_qualname=library.__qualname__)


def _parameters(function: Any) -> tuple[object, ...]:
    code = function.__code__
    named = code.co_argcount + code.co_kwonlyargcount
    return code.co_argcount, code.co_kwonlyargcount, code.co_varnames[:named], code.co_freevars


def _copy(function: FunctionType) -> FunctionType:
    copied = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__qualname__ = function.__qualname__
    copied.__module__ = function.__module__
    return copied
