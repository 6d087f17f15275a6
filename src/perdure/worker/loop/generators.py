"""Async generators of workflows: closed inside their own runs, where a replay closes them too, or not at all.

In:   generators that begin, and those that nobody holds any more.
Out:  tasks of their run that close them.

One that only its `async for` holds is closed at once when the loop is left: whatever else
happens, it is let go of right there. One that a variable holds may be held by a traceback
as well, for how long depends on the garbage collector and on the version of Python; so
letting go of it closes nothing. What a failed task left open is closed when it ends.
"""

import asyncio
import logging
import sys
import threading
import weakref
from asyncio.events import _get_running_loop
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager
from types import CodeType
from typing import Any, Protocol, TypeAlias

from perdure.worker.loop.eviction import bury_unless_unwound

log = logging.getLogger("perdure.worker")

AnyGenerator: TypeAlias = AsyncGenerator[Any, Any]

# How many references a generator has, when its first step begins, that only its `async for` holds: that one, and
# two by being asked.
TEMPORARY = 3
# So many are remembered before those that are gone are forgotten.
FEW = 8
CLOSE_IT = "`async with contextlib.aclosing(stream):`, or loop over it where it is made"


class GeneratorHome(Protocol):
    """The loop of a run, as its generators know it."""

    is_dead: bool

    @property
    def generators(self) -> "Generators": ...

    def create_task(self, coro: Any) -> Any: ...

    def as_running_loop(self) -> AbstractContextManager[None]: ...


class Begun:
    """A generator, the hash of the task that began it, and whether only its `async for` holds it."""

    __slots__ = ("_generator", "home", "is_temporary", "lost", "number", "task")

    def __init__(self, home: GeneratorHome, generator: AnyGenerator, *, is_temporary: bool) -> None:
        self.home = weakref.ref(home)
        self.number = id(generator)
        self.task = hash(asyncio.current_task())
        self.is_temporary = is_temporary
        # Itself, once nobody else holds it.
        self.lost: AnyGenerator | None = None
        self._generator = weakref.ref(generator)

    def generator(self) -> AnyGenerator | None:
        return self._generator() if self.lost is None else self.lost

    def disown(self) -> None:
        """Nobody will ask any more whose generator it was; its number may be that of another one by now."""
        if _begun.get(self.number) is self:
            del _begun[self.number]


class Generators:
    """The generators begun in one run, in that order, whatever becomes of them."""

    def __init__(self, home: GeneratorHome) -> None:
        self._home = weakref.ref(home)
        self._all: list[Begun] = []
        self._most = FEW

    def add(self, begun: Begun) -> None:
        """Remember a generator."""
        self._all.append(begun)
        if len(self._all) > self._most:
            for each in self._all:
                if each.generator() is None:
                    each.disown()
            self._all = [each for each in self._all if each.generator() is not None]
            self._most = FEW + 2 * len(self._all)

    def close_those_of(self, failed: "asyncio.Future[Any]") -> None:
        """Close what the code of a failed task left open, newest first."""
        home = self._home()
        for begun in reversed(self._all):
            generator = begun.generator()
            if home is not None and begun.task == hash(failed) and generator is not None and _is_waiting(generator):
                _close(home, generator)

    def unwind(self) -> None:
        """Bring all of them to their end; the run is being evicted."""
        for begun in self._all:
            begun.disown()
            generator = begun.generator()
            if generator is not None:
                bury_unless_unwound(generator, generator.aclose())


def _is_waiting(generator: Any) -> bool:
    """Whether a generator has not ended, and is in nobody's hands at the moment."""
    return generator.ag_frame is not None and not generator.ag_running


def _close(home: GeneratorHome, generator: Any) -> None:
    closing: Any = _closed(generator)
    closing.__qualname__ = f"{generator.__qualname__}.aclose"
    home.create_task(closing)


async def _closed(generator: AnyGenerator) -> None:
    await generator.aclose()


# The hooks of the thread

# By the id of the generator: a weak reference to it would be gone when its finalizer asks.
_begun: dict[int, Begun] = {}
# Generators that were left open, by their code; each is told of once.
_told_of: set[CodeType] = set()


class _Watching(threading.local):
    """How many workers of this thread watch its generators, and the hooks that were there before."""

    count = 0
    before = sys.get_asyncgen_hooks()


_watching = _Watching()


def watch_generators() -> Callable[[], None]:
    """Close async generators of workflows inside their own runs; answers how to undo it.

    A generator remembers its finalizer when it is begun. Those begun outside
    workflows get the one that was there before, which is the outer loop's.
    """
    if _watching.count == 0:
        _watching.before = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=_generator_begins, finalizer=_generator_ends)
    _watching.count += 1
    is_watching = True

    def unwatch() -> None:
        # A worker that is stopped and then given up undoes it twice, and must not do so for another one.
        nonlocal is_watching
        if is_watching:
            is_watching = False
            _unwatch_generators()

    return unwatch


def _unwatch_generators() -> None:
    _watching.count -= 1
    if _watching.count == 0:
        sys.set_asyncgen_hooks(*_watching.before)


def _generator_begins(generator: AnyGenerator) -> None:
    is_temporary = sys.getrefcount(generator) <= TEMPORARY
    loop: Any = _get_running_loop()
    if hasattr(loop, "generators"):
        _begun[id(generator)] = begun = Begun(loop, generator, is_temporary=is_temporary)
        loop.generators.add(begun)
        return
    # An id may have been that of a workflow's generator before.
    _begun.pop(id(generator), None)
    if _watching.before.firstiter is not None:
        _watching.before.firstiter(generator)


def _generator_ends(generator: AnyGenerator) -> None:
    """Nobody holds it any more."""
    begun = _begun.pop(id(generator), None)
    if begun is None:
        if _watching.before.finalizer is not None:
            _watching.before.finalizer(generator)
        return
    home = begun.home()
    running: object = _get_running_loop()
    if home is None:
        return
    if home.is_dead:
        with home.as_running_loop():
            bury_unless_unwound(generator, generator.aclose())
    elif begun.is_temporary and running is home:
        _close(home, generator)
    else:
        begun.lost = generator
        _tell_of(generator)


def _tell_of(generator: Any) -> None:
    if generator.ag_code not in _told_of:
        _told_of.add(generator.ag_code)
        log.warning("the async generator %s was left open; close it: %s", generator.__qualname__, CLOSE_IT)
