"""Snapshots: what workflows show of themselves, read from their functions now and then and written down.

In:   runs that have moved, wait, are let go of or end, and whose code exposes something.
Out:  the values of their functions as JSON, when that is another text than the one written last.

The functions are called while a run is live, at most about once a second as long as it moves, and never by a replay.
What they show is written after the event they show it of.
"""

import inspect
import logging
from collections.abc import Callable

import msgspec

from perdure.authoring.activity_context import running
from perdure.codec.wire import encoded
from perdure.engine.ports import Engine
from perdure.errors import BadValue, NotInWorkflow
from perdure.kernel.snapshots import LARGE, LARGEST, LONGEST_ERROR, ROOM_FOR_ERRORS, ShownValues
from perdure.worker.failures.failures import text_of, writable
from perdure.worker.live_run import LastShown, LiveRun
from perdure.worker.loop.exits import is_for_the_process
from perdure.worker.timers import Alarms

log = logging.getLogger("perdure.worker")

# So long after a run was last read, its functions are called again.
AGAIN_MS = 800


class SnapshotDue:
    """What stands for the time to look at a run again."""

    is_waiting = True


DUE = SnapshotDue()


class Snapshots:
    """Reads what the runs of a worker expose."""

    def __init__(self, engine: Engine) -> None:
        self._outputs = engine.outputs
        self._clock = engine.clock
        self._alarms = Alarms(engine.clock, self._ring)
        self.clear, self.tidy = self._alarms.clear, self._alarms.compact

    def moved(self, live: LiveRun) -> None:
        """The code of a run that exposes something has run: look now, or as soon as it may be looked again."""
        state = live.shown
        if state is None:
            state = live.shown = LastShown()
        now = self._clock.now()
        if now >= state.again_at or now < state.again_at - AGAIN_MS:
            self.take(live)
        elif not state.is_due:
            state.is_due = True
            self._alarms.add(state.again_at, live, DUE)

    def _ring(self, live: LiveRun, _: object) -> None:
        assert live.shown is not None
        live.shown.is_due = False
        if not live.is_leaving and not live.program.loop.is_dead:
            self.take(live)

    def take(self, live: LiveRun) -> None:
        """Write down what a run shows now, if that is something else than before."""
        runtime = live.program.runtime
        if not runtime.exposed or runtime.is_replaying:
            return
        state = live.shown = live.shown or LastShown()
        state.again_at = self._clock.now() + AGAIN_MS
        text = _text_of(runtime.exposed)
        if text != state.text:
            state.text = text
            self._outputs.show(live.owned, runtime.seq, text)
            size = len(text.encode())
            if size > LARGE and not state.is_told:
                state.is_told = True
                _tell_large(live, size)


def _text_of(exposed: dict[str, Callable[[], object]]) -> str:
    """The values of functions by name, and why there is none where there is none."""
    shown = ShownValues({}, {})
    size = 0
    # What was set for an activity that began before this must not be found in here.
    running.set(None)
    for name, function in exposed.items():
        size += len(name.encode())
        try:
            data = _shown(name, function, LARGEST - size)
        except BaseException as error:
            if is_for_the_process(error):
                raise
            told = _told(error)
            size += len(told.encode())
            if size <= LARGEST + ROOM_FOR_ERRORS:
                shown.errors[name] = told
        else:
            size += len(data)
            shown.values[name] = msgspec.Raw(data)
    return msgspec.json.encode(shown).decode()


def _told(error: BaseException) -> str:
    """Why a function shows nothing; whatever its error is, that can be written."""
    text = _not_exposed(error.what) if type(error) is NotInWorkflow else text_of(error)
    return writable(f"{type(error).__name__}: {text}", LONGEST_ERROR)


def _not_exposed(what: str) -> str:
    return f"an exposed function may not call {what}; keep what it gives in a variable of the workflow, and show that"


def _shown(name: str, function: Callable[[], object], room: int) -> bytes:
    """What a function gives, as JSON; BadValue when it takes more bytes than there is room for."""
    where = f"what {name!r} shows"
    data = encoded(_called(function), where)
    if len(data) > room:
        limit = f"all that a run shows may take {LARGEST:,}"
        raise BadValue(where, f"it takes {len(data):,} bytes, and {limit}; show less of it")
    return data


def _called(function: Callable[[], object]) -> object:
    value = function()
    if inspect.iscoroutine(value):
        # Nobody will await it, and nobody needs to be told of that twice.
        value.close()
        raise TypeError("the function gives a coroutine; expose a plain function")
    return value


def _tell_large(live: LiveRun, size: int) -> None:
    log.warning(
        "run %r shows %s bytes of itself, which are written again whenever they change; expose less",
        live.owned.workflow_id,
        f"{size:,}",
        extra={"event": "snapshot_large", "run_id": live.run_id, "bytes": size},
    )
