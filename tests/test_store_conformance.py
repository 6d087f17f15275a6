"""Stores answer alike: what is drawn at random is written to SQLite and to the tables in memory, and compared."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.kernel.messages import CancelRequest, TerminateRequest
from perdure.kernel.outbox import TYPES, types_of
from perdure.kernel.position import Position
from perdure.stores import rows
from perdure.stores.answers import Answer, Broken, Committed, Outcome
from perdure.stores.operations import (
    Annotate,
    AnnounceWorkflow,
    AnswerRequest,
    Batch,
    BeginAttempt,
    ClaimOne,
    ClaimRuns,
    CloseFreeRun,
    CreateNamespace,
    DeleteNamespace,
    DeleteSchedule,
    DeleteSink,
    DeleteWorker,
    EndGap,
    EndRun,
    ExpectDeadline,
    ExpectOwner,
    ExpectRun,
    FailedDelivery,
    Fence,
    FinishKey,
    ForgetChanges,
    ForgetDeadline,
    ForgetKeys,
    ForkRun,
    FreeMismatches,
    FreeOrphans,
    FreeRuns,
    HoldRun,
    HoldTasks,
    InsertRichRun,
    InsertRun,
    InsertSchedule,
    InsertSink,
    Listen,
    MoveLog,
    MoveMessages,
    MoveSchedule,
    MoveSink,
    MoveStreams,
    NoteCancel,
    NoteDeadline,
    NoteDecision,
    NoteDeliveries,
    NoteDuty,
    NoteLosses,
    NoteReply,
    NoteUndo,
    NoteWaiting,
    NoteWorkflows,
    Operation,
    ParkRun,
    PauseRun,
    PostDelayed,
    PostMessage,
    PublishValues,
    RaiseEpoch,
    RecordAttempt,
    RecordBeat,
    RegisterWorker,
    ReleaseKey,
    RenewWorker,
    ReplayDeadLetters,
    ResendEvents,
    ResumeRun,
    ShortenLease,
    StopChildren,
    SupersedeRun,
    TakeDuty,
    TakeKey,
    TakeMessage,
    TellRun,
    WriteSnapshot,
)
from perdure.stores.port import Store
from perdure.stores.records import RunFilter, RunRow, SinkRow, StuckFilter, WorkerRow
from perdure.stores.rules.questions import Text
from perdure.stores.rules.run_rows import quick_rows
from perdure.stores.sqlite.executor import answer
from perdure.stores.sqlite.store import SqliteStore
from tests.simulation.memory import MemoryStore, Tables
from tests.simulation.memory.tables import WaitingEvent
from tests.test_store_contract import an_event

# Few of everything, so that much collides.
RUNS = ("r1", "r2", "r3", "r4", "r5")
WORKERS = ("w-1", "w-2")
NAMESPACES = ("main", "other")
LISTS: list[dict[str, Any]] = [
    *({"workflow_id": workflow_id} for workflow_id in "abcd"),
    {"workflow_id": "a", "workflow": "wf", "status": ("COMPLETED", "RUNNING"), "before": "r4"},
    {"workflow": "fw", "limit": 2},
    {"workflow": "wf", "status": ("SUSPENDED", "FAILED", "TIMED_OUT")},
    {"entity_id": "e", "status": ("PENDING", "RUNNING"), "without": "f"},
    {"entity_id": "e", "parent_id": "r1"},
    {"parent_id": "r2", "workflow_id": "b", "held": ("mismatch",), "status": ("RUNNING",)},
    {"held": ("quarantine", "mismatch"), "workflow": "wf", "entity_id": "e"},
    {"schedule": "s"},
    {"schedule": "t", "status": ("PENDING", "RUNNING"), "limit": 2},
]
LARGE = '"' + "x" * 1100 + '"'

runs = st.sampled_from(RUNS)
# Seldom the other one: most things should be found.
workers = st.sampled_from(["w-1"] * 5 + ["w-2"])
owners = st.sampled_from(["w-1"] * 3 + [None] * 3 + ["w-2"])
namespaces = st.sampled_from(["main"] * 9 + ["other"])
workflow_ids = st.sampled_from(["a", "b", "c", "d"])
workflows = st.sampled_from(["wf", "wf", "fw", "fw", "task:wf"])
queues = st.sampled_from(["q1", "q2"])
priorities = st.sampled_from([0, 0, 5, -1])
times = st.sampled_from([900, 1000, 1500, 3000])
some_time = st.none() | times
bodies = st.sampled_from(["1", LARGE])
message_ids = st.sampled_from(["signal:a", "signal:b", "child:r1", "request:a", "m"])
places = st.sampled_from(["", "x", "y"])
counts = st.integers(0, 3)
epochs = st.sampled_from([1, 1, 1, 2])
reasons = st.sampled_from([None, "over"])
statuses = st.sampled_from(["PENDING", "RUNNING", "SUSPENDED"])
undos = st.sampled_from([None, '[{"name":"f","state":"waiting"}]'])
schedule_ids = st.sampled_from(["s1", "s1", "s2"])
schedule_names = st.sampled_from(["s", "t"])
duty_names = st.sampled_from(["schedules", "sink:x"])
flags = st.sampled_from([0, 1])
CALLS = ('{"call":{"workflow":"wf"}}', f'{{"call":{{"workflow":"fw"}},"x":{LARGE}}}')
calls = st.sampled_from(CALLS)

some_until = st.sampled_from([950, 2000, 5000])
sinces = st.sampled_from(["", "", "1:1:"])

CANCEL, TERMINATE = rows.message_body(CancelRequest("over")), rows.message_body(TerminateRequest("over"))
SIGNAL = '{"name":"go","payload":1}'
CHILD = '{"place":"x","workflow":"wf","child_id":"c","run_id":"c","result":1}'
FAILURE = '{"type":"builtins.ValueError","message":"no"}'


def columns(*more: st.SearchStrategy[Any]) -> tuple[st.SearchStrategy[Any], ...]:
    """What every insertion has."""
    first = (runs, namespaces, workflow_ids, workflows, queues, statuses, owners, some_time, priorities)
    return (*first, st.just("{}"), st.just(7), times, *more)


def a_post(kind: type[PostMessage | TellRun]) -> st.SearchStrategy[PostMessage | TellRun]:
    letters = st.sampled_from(
        [
            ("SignalSent", SIGNAL),
            ("ChildResult", CHILD),
            ("CancelRequest", CANCEL),
            ("DeferredResult", '{"name":"d","value":1}'),
            ("DeferredFailure", '{"name":"d","error":"no"}'),
            ("RequestSent", '{"name":"r","value":1}'),
        ]
    )

    def post(run_id: str, message_id: str, letter: tuple[str, str], at: int) -> PostMessage | TellRun:
        return kind(run_id=run_id, message_id=message_id, kind=letter[0], body=letter[1], at=at)

    return st.builds(post, runs, message_ids, letters, times)


def a_key(name: str, n: int, digest: str, answer: str | None, at: int, stale: int, kept: int) -> TakeKey:
    """A caller has one key; another caller may have the same."""
    return TakeKey(f"{name}-{n}", "main", "start", name, digest, answer, at, at + stale, at + kept)


key_names = st.sampled_from(["k", "l"])
key_holders = st.builds(lambda name, n: f"{name}-{n}", key_names, st.integers(1, 2))
whose = (st.just("main"), st.just("start"), key_names, key_holders)
keys = st.builds(
    a_key,
    *(key_names, st.integers(1, 2), st.sampled_from(["d", "d", "e"]), st.sampled_from([None, None, "1"]), times),
    *(st.sampled_from([100, 9000]), st.sampled_from([300, 9000])),
)
ALL = types_of(TYPES)
wishes = st.sampled_from([ALL, types_of(("run.*",)), types_of(("step.*", "run.held"))])
some_workflows = st.sampled_from([None, None, '["wf"]', "[]"])
backlogs = st.sampled_from([2, 6, 1000])
# By names they come in the same order as by ids: each database has its own, where nobody asks for one.
SINKS = ("k0", "k1", "k2", "k3")
sink_ids = st.sampled_from(["k1", "k1", "k1", *SINKS])
sink_names = st.sampled_from(
    [("k1", "main", "x"), ("k0", "main", "x"), ("k2", "main", "y"), ("k2", "main", "z"), ("k3", "other", "x")]
)
numbers = st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True).map(tuple)
failures = st.lists(
    st.builds(FailedDelivery, st.integers(1, 9), counts, some_time, st.just("no")),
    min_size=1,
    max_size=2,
    unique_by=lambda failed: failed.n,
).map(tuple)
some_runs = st.lists(runs, max_size=3, unique=True).map(tuple)
DUTY = (st.just("main"), st.just("sink:x"))
# Of sinks, and of those who send to them.
of_sinks: st.SearchStrategy[Operation] = st.one_of(
    st.builds(
        lambda name, *columns: InsertSink(*name, *columns),
        *(sink_names, wishes, some_workflows, backlogs, st.just("{}")),
    ),
    st.builds(MoveSink, sink_ids, st.integers(1, 3), wishes, some_workflows, backlogs, st.just('{"a":1}')),
    st.builds(DeleteSink, sink_ids, counts),
    *[
        st.builds(
            NoteDeliveries,
            *(sink_ids, *DUTY, workers, numbers, failures, numbers, some_runs, times),
        )
    ]
    * 3,
    st.builds(EndGap, sink_ids, st.just("outbox.gap"), st.just("{}"), times),
    st.builds(ReplayDeadLetters, sink_ids, st.none() | numbers, st.integers(1, 3)),
    st.builds(ResendEvents, sink_ids, st.sampled_from(["", "", "r2"]), times, some_until, st.integers(1, 4)),
)
listens = st.builds(Listen, st.sampled_from(["changes"] * 3 + ["more"]), some_until, times)
inserts = st.builds(InsertRun, *columns())
rich_inserts = st.builds(
    InsertRichRun,
    *columns(st.none() | runs, st.none() | places, st.sampled_from(["cancel", "terminate", "abandon"])),
    *(st.sampled_from([None, "e"]), st.none(), st.sampled_from([None, "{}"]), st.sampled_from([None, 5])),
    *(some_time, some_time, st.none() | runs, st.sampled_from([None, "s", "t"]), some_time),
)
events = st.builds(an_event, runs, st.integers(2, 5), bodies)
operations: st.SearchStrategy[Operation] = st.one_of(
    inserts,
    rich_inserts,
    events,
    a_post(PostMessage),
    a_post(TellRun),
    st.builds(
        PostDelayed, runs, message_ids, st.just("SignalSent"), st.just(SIGNAL), times, st.sampled_from([None, 2]), times
    ),
    st.builds(SupersedeRun, runs, owners),
    st.builds(MoveMessages, runs, runs),
    st.builds(
        ForkRun,
        *(
            runs,
            st.just("main"),
            runs,
            st.sampled_from(["retry", "fork"]),
            counts,
            reasons,
            st.sampled_from([None, "{}"]),
        ),
        *(
            some_time,
            some_time,
            some_time,
            reasons,
            st.sampled_from([(), ((2, 3, 0),), ((2, 2, 0), (4, 5, 1))]),
            st.just(()),
        ),
    ),
    st.builds(EndRun, runs, st.just("COMPLETED"), bodies, st.integers(10, 12), times, workers, st.just("main"), undos),
    st.builds(
        CloseFreeRun,
        runs,
        namespaces,
        st.sampled_from(["TERMINATED", "TIMED_OUT"]),
        st.just("{}"),
        times,
        st.booleans(),
    ),
    st.builds(
        StopChildren,
        *(runs, message_ids, st.just(CANCEL), st.just(TERMINATE), st.booleans(), reasons, times, st.none() | places),
    ),
    st.builds(NoteCancel, runs, reasons, some_time, times),
    st.builds(Annotate, runs, workers, st.just("{}"), st.sampled_from([None, "s"]), times),
    st.builds(NoteUndo, runs, workers, undos),
    st.builds(TakeMessage, st.integers(1, 6), st.integers(0, 4)),
    st.builds(AnswerRequest, runs, message_ids, st.sampled_from(['{"type":"answered","value":1}', '{"type":"left"}'])),
    st.builds(RecordAttempt, st.just("main"), runs, places, counts, st.just("f"), st.just(FAILURE), times, times),
    st.builds(BeginAttempt, st.just("main"), runs, places, times),
    st.builds(RecordBeat, st.just("main"), runs, places, st.sampled_from([None, "7"]), times),
    st.builds(WriteSnapshot, runs, workers, st.just("main"), counts, times, st.sampled_from(["{}", "[1]"])),
    st.builds(
        PublishValues,
        *(runs, st.just("main"), st.sampled_from(["s", "t"]), runs, st.sampled_from(["", "a"]), counts, times),
        st.sampled_from([("1",), ("1", "2", "3")]),
    ),
    st.builds(MoveStreams, runs, runs),
    st.builds(ParkRun, runs, workers, statuses, some_time, st.sampled_from([None, "[]"]), st.none() | counts, times),
    st.builds(
        HoldRun, runs, workers, st.sampled_from(["mismatch", "paused"]), st.just("{}"), times, st.none() | counts
    ),
    st.builds(
        ExpectRun,
        runs,
        statuses,
        st.sampled_from([None, None, "paused"]),
        *(st.sampled_from([None, None, text]) for text in ("s", "{}")),
        times,
    ),
    st.builds(HoldTasks, runs, st.just('"t"'), times),
    st.builds(PauseRun, runs, st.just("{}"), st.just('"t"'), message_ids, st.just("{}"), times),
    st.builds(ResumeRun, runs, times, st.sampled_from(["", '"t"']), st.sampled_from(["", "m", "n"])),
    st.builds(NoteWaiting, runs, workers, st.just("[]"), times),
    st.builds(
        ClaimRuns,
        *(workers, namespaces, st.sampled_from([("q1",), ("q2", "q1"), ("q1", "q2")])),
        *(st.sampled_from([("wf",), ("wf", "fw")]), times, st.integers(0, 4), st.integers(0, 1)),
    ),
    st.builds(ClaimOne, runs, workers, namespaces, st.sampled_from([("wf",), ("wf", "fw")]), times),
    st.builds(NoteLosses, runs, workers, st.integers(0, 2), st.integers(0, 2)),
    st.builds(ResumeRun, runs, times),
    st.builds(
        FreeMismatches,
        *(namespaces, st.sampled_from([("q1",), ("q2", "q1")]), st.sampled_from([("wf",), ("wf", "fw")]), times),
    ),
    st.builds(
        RegisterWorker,
        *(workers, namespaces, times, st.just(("q1",)), st.just("host"), st.just(1), st.just(1000)),
        *(st.sampled_from([None, 30_000]), st.sampled_from([None, (), ("wf",)]), st.booleans()),
    ),
    st.builds(AnnounceWorkflow, st.just("main"), places, bodies, st.sampled_from(["d-1", "d-2"]), times),
    st.builds(Fence, workers, epochs),
    st.builds(ExpectOwner, runs, workers, st.none() | st.integers(1, 5)),
    st.builds(RenewWorker, workers, epochs, times),
    st.builds(ShortenLease, workers, epochs, times, times),
    st.builds(ExpectDeadline, runs, workers, counts, st.none() | times),
    st.builds(NoteDeadline, runs, namespaces, workers, counts, times, times, some_time, times),
    st.builds(ForgetDeadline, runs),
    st.builds(NoteWorkflows, workers, st.sampled_from([("wf",), ("wf", "fw")])),
    st.builds(RaiseEpoch, workers, epochs, st.sampled_from([None, None, 99_000, 900])),
    st.builds(FreeRuns, workers, times, st.integers(0, 3)),
    st.builds(FreeOrphans, workers, times, st.integers(0, 3)),
    st.builds(DeleteWorker, workers),
    st.builds(CreateNamespace, namespaces, times),
    st.builds(DeleteNamespace, namespaces),
    listens,
    listens,
    st.builds(MoveLog, st.just("changes"), sinces, sinces, sinces, times),
    st.builds(ForgetChanges, st.sampled_from([0, 10**15]), st.just(()), st.just(100)),
    st.builds(
        InsertSchedule,
        *(schedule_ids, namespaces, schedule_names, st.sampled_from(["api", "code"]), some_time, flags, calls),
    ),
    st.builds(MoveSchedule, schedule_ids, st.integers(1, 3), some_time, flags, calls),
    st.builds(
        lambda schedule, slot, n, at, run: NoteDecision(schedule, slot, n, at, ("started", "skipped")[n % 2], 1, run),
        *(schedule_ids, st.integers(0, 2), counts, times, st.none() | runs),
    ),
    st.builds(DeleteSchedule, schedule_ids, st.integers(1, 2)),
    keys,
    keys,
    st.builds(FinishKey, *whose, st.just("2"), times),
    st.builds(NoteReply, *whose, st.just("said")),
    st.builds(ReleaseKey, *whose),
    st.builds(ForgetKeys, times, st.integers(0, 2)),
    st.builds(TakeDuty, namespaces, duty_names, workers | st.just("w-3"), times, some_time),
    st.builds(NoteDuty, namespaces, duty_names, workers, some_time, st.sampled_from([None, "no"])),
    of_sinks,
)


def one_post_at_most(group: list[Operation]) -> list[Operation]:
    """A group has one answer, which cannot tell of two messages."""
    posts = [operation for operation in group if isinstance(operation, PostMessage | PostDelayed | TellRun)]
    return [operation for operation in group if operation not in posts[1:] or operation is posts[0]]


several = st.lists(operations, min_size=2, max_size=4).map(one_post_at_most)
alone = operations.map(lambda operation: [operation])
groups = st.lists(alone | alone | alone | several, min_size=1, max_size=5)
batches = st.builds(Batch, groups, st.sampled_from([None, "w-1"]), epochs)
histories = st.lists(batches, min_size=1, max_size=12)


def lost(worker: str, limit: int, suspects: int, between: list[Operation], bites: list[int]) -> list[Batch]:
    """The life of a worker that takes runs, does something with them and is lost."""
    claim = ClaimRuns(worker, "main", ("q1", "q2"), ("wf", "fw"), 3000, limit, suspects)
    life: list[list[Operation]] = [
        [DeleteWorker(worker)],
        [RegisterWorker(worker, "main", 99_000, ("q1",), "host", 1, 1000)],
        [claim],
        *[[operation] for operation in between],
        [RaiseEpoch(worker, 1), FreeRuns(worker, 1000, 2)],
    ]
    life += [[FreeRuns(worker, 1500, limit)] for limit in bites]
    return [Batch([group], None, 0) for group in life]


# What shows progress, and what is done to suspects.
signs: st.SearchStrategy[Operation] = st.one_of(
    events,
    st.builds(ParkRun, runs, workers, statuses, times, st.none(), st.none(), times),
    st.builds(RecordAttempt, st.just("main"), runs, places, counts, st.just("f"), st.just(FAILURE), times, times),
    st.builds(BeginAttempt, st.just("main"), runs, places, times),
    st.builds(RecordBeat, st.just("main"), runs, places, st.sampled_from([None, "7"]), times),
    st.builds(NoteLosses, runs, workers, st.integers(0, 2), st.integers(0, 2)),
    st.builds(ResumeRun, runs, times),
)
some_signs: st.SearchStrategy[Operation] = st.one_of(st.just([]), st.just([]), st.lists(signs, max_size=2))
lives = st.builds(
    lost, workers, st.integers(0, 3), st.integers(0, 1), some_signs, st.lists(st.integers(1, 3), max_size=2)
)
# Only what happens again and again without a sign between is held against a run.
losses = st.lists(st.builds(lambda life, times: life * times, lives, st.integers(1, 7)), min_size=1, max_size=4).map(
    lambda lives: [batch for life in lives for batch in life]
)

# Sinks that want everything, and a worker who sends to one of them, while much happens and is sent.
AGAIN = (900, 5000, 9)
WATCHED: list[list[Operation]] = [
    [InsertSink("k1", "main", "x", ALL, None, 6, "{}"), TakeDuty("main", "sink:x", "w-1", 1000, None)],
    [InsertSink("k2", "main", "y", ALL, '["wf"]', 1000, "{}")],
    [InsertSchedule("s1", "main", "s", "api", None, 0, CALLS[0])],
    [ResendEvents("k1", "", *AGAIN)],
    [ResendEvents("k2", "", *AGAIN)],
]
notes = st.builds(NoteDeliveries, st.just("k1"), *DUTY, st.just("w-1"), numbers, failures, numbers, some_runs, times)
ends = st.builds(
    EndRun, runs, st.just("COMPLETED"), bodies, st.just(12), times, st.just("w-1"), st.just("main"), st.none()
)
told_of: st.SearchStrategy[Operation] = st.one_of(
    *(inserts, events, events, ends, notes, notes, notes, of_sinks, operations),
    st.builds(ParkRun, runs, st.just("w-1"), st.just("SUSPENDED"), some_time, st.just("[]"), st.none(), times),
    st.builds(HoldRun, runs, st.just("w-1"), st.just("mismatch"), st.just("{}"), times, st.none()),
)
tellings = st.lists(
    st.lists(st.lists(told_of, min_size=1, max_size=2).map(one_post_at_most), min_size=1, max_size=5),
    min_size=2,
    max_size=10,
).map(lambda drawn: [Batch(groups, None, 0) for groups in (WATCHED, *drawn)])

# Something to begin with: two workers, and runs that wait, work, and have parents.
OF_R2 = ("r2", "x", "cancel", None, None, None, None, None, None, None)
BEGIN = Batch(
    [
        [RegisterWorker(worker, "main", 99_000, ("q1",), "host", 1, 1000) for worker in WORKERS],
        [InsertRun("r1", "main", "a", "wf", "q1", "PENDING", None, 1000, 0, "{}", 7, 1000)],
        [InsertRun("r2", "main", "b", "wf", "q1", "RUNNING", "w-1", None, 0, "{}", 7, 1000)],
        [InsertRichRun("r3", "main", "c", "wf", "q2", "RUNNING", "w-1", None, 0, "{}", 7, 1000, *OF_R2)],
        [InsertRichRun("r4", "main", "d", "wf", "q2", "PENDING", None, 900, 5, "{}", 7, 900, *OF_R2)],
        [PostMessage("r2", "signal:a", "SignalSent", SIGNAL, 1000)],
        [PostMessage("r3", "m", "SignalSent", SIGNAL, 1000)],
    ],
    None,
    0,
)


def told(store: Store, batch: Batch) -> Outcome:
    outcomes: list[Outcome] = []
    store.commit(batch, outcomes.append)
    return outcomes[0]


# What is due by then counts as ahead of others.
DUE_BY = 1500


def comparable(outcome: Outcome) -> object:
    """Why a database refuses is told in its own words; that it does must be the same."""
    if not isinstance(outcome, Committed):
        return outcome
    return {index: _without_words(answer) for index, answer in sorted(outcome.answers.items())}


def _without_words(answer: Answer) -> Answer:
    return Broken("") if isinstance(answer, Broken) else answer


async def looked_at(store: Store, *, by_number: bool = True) -> list[object]:
    """What every read says; where a look at new messages begins is by their numbers, or something else."""
    listed = [await store.reads.list_runs(RunFilter(n, limit=3)) for n in NAMESPACES]
    found = [row for n in NAMESPACES for row in await store.reads.list_runs(RunFilter(n))]
    seen: list[object] = [listed, found, await store.reads.workers(), await store.reads.owners()]
    if by_number:
        seen.append(await store.reads.last_message())
    for worker in WORKERS:
        seen += [await store.reads.load_runs(RUNS, worker), await store.reads.owned_runs(worker)]
        seen.append((await store.reads.new_messages(worker, 0))[0])
        if by_number:
            seen.append(await store.reads.new_messages(worker, 2))
    for namespace in NAMESPACES:
        seen.append(await store.reads.next_wake(namespace, ("q1", "q2"), ("wf",)))
        seen.append(await store.reads.next_wake(namespace, ("q2", "q1"), ("wf", "fw"), suspects=True))
        seen.append(await store.reads.overdue(namespace, 1500, 2))
        seen.append(await store.reads.next_close(namespace, 1000))
        # Which of several runs of a workflow is named, each database says by its own index.
        for queue in ("q1", "q2"):
            seen.append(sorted(each.workflow for each in await store.reads.waking_workflows(namespace, queue, 30)))
        seen += [await store.reads.latest_run(namespace, workflow_id) for workflow_id in "abcd"]
        seen += [await store.reads.list_runs(RunFilter(namespace, status=("PENDING",), before="r4", parent_id="r2"))]
        seen += [await store.reads.list_runs(RunFilter(namespace, held=("mismatch", "quarantine"), before="r4"))]
        seen += [await store.reads.list_runs(RunFilter(namespace, status=("PENDING",), held=("quarantine",)))]
        seen += [
            await store.reads.list_runs(RunFilter(namespace, held=("mismatch",), status=("SUSPENDED",), without="w"))
        ]
        for wanted in LISTS:
            seen.append(await store.reads.list_runs(RunFilter(namespace, **wanted)))
        seen.append(await store.reads.held_counts(namespace))
        seen.append(await store.reads.namespaces.census(namespace, 3))
        kinds = await store.reads.inspection.due_kinds(namespace, DUE_BY)
        seen.append(sorted(kinds))
        for until in (DUE_BY, 10**6):
            stuck = StuckFilter(namespace, tuple(kinds), WORKERS[:1], until, until, "r9", 5)
            seen.append(await store.reads.inspection.stuck(stuck))
        seen += await of_schedules(store, namespace)
    for row in found:
        assert isinstance(row, RunRow)
        seen += [
            await store.reads.events(row, 0, 3),
            await store.reads.events(row, 2, 9),
            await store.reads.last_event(row.run_id),
        ]
        seen += [
            await store.reads.attempts(row.run_id),
            await store.reads.unread(row.run_id),
            await store.reads.set_aside(row.run_id),
            await store.reads.channels.snapshot(row.run_id),
            await store.reads.channels.stream_page(row.run_id, "s", 1, 3),
            await store.reads.channels.stream_begin(row.run_id, "s"),
        ]
        places = {attempt.place for attempt in await store.reads.attempts(row.run_id)} | {"nowhere"}
        seen += [await store.reads.inspection.last_attempt(row.run_id, place) for place in sorted(places)]
        if row.owner is None and row.wake_at is not None and row.wake_at <= DUE_BY:
            seen.append(await store.reads.inspection.count_ahead(row, ("wf", "fw"), DUE_BY, 1000))
        seen.append(await store.reads.inspection.row_holders(row.run_id))
    seen += [await store.reads.keys.oldest(), *[await store.reads.keys.kept("main", "start", key) for key in "klm"]]
    remote = store.reads.remote
    seen += [await remote.worker("w-1"), await remote.worker("nobody"), await remote.deadline("r1")]
    seen += [await remote.due(1500, 2), await remote.next_due(), await remote.standings(RUNS)]
    seen += [await remote.children_at(RUNS, ["x", "y"])]
    seen += await of_sinks_seen(store)
    changelog = store.reads.changelog
    seen += [await changelog.listener("changes"), sorted((await changelog.changed(Position(0)))[1])]
    seen += [await changelog.runs(RUNS), (await changelog.changed(await changelog.position()))[1]]
    seen.append(await store.reads.channels.open_histories(RUNS))
    return [*seen, await store.reads.ended_or_held(RUNS), await store.reads.channels.heads(RUNS)]


async def of_schedules(store: Store, namespace: str) -> list[object]:
    reads = store.reads.schedules
    seen: list[object] = [await reads.get(namespace, name) for name in "st"]
    seen += [await reads.page(namespace, "", 5), await reads.page(namespace, "s", 5), await reads.declared(namespace)]
    seen += [await reads.due(namespace, 1000, 5), await reads.next(namespace), await reads.duties(namespace)]
    seen += [await reads.waiting(namespace, "", 5, all=True), await reads.waiting(namespace, "", 5, all=False)]
    seen += [await reads.decisions("s1"), await reads.runs_of_ids(namespace, ["a", "b", "x"])]
    return seen


async def of_sinks_seen(store: Store) -> list[object]:
    reads = store.reads.outbox
    seen: list[object] = [await reads.sinks(namespace) for namespace in NAMESPACES]
    seen += [await reads.sink("main", name) for name in "xyz"]
    for sink_id in SINKS:
        seen += [await reads.next_at(sink_id), await reads.due(sink_id, 1000, 3), await reads.due(sink_id, 5000, 9)]
        seen += [await reads.backlog(sink_id), await reads.dead_letters(sink_id, 2, 2)]
    return [*seen, await reads.values(range(30))]


SINKS_DUMP = f"select {', '.join(SinkRow._fields)} from sinks order by sink_id"
OUTBOX_DUMP = f"select {', '.join(WaitingEvent._fields)} from outbox order by n"
LETTERS_DUMP = (
    "select n, sink_id, run_id, workflow_id, workflow, type, number, at, step, held, attributes, attempts, error,"
    " died_at from dead_letters order by n"
)
KEYS_DUMP = (
    "select namespace, command, key, digest, holder, answer, taken_at, keep_until, reply, stale_at"
    " from idempotency_keys order by 1, 2, 3"
)


def sqlite_dump(store: SqliteStore) -> dict[str, Sequence[object]]:
    db = store.transactions.db
    return {
        "runs": answer(db, quick_rows(Text("select * from runs order by run_id", {}))),
        "latest": db.execute(
            "select namespace, workflow_id, run_id from runs where is_latest order by 1, 2"
        ).fetchall(),
        "events": db.execute(
            "select e.namespace, e.run_id, e.seq, e.kind, e.place, e.at, coalesce(e.body, p.body)"
            " from events e left join payloads p on p.run_id = e.run_id and p.seq = e.seq order by e.run_id, e.seq"
        ).fetchall(),
        "inbox": db.execute("select * from inbox order by number").fetchall(),
        "attempts": db.execute("select * from attempts order by run_id, place, attempt").fetchall(),
        "progress": db.execute("select * from progress order by run_id, place").fetchall(),
        "snapshots": db.execute("select * from snapshots order by run_id").fetchall(),
        "stream_heads": db.execute("select * from stream_heads order by run_id, name, source").fetchall(),
        "streams": db.execute("select * from streams order by run_id, name, n").fetchall(),
        "deaths": db.execute("select run_id, deaths from runs where deaths is not null order by 1").fetchall(),
        "judged": db.execute(
            "select worker_id, judged_at from workers where judged_at is not null order by 1"
        ).fetchall(),
        "namespaces": db.execute("select namespace from namespaces order by 1").fetchall(),
        "schedules": db.execute("select *, 0 from schedules order by schedule_id").fetchall(),
        "schedule_decisions": db.execute("select * from schedule_decisions order by schedule_id, slot").fetchall(),
        "duties": db.execute("select * from duties order by namespace, name").fetchall(),
        "attempt_deadlines": db.execute("select * from attempt_deadlines order by run_id").fetchall(),
        "workers": db.execute(
            f"select {', '.join(WorkerRow.__struct_fields__)} from workers order by worker_id"
        ).fetchall(),
        "idempotency_keys": db.execute(KEYS_DUMP).fetchall(),
        "sinks": db.execute(SINKS_DUMP).fetchall(),
        "outbox": db.execute(OUTBOX_DUMP).fetchall(),
        "dead_letters": db.execute(LETTERS_DUMP).fetchall(),
        "listeners": db.execute("select * from listeners order by name").fetchall(),
        "changes": db.execute("select distinct run_id from changes order by run_id").fetchall(),
    }


def memory_dump(tables: Tables) -> dict[str, Sequence[object]]:
    dump = tables.dump()
    inbox = [
        (m.number, m.namespace, m.run_id, m.message_id, m.kind, m.body, m.at, m.taken_by, m.answer)
        for m in dump["inbox"].values()
    ]
    assert {(row[2], row[3]): row[0] for row in inbox} == dump["message_ids"]
    return {
        "runs": list(dump["runs"].values()),
        "latest": [(*key, run_id) for key, run_id in dump["latest"].items()],
        "events": [tuple(event) for event in dump["events"].values()],
        "inbox": inbox,
        "attempts": [tuple(attempt) for attempt in dump["attempts"].values()],
        "progress": [
            (namespace, run_id, place, known.begun_at, known.details, known.beat_at)
            for (run_id, place), (namespace, known) in dump["progress"].items()
        ],
        "snapshots": [(run_id, where, s.seq, s.at, s.body) for run_id, (where, s) in dump["snapshots"].items()],
        "stream_heads": [
            (run_id, where, head.name, head.source, head.n, head.own, head.attempt)
            for (run_id, *_), (where, head) in dump["stream_heads"].items()
        ],
        "streams": [
            (run_id, where, name, value.n, value.attempt, value.at, value.body)
            for (run_id, name, _), (where, value) in dump["streams"].items()
        ],
        "deaths": list(dump["deaths"].items()),
        "judged": list(dump["judged"].items()),
        "namespaces": [(name,) for name in dump["namespaces"]],
        "schedules": [
            tuple(getattr(row, name) for name in row.__struct_fields__) for row in dump["schedules"].values()
        ],
        "schedule_decisions": [tuple(row) for row in dump["schedule_decisions"].values()],
        "attempt_deadlines": [tuple(row) for row in dump["attempt_deadlines"].values()],
        "duties": [(namespace, *row[:-1]) for (namespace, _), row in dump["duties"].items()],
        "workers": [
            tuple(getattr(worker, name) for name in worker.__struct_fields__) for worker in dump["workers"].values()
        ],
        "idempotency_keys": [
            (*identity, *row, stale_at) for identity, (row, stale_at) in dump["idempotency_keys"].items()
        ],
        "sinks": [tuple(row) for row in dump["sinks"].values()],
        "outbox": [tuple(row) for row in dump["outbox"].values()],
        "dead_letters": [(*row.event[:12], row.event.error, row.died_at) for row in dump["dead_letters"].values()],
        "listeners": [(name, *row) for name, row in dump["listeners"].items()],
        # By which transactions is told by each database in its own numbers.
        "changes": [(run_id,) for run_id in sorted({run_id for _, run_id in dump["changes"]})],
    }


async def compare(history: Sequence[Batch]) -> None:
    sqlite, memory = SqliteStore(None), MemoryStore(Tables(gives_numbers_back=True, has_turns=True))
    await sqlite.open()
    try:
        for batch in [BEGIN, *history]:
            assert comparable(told(memory, batch)) == comparable(told(sqlite, batch))
            assert memory_dump(memory.tables) == sqlite_dump(sqlite)
        assert await looked_at(memory) == await looked_at(sqlite)
        assert (memory.tables.open, memory.tables.runs.held, memory.tables.inbox.held) == ({}, {}, {})
    finally:
        await sqlite.close()


QUICK = settings(
    max_examples=150, derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@QUICK
@given(histories)
def test_the_store_in_memory_answers_as_sqlite_does(history: list[Batch]) -> None:
    """A simulation is worth as much as its database is like a real one."""
    asyncio.run(compare(history))


@settings(QUICK, max_examples=100)
@given(losses)
def test_the_store_in_memory_suspects_and_holds_as_sqlite_does(history: list[Batch]) -> None:
    """Five deaths in a row are too many to come up by chance in the test above."""
    asyncio.run(compare(history))


@settings(QUICK, max_examples=60)
@given(tellings)
def test_the_store_in_memory_tells_sinks_what_sqlite_does(history: list[Batch]) -> None:
    """What sinks are told follows from nearly every operation, as soon as there is one."""
    asyncio.run(compare(history))


@pytest.mark.long
@settings(QUICK, max_examples=3000)
@given(histories | losses | tellings)
def test_the_store_in_memory_answers_as_sqlite_does_for_long(history: list[Batch]) -> None:
    """As above, with more to find."""
    asyncio.run(compare(history))
