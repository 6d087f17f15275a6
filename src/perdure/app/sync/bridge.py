"""The bridge for code that does not await: what the generated classes in `sync.py` are made of.

In:   coroutines and async iterators of a Perdure and its handles.
Out:  values and plain iterators.
"""

import asyncio
import copy
import threading
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterator
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from perdure.app.keys import DAY, TEN_MINUTES
from perdure.app.open_apps import Home, refuse_in_workflows
from perdure.app.run import Run
from perdure.app.shutdown import shutdown
from perdure.app.sync.thread import AsyncApp, Left, LoopThread, look_at
from perdure.authoring.durations import Duration
from perdure.errors import BadOption, NotOpen

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

# How many items of an iterator are fetched in one go, when they are there.
MOST_AT_ONCE = 500


class Bridge:
    """Opens and closes a Perdure for code that does not await, and waits for what it does."""

    def __init__(self, app: AsyncApp) -> None:
        self._app = app
        self._thread: LoopThread | None = None
        # Held as long as it is open.
        self._in_use = threading.Lock()

    @property
    def home(self) -> Home:
        return self._app._home

    @property
    def is_usable(self) -> bool:
        return self._thread is not None and not self._thread.is_inherited

    @property
    def _opened(self) -> LoopThread:
        if self._thread is None:
            raise NotOpen(self._app.url)
        return self._thread

    def open(self) -> None:
        refuse_in_workflows()
        if not self._in_use.acquire(blocking=False):
            raise BadOption("this Perdure is open already; open it once and share it, any thread may use it")
        if self._app._is_worker:
            # The thread of the loop cannot, and it may have a run before it is known here to be open.
            shutdown.catch()
        try:
            thread = LoopThread(self._app)
            thread.open()
        except BaseException:
            self._in_use.release()
            shutdown.release()
            raise
        self._thread = thread
        _open.append(self)

    def close(self, how: Left) -> None:
        refuse_in_workflows()
        thread = self._opened
        if thread.is_inherited:
            # A forked child leaves the block as well; what its parent has opened is not its own to close.
            return
        thread.refuse_waiting_for_ever()
        self._thread = None
        _open.remove(self)
        try:
            thread.close(how)
        finally:
            self._in_use.release()
            shutdown.release()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of a coroutine of the Perdure or one of its handles."""
        thread = self._thread
        if thread is None:
            work.close()
            raise NotOpen(self._app.url)
        return thread.wait(work)

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        """What comes of an async iterator of the Perdure or one of its handles."""
        return Items(self._opened, source)


_open: list[Bridge] = []


def bridge_to(home: Home) -> Bridge | None:
    """A bridge that is open to a database in this process, if there is one."""
    for bridge in tuple(_open):
        if (bridge.home.url, bridge.home.namespace) == (home.url, home.namespace) and bridge.is_usable:
            return bridge
    return None


class NoMore(Enum):
    """Nothing more comes."""

    NO_MORE = "no more"


class Items(Iterator[T]):
    """The items of an async iterator: those that are there are fetched together, the next one is waited for."""

    def __init__(self, thread: LoopThread, source: AsyncIterator[T]) -> None:
        self._thread = thread
        self._source = source
        self._ready: deque[T] = deque()
        self._next: asyncio.Task[T | NoMore] | None = None
        self._is_over = False

    def __next__(self) -> T:
        if not self._ready and not self._is_over:
            self._thread.wait(self._fetch())
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    async def _fetch(self) -> None:
        """Until there is an item, and all that come without waiting; or until the end."""
        while len(self._ready) < MOST_AT_ONCE and not self._is_over:
            if self._next is None:
                self._next = asyncio.get_running_loop().create_task(_next(self._source))
                self._next.add_done_callback(look_at)
            if not self._ready:
                # Not awaited itself: a caller who is interrupted here shall find it again.
                await asyncio.wait({self._next})
            else:
                await asyncio.sleep(0)
                if not self._next.done() or self._next.exception() is not None:
                    return
            found, self._next = self._next.result(), None
            if found is NoMore.NO_MORE:
                self._is_over = True
            else:
                self._ready.append(found)

    def __del__(self) -> None:
        # Nothing may be waited for in a finalizer, least of all when the interpreter ends.
        if not self._is_over and not self._thread.is_inherited:
            self._thread.begin(_close(self._source, self._next))


async def _next(source: AsyncIterator[T]) -> T | NoMore:
    return await anext(source, NoMore.NO_MORE)


async def _close(source: AsyncIterator[Any], pending: "asyncio.Task[Any] | None") -> None:
    if pending is not None:
        pending.cancel()
        await asyncio.wait({pending})
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()


class SyncApp:
    """What the sync twin of Perdure is made of."""

    def __init__(self, inner: AsyncApp) -> None:
        self._app = inner
        # Of any type: the twin's methods are made of those of Perdure, which imports this.
        self._inner: Any = inner
        self._bridge = Bridge(inner)

    def with_key(self, key: str, *, keep: Duration = DAY, stale_after: Duration = TEN_MINUTES) -> Self:
        """The same Perdure, whose commands are done once under this key: asked again they are answered as at first.

        `with_key("refund-17").start(refund, 17)`. Other arguments under a key are a KeyConflict; a key is one of a
        command and a namespace, kept for a day. KeyInProgress while a command of several transactions is under way;
        `stale_after` says when a caller of one that has died is followed by another.
        """
        twin = copy.copy(self)
        twin._inner = self._inner.with_key(key, keep=keep, stale_after=stale_after)
        return twin

    def open(self) -> Self:
        """Open it where there is no place for a `with`; it may be left open until the program ends."""
        self._bridge.open()
        return self

    def close(self) -> None:
        """Let activities end, hand back what is not done, and let go of everything."""
        self._bridge.close((None, None, None))

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bridge.close((kind, error, trace))

    if not TYPE_CHECKING:
        # There so that an `async with` is answered with what to write instead; type checkers refuse it by themselves.

        async def __aenter__(self) -> Self:
            raise BadOption(
                "this is a Perdure for code that does not await, opened with `with Perdure(url).sync() as app:`; "
                "code that awaits opens it with `async with Perdure(url) as app:`"
            )

        async def __aexit__(self, *left: object) -> None:
            """Never called, for nothing was entered."""


class SyncNoun(Generic[T]):
    """What the sync twins of the nouns of Perdure are made of, such as `app.namespaces`."""

    def __init__(self, bridge: Bridge, inner: T) -> None:
        self._bridge = bridge
        self._inner = inner


class SyncHandle(Generic[R_co]):
    """What the sync twin of Run is made of."""

    def __init__(self, bridge: Bridge | None, inner: Run[R_co]) -> None:
        self._made_by = bridge
        self._inner = inner

    @property
    def _bridge(self) -> Bridge:
        """The bridge this handle was made by, or else one that is open to the same database."""
        bridge, run = self._made_by, self._inner
        if bridge is not None and bridge.is_usable:
            return bridge
        found = bridge_to(run._home)
        if found is None:
            if bridge is None:
                raise NotOpen(run._home.url)
            return bridge  # It cannot be used, and says itself why.
        self._made_by = found
        self._inner = Run(found.home, run.id, run.run_id, run.workflow, run._result)
        return found

    def __reduce__(self) -> tuple[object, tuple[type, Run[R_co]]]:
        return _restored, (type(self), self._inner)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SyncHandle) and other._inner == self._inner

    def __hash__(self) -> int:
        return hash(self._inner)

    def __repr__(self) -> str:
        return repr(self._inner)


def _restored(kind: type[SyncHandle[Any]], inner: Run[Any]) -> SyncHandle[Any]:
    """A handle that was pickled."""
    return kind(None, inner)
