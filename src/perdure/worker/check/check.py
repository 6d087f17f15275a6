"""Checks, before a deploy, whether the code of this process would take up each open run where it stands.

In:   the engine, and the workflows this process has.
Out:  per workflow how many runs fit, and of those that do not what is wrong.

A run is replayed as by a worker that takes it over, up to the end of its history. Nothing is claimed, written or run:
what the code asks for at the end is dropped with it. Runs are read a page at a time, and one of them is in memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.authoring.workflow import Workflow
from perdure.engine.leasing.claims import owned_from
from perdure.engine.ports import Engine, Tenure
from perdure.errors import RunNotFound, RunUnreadable
from perdure.kernel.events import CLOSINGS, Event
from perdure.kernel.filters import Filter, all_of
from perdure.kernel.filters.syntax import Compare, Field, In, TextValue
from perdure.kernel.status import OPEN
from perdure.stores.records import EVENTS_PAGE, LoadedRun, RunQuery, RunRow
from perdure.views.check import Check, RunMisfit, WorkflowCheck
from perdure.views.finding import meant_by
from perdure.worker.calls.call import Mismatch
from perdure.worker.executor import others_had_their_turn
from perdure.worker.loop.exits import EXITS, is_for_the_process
from perdure.worker.program import Program

RUNS_PAGE = 100
# So many runs that do not fit in the same way are named, and so many ways are told.
MOST_NAMED, MOST_WAYS = 10, 20
# So many events are replayed before others have their turn.
SLICE = 200
# Tokens that code makes on the way go nowhere.
NO_SECRET = b"a token of a replay that nobody sees"


@dataclass
class _Tally:
    """What is known of one workflow so far."""

    counts: dict[str, int] = field(default_factory=dict)
    ways: dict[tuple[object, ...], tuple[Mismatch | None, str, int, list[str]]] = field(default_factory=dict)

    def add(self, what: str, id: str, trouble: Mismatch | str | None = None) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
        if trouble is None:
            return
        misfit = trouble if isinstance(trouble, Mismatch) else None
        at = None if misfit is None or misfit.event is None else (misfit.event.kind, misfit.event.place)
        way = (what, at, tuple(misfit.waiting)) if misfit is not None and at is not None else (what, str(trouble))
        if way not in self.ways and len(self.ways) >= MOST_WAYS:
            return
        first, text, count, ids = self.ways.get(way, (misfit, str(trouble), 0, []))
        self.ways[way] = (first, text, count + 1, [*ids, id][:MOST_NAMED])

    def told(self, workflow: str) -> WorkflowCheck:
        counts = {name: self.counts.get(name, 0) for name in ("fit", "held", "arguments", "no_code", "unreadable")}
        misfits = tuple(_misfit(*way) for way in self.ways.values())
        return WorkflowCheck(workflow, sum(counts.values()), **counts, misfits=misfits)


def _misfit(first: Mismatch | None, text: str, count: int, ids: list[str]) -> RunMisfit:
    event = None if first is None else first.event
    told = None if event is None else f"event {event.seq} is {event.kind} at {event.place or 'the run itself'}"
    return RunMisfit(text, told, () if first is None else tuple(first.waiting), count, tuple(ids))


async def check_runs(
    engine: Engine,
    namespace: str,
    known: Mapping[str, Workflow[..., Any] | None],
    where: str | None = None,
    params: Mapping[str, object] | None = None,
    limit: int | None = None,
    *,
    is_all: bool = False,
) -> Check:
    """Replay the open runs of these workflows, at most so many of each; a workflow without its code has None there.

    With `is_all` the runs of all others are looked at as well, of which this process has no code.
    """
    meant = meant_by(where or "true", params, engine.clock.now())
    is_open = In(Field("status"), tuple(TextValue(status.value) for status in sorted(OPEN)))
    counts = await engine.reader.count_runs(RunQuery(namespace, all_of([meant, is_open])), "workflow")
    found = []
    for name in sorted({*map(str, counts), *known} if is_all else known):
        if is_all and name not in counts:
            continue
        of_it = all_of([meant, is_open, Compare(Field("workflow"), "=", TextValue(name))])
        found.append((await _tallied(engine, namespace, of_it, known.get(name), limit)).told(name))
    return Check(tuple(found))


async def _tallied(
    engine: Engine, namespace: str, where: Filter, workflow: Workflow[..., Any] | None, limit: int | None
) -> _Tally:
    """What becomes of the runs that match, newest first."""
    tally, before, left = _Tally(), None, limit
    while left is None or left > 0:
        size = RUNS_PAGE if left is None else min(RUNS_PAGE, left)
        page = (await engine.reader.find_runs(RunQuery(namespace, where, before, size))).rows
        for row in page:
            await _look_at(engine, namespace, row, workflow, tally)
        if len(page) < size:
            break
        before, left = page[-1].run_id, None if left is None else left - size
    return tally


async def _look_at(
    engine: Engine,
    namespace: str,
    row: RunRow | RunUnreadable,
    workflow: Workflow[..., Any] | None,
    tally: _Tally,
) -> None:
    """Replay one run, and note what became of it."""
    if isinstance(row, RunUnreadable):
        tally.add("unreadable", row.id, row.trouble)
        return
    if workflow is None:
        tally.add("no_code", row.workflow_id, f"this process has no workflow {row.workflow!r}")
        return
    try:
        history = await history_of_open(engine, namespace, row)
        what, trouble = await replayed(workflow, row, history)
    except RunUnreadable as error:
        tally.add("unreadable", row.workflow_id, error.trouble)
    except RunNotFound:
        # It was deleted meanwhile.
        return
    else:
        tally.add(what, row.workflow_id, trouble)


async def history_of_open(engine: Engine, namespace: str, row: RunRow) -> list[Event]:
    """The events after the start of a run, without its end."""
    found: list[Event] = []
    while True:
        after = found[-1].seq if found else 1
        page = await engine.reader.events(namespace, row.run_id, after, EVENTS_PAGE)
        found += page
        if len(page) < EVENTS_PAGE:
            break
    return [event for event in found if type(event.fact) not in CLOSINGS]


def program_of(workflow: Workflow[..., Any], row: RunRow, history: Sequence[Event]) -> Program:
    """The code of a run, in memory, before its first line."""
    owned = owned_from(LoadedRun(row, history, [], []))
    owned.tenure = Tenure("", NO_SECRET)
    program = Program(workflow, owned)
    if row.begun_at is not None:
        program.replay(list(history))
    return program


async def replayed(
    workflow: Workflow[..., Any], row: RunRow, history: Sequence[Event]
) -> tuple[str, Mismatch | str | None]:
    """Whether a history fits the code, its input does not, or it would be held, and why."""
    program = program_of(workflow, row, history)
    try:
        program.begin()
        for number, event in enumerate(history, start=1):
            program.redeliver(event)
            if number % SLICE == 0:
                program.forget_answered()
                await others_had_their_turn()
    except Mismatch as mismatch:
        # One without an event is about the input, which is looked at before all events.
        return "held" if mismatch.event is not None else "arguments", mismatch
    except (Exception, *EXITS) as error:
        if is_for_the_process(error):
            raise
        # What else a replay may end with stops a run as well.
        return "held", f"{type(error).__name__}: {error}"
    finally:
        program.evict()
    return "fit", None
