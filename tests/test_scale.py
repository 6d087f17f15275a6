"""A run that is parked costs a row: no memory, no work for others, however many of them there are."""

import asyncio
import gc
import json
import random
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from bench.curves import Line, Panel, picture
from bench.flatness import growth
from bench.timers import PARKED_RUN, fill, parked_run
from bench.workflows import one_sleep
from perdure import Signal, activity, workflow
from perdure.errors import RunUnreadable
from perdure.ids import RandomIds
from perdure.kernel.status import Status
from perdure.stores.answers import Applied
from perdure.stores.listing import SQLITE, counting, leads_of, listing
from perdure.stores.operations import ClaimRuns
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.queries import migrations, queries
from perdure.stores.records import RunFilter, RunRow
from perdure.stores.rules.claims import MOST_DUE
from perdure.stores.rules.questions import Text
from perdure.stores.rules.reads import _found
from perdure.stores.sqlite.store import SqliteStore
from perdure.stores.sqlite.writes import apply_together
from perdure.testing import Environment
from perdure.threads import Threads
from tests.simulation.memory.reads import _is_listed

nudge = Signal("nudge", int)

FAR_AWAY = 86_400_000
NOW = 1_800_000_000_000


@activity
async def measured_step(number: int) -> int:
    return number


@activity
async def measured_slow_step(number: int) -> int:
    await asyncio.sleep(0)
    return number


@workflow
async def takes_slow_steps(count: int) -> int:
    return sum([await measured_slow_step(1) for _ in range(count)])


@workflow
async def awaits_a_nudge(number: int) -> int:
    return await measured_step(number) + await nudge.receive()


@workflow
async def awaits_a_nudge_for_days(number: int) -> int:
    return number + await asyncio.wait_for(nudge.receive(), 5 * 86_400)


def steps_of(db: sqlite3.Connection, sql: str, parameters: dict[str, object]) -> int:
    """How much SQLite does for a statement, in steps of its virtual machine."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    db.set_progress_handler(count, 1)
    try:
        db.execute(sql, {name: value for name, value in parameters.items() if re.search(rf":{name}\b", sql)}).fetchall()
    finally:
        db.set_progress_handler(None, 1)
        db.rollback()
    return steps


# What every process does once a second, or whenever another one has changed something.
LOOKS = [
    *("overdue", "next_close", "ripe_levels", "next_wakes", "workers", "last_message", "new_messages", "owned_run_ids"),
    *("ended_or_held", "latest_run", "next_suspect", "held_counts", "fence", "ripest", "ripest_of", "first_suspect"),
    *("free_mismatches", "judge_worker", "suspects_of", "free_runs", "delete_worker", "events_of", "unread_of"),
    *("unread_page", "attempts_of", "progress_of", "children_of", "payloads_of", "payloads_of_events", "ripest_below"),
]
# What only SQLite is asked: a server has one clock.
ASKED_OF_SQLITE = ["ripen"]


@pytest.mark.parametrize("workflow", [one_sleep.name, "another"])
@pytest.mark.parametrize("name", [*LOOKS, *ASKED_OF_SQLITE])
def test_a_look_costs_the_same_however_many_runs_are_parked(tmp_path: Path, name: str, workflow: str) -> None:
    """One that walks over all of them takes a second for a million, every second, in every process."""
    asked: dict[str, object] = {
        "namespace": "main",
        "queue": "default",
        "priority": 0,
        "most_levels": 16,
        "most_due": 1000,
        "workflows": f'["{workflow}"]',
        "queues": '["default"]',
        "workflow": workflow,
        "window": 800,
        "workflow_id": "w",
        "worker_id": "w",
        "run_ids": '["a", "b"]',
        "few_ids": '["a", "b"]',
        "run_id": "a",
        "most": 500,
        "now": NOW,
        "limit": 200,
        "after": 0,
        "last": 10,
        "epoch": 1,
    }
    steps = []
    for parked in (100, 2000):
        path = tmp_path / f"{parked}.db"
        fill(path, parked, NOW + FAR_AWAY, per_second=10)
        with closing(sqlite3.connect(path)) as db:
            steps.append(steps_of(db, queries("sqlite")[name], asked))

    assert steps[1] <= steps[0] + 20, f"{steps} steps beside 100 and 2,000 parked runs"


# Two sinks: so much waits for one, which takes nothing, and for the other the newest event of all.
SINKS = """
insert into sinks (sink_id, namespace, name, revision, types, workflows, max_backlog, behind_at, delivered, body)
values ('live', 'main', 'live', 1, 1, null, 100000, null, 0, '{}'),
       ('stuck', 'main', 'stuck', 1, 1, null, 100000, null, 0, '{}')
"""
WAITING = """
insert into outbox (n, sink_id, run_id, type, number, at, attempts, next_at)
{overriding}
select n, 'stuck', 'run-' || n, 'run.started', 1, 1, 0, 0
  from {numbers}
 union all
select 200007, 'live', 'newest', 'run.started', 1, 1, 0, 0
"""
# What a worker asks of each sink, and what each transaction that has told sinks something does at its end.
ASKED_OF_OUTBOX: dict[str, object] = {"sink_id": "live", "now": NOW, "limit": 256, "count": 1}
OUTBOX_LOOKS = ["next_event", "fresh_events", "tried_events", "mark_behind"]


@pytest.mark.parametrize("name", OUTBOX_LOOKS)
def test_a_sink_costs_the_same_however_much_waits_for_another(tmp_path: Path, name: str) -> None:
    """One that is paused or down must slow down neither the other sinks nor those who write."""
    steps = []
    for waiting in (100, 2000):
        path = tmp_path / f"{waiting}.db"
        fill(path, 0, 0, 1)
        numbers = (
            f"(with recursive up (n) as (select 1 union all select n + 1 from up where n < {waiting}) select n from up)"
        )
        with closing(sqlite3.connect(path)) as db:
            db.execute(SINKS)
            db.execute(WAITING.format(overriding="", numbers=numbers))
            db.commit()
            steps.append(steps_of(db, queries("sqlite")[name], ASKED_OF_OUTBOX))

    assert steps[1] <= steps[0] + 20, f"{steps} steps beside 100 and 2,000 events"


# Runs of two kinds and of activities on a queue, most of them ended or asleep, that have all there is in common; and
# older than all of them a few of each status. Held are some of the oldest.
STATUSES = [status.value for status in Status]
MANY_IN_COMMON = """
insert into runs (run_id, namespace, workflow_id, is_latest, workflow, queue, status, owner, wake_at, input, seed,
                  created_at, updated_at, closed_at, outcome, entity_id, correlation_id, parent_id, parent_place)
select 'run-' || substr(cast(1000000000 + n as text), 2), 'main', case when n % 2 = 1 then 'chain' else 'id-' || n end,
       {is_latest}, case n % 5 when 0 then 'task:work' when 1 then 'other' else 'busy' end, 'default',
       case when n % 2 = 1 then 'COMPLETED' else 'SUSPENDED' end, null, case when n % 2 = 0 then {wake_at} + n end,
       '{{}}', 7, 1, 1, case when n % 2 = 1 then 1 end, case when n % 2 = 1 then '1' end, 'tenant',
       'batch', 'fan', 'c#' || n
  from {numbers}
"""
FEW_BEFORE = """
insert into runs (run_id, namespace, workflow_id, is_latest, workflow, queue, status, held, owner, input, seed,
                  created_at, updated_at, closed_at, outcome, entity_id, correlation_id, parent_id, parent_place)
select 'few-' || status || n, 'main', case when n = 1 then 'chain' else 'few-' || status || n end, {is_latest},
       case when n = 2 then 'rare' else 'busy' end, 'default', status,
       case when status = 'SUSPENDED' then 'mismatch' end, case when status = 'RUNNING' then 'w' end, '{{}}', 7, 1, 1,
       case when status not in ('PENDING', 'RUNNING', 'SUSPENDED') then 1 end, '1', 'tenant',
       case when n = 3 then 'mine' else 'batch' end, 'fan', 'f#' || status || n
  from {statuses}
"""
IN_COMMON: list[dict[str, Any]] = [
    {},
    {"workflow": "busy"},
    {"workflow": "rare"},
    {"workflow_id": "chain"},
    {"workflow_id": "chain", "workflow": "other"},
    {"workflow_id": "id-10"},
    {"workflow_id": "id-12"},
    {"workflow_id": "id-12", "workflow": "other"},
    {"entity_id": "tenant"},
    {"correlation_id": "batch"},
    {"parent_id": "fan"},
    {"entity_id": "tenant", "workflow": "rare"},
    {"entity_id": "tenant", "correlation_id": "mine"},
    {"parent_id": "fan", "correlation_id": "mine", "workflow": "busy"},
]
LISTS = [
    RunFilter(
        "main",
        status=status,
        held=held,
        limit=20,
        without=None if {"workflow", "workflow_id"} & given.keys() else "task:",
        **given,
    )
    for given in IN_COMMON
    for status, held in [
        *(((status,), ()) for status in STATUSES),
        ((), ()),
        (("RUNNING", "FAILED"), ()),
        ((), ("mismatch", "quarantine")),
        (("FAILED",), ("mismatch",)),
    ]
]


def with_many_in_common(path: Path, many: int) -> None:
    """A file with so many runs, and a few before them."""
    fill(path, 0, 0, 1)
    counted = f"with recursive up (n) as (select 1 union all select n + 1 from up where n < {many}) select n from up"
    each = f"json_each('{json.dumps(STATUSES)}') as status, json_each('[1, 2, 3]') as n"
    pairs = f"select status.value as status, n.value as n from {each}"
    with closing(sqlite3.connect(path)) as db:
        db.execute(MANY_IN_COMMON.format(numbers=f"({counted})", wake_at=NOW + FAR_AWAY, is_latest="n % 2 = 0"))
        db.execute(FEW_BEFORE.format(statuses=f"({pairs})", is_latest="n <> 1"))
        db.commit()


async def led(store: SqliteStore | PostgresStore, wanted: RunFilter) -> str | None:
    """What a list is led by, as the store would do it."""
    leads = leads_of(wanted)
    if len(leads) < 2:
        return leads[0] if leads else None
    ((*counts,),) = await store.reads.ask(lambda: _found(Text(*counting(wanted, leads))))
    fewest: int = counts.index(min(counts))
    return leads[fewest]


async def test_a_list_by_any_filter_costs_the_same_however_many_runs_there_are(quick_path: Path) -> None:
    """Whoever is told that three of a million have failed looks at those three, and whoever is paged has no time."""
    steps: dict[RunFilter, list[int]] = {wanted: [] for wanted in LISTS}
    for many in (1000, 20_000):
        path = quick_path / f"{many}.db"
        with_many_in_common(path, many)
        store = SqliteStore(str(path))
        await store.open()
        with closing(sqlite3.connect(path)) as db:
            for wanted in LISTS:
                sql, parameters = listing(wanted, SQLITE, await led(store, wanted))
                bound = {n: json.dumps(v) if isinstance(v, list) else v for n, v in parameters.items()}
                steps[wanted].append(steps_of(db, sql, bound))
        await store.close()

    assert {wanted: found for wanted, found in steps.items() if found[1] > 1.5 * found[0] + 50} == {}


def matching(rows: Sequence[RunRow | RunUnreadable], wanted: RunFilter) -> list[str]:
    """The page, out of all runs."""
    found = [row.run_id for row in rows if isinstance(row, RunRow) and _is_listed(row, wanted)]
    return sorted(found, reverse=True)[: wanted.limit]


async def check_lists(store: SqliteStore | PostgresStore) -> None:
    """Whether every list is what a walk over all runs finds, from its first page to its second."""
    rows = await store.reads._runs(Text("select * from runs", {}))
    for wanted in LISTS:
        for before in (None, "run-000000250", "few-PENDING3"):
            page = msgspec.structs.replace(wanted, before=before)
            later = [row for row in rows if before is None or row.run_id < before]
            assert [row.run_id for row in await store.reads.list_runs(page)] == matching(later, page), page


async def test_a_list_by_any_filter_finds_what_a_walk_over_all_runs_finds(quick_path: Path) -> None:
    with_many_in_common(quick_path / "lists.db", 500)
    store = SqliteStore(str(quick_path / "lists.db"))
    await store.open()
    try:
        await check_lists(store)
    finally:
        await store.close()


@pytest.mark.parametrize("known", [one_sleep.name, "another"])
def test_a_claim_costs_the_same_however_many_runs_of_others_are_due(tmp_path: Path, known: str) -> None:
    """A backlog that nobody works off must not slow down those on the same queue who have other work."""
    claim = ClaimRuns("w", "main", ("default",), (known, "a third"), NOW + 2 * FAR_AWAY, 10)
    steps, taken = [], []
    for due in (100, 2000):
        path = tmp_path / f"{due}.db"
        fill(path, due, NOW, per_second=10)
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            # Timers that are due take their turns, each once.
            for _ in range(due // MOST_DUE + 1):
                claimed(db, claim._replace(limit=0))
            count, found = claimed(db, claim)
            steps.append(count)
            taken.append(found)

    assert taken == ([10, 10] if known == one_sleep.name else [0, 0])
    assert steps[1] <= steps[0] + 100, f"{steps} steps beside 100 and 2,000 runs that are due"


def claimed(db: sqlite3.Connection, claim: ClaimRuns) -> tuple[int, int]:
    """How much SQLite does for a claim, in steps of its virtual machine, and how many runs it takes."""
    done = 0

    def count() -> None:
        nonlocal done
        done += 1

    db.set_progress_handler(count, 1)
    try:
        answer = apply_together(db, [[claim]])[0]
    finally:
        db.set_progress_handler(None, 1)
    assert isinstance(answer, Applied)
    assert isinstance(answer.value, list)
    return done, len(answer.value)


FEW_PRIORITIES, MANY_PRIORITIES = (1000, 10), (30_000, 30_000)
SOME_RUNS = """
with recursive numbers (n) as (select 0 union all select n + 1 from numbers where n < :runs - 1)
insert into runs (run_id, namespace, workflow_id, workflow, queue, status, wake_at, priority, input, seed,
                  created_at, updated_at, delayed_until)
select :workflow || '-' || n, 'main', :workflow || '-' || n, :workflow, 'default', 'PENDING', :wake_at,
       :priority + n % :priorities, '{}', 7, 1, 1, case when :wake_at > 0 then :wake_at end
  from numbers
"""


@contextmanager
def prioritised(
    path: Path, size: tuple[int, int], wake_at: int, workflow: str = "mine", priority: int = -5
) -> Iterator[sqlite3.Connection]:
    """A database with so many runs of so many priorities, and two hundred ripe ones beside them that have none."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("pragma synchronous = off")
        for step in migrations("sqlite"):
            db.executescript(step)
        asked = {"workflow": workflow, "wake_at": wake_at, "priority": priority}
        db.execute(SOME_RUNS, {**asked, "runs": size[0], "priorities": size[1]})
        db.execute(SOME_RUNS, {"workflow": "usual", "runs": 200, "wake_at": -1, "priority": 0, "priorities": 1})
        yield db


@pytest.mark.parametrize("workflow", ["mine", "another"])
@pytest.mark.parametrize("wake_at", [NOW + FAR_AWAY, -2], ids=["asleep", "ripe"])
@pytest.mark.parametrize("limit", [1, 200])
def test_claims_cost_the_same_however_many_priorities_there_are(
    tmp_path: Path, wake_at: int, workflow: str, limit: int
) -> None:
    """A priority made of a deadline is another one for each run; with 30,000 of them each claim took 300 ms."""
    claim = ClaimRuns("w", "main", ("default",), ("mine", "usual"), NOW, limit)
    asked: dict[str, object] = {"queue": "default", "namespace": "main", "workflows": '["mine", "usual"]'}
    costs, looks = [], []
    for size in (FEW_PRIORITIES, MANY_PRIORITIES):
        with prioritised(tmp_path / f"{size[0]}.db", size, wake_at, workflow) as db:
            steps, taken = claimed(db, claim)
            assert taken == limit
            costs.append(steps)
            looks.append(steps_of(db, queries("sqlite")["next_wakes"], asked))

    assert costs[1] <= 3 * costs[0], f"{costs} steps for a claim"
    assert looks[1] <= 3 * looks[0], f"{looks} steps for a look at the next wake"


def test_ripe_runs_of_as_many_priorities_are_all_claimed_at_the_price_of_a_few(tmp_path: Path) -> None:
    """Claimed two hundred at a time, each claim must not walk over what the next ones take."""
    claim = ClaimRuns("w", "main", ("default",), ("mine", "usual"), NOW, 200)
    each = []
    for size in (FEW_PRIORITIES, MANY_PRIORITIES):
        with prioritised(tmp_path / f"{size[0]}.db", size, -2) as db:
            done = [claimed(db, claim) for _ in range(-(-(size[0] + 200) // 200))]
            assert sum(taken for _, taken in done) == size[0] + 200
            each.append(sum(steps for steps, _ in done) / (size[0] + 200))

    assert each[1] <= 3 * each[0], f"{each} steps for each run"


@pytest.mark.parametrize("kind", [awaits_a_nudge, awaits_a_nudge_for_days])
async def test_a_parked_run_leaves_nothing_in_memory(tmp_path: Path, kind: Any) -> None:
    """Nor anything for the garbage collector, which may not come for long in a process that has nothing to do."""
    async with Environment(str(tmp_path / "parked.db")) as env:
        await env.start(kind, 0)
        await env.pass_time(30)
        gc.collect()
        gc.disable()
        try:
            before = len(gc.get_objects())
            runs = [await env.start(kind, number) for number in range(50)]
            await env.settle()
            assert env.app._worker is not None
            assert len(env.app._worker._live) == 50
            await env.pass_time(30)
            assert len(env.app._worker._live) == 0
            # The next sweep lets go of their timers.
            await env.pass_time(2)
            del runs
            more = len(gc.get_objects()) - before
            unreachable = gc.collect()
        finally:
            gc.enable()

    assert unreachable < 50, f"{unreachable} objects were left to the garbage collector"
    assert more < 500, f"{more} objects more than before 50 runs were parked"


async def test_activities_that_are_over_are_not_kept_until_their_timeouts(tmp_path: Path) -> None:
    """At a thousand activities a second and five minutes each that would be three hundred thousand of them."""
    async with Environment(str(tmp_path / "deadlines.db")) as env:
        assert await env.result(await env.start(takes_slow_steps, 500)) == 500
        await env.pass_time(2)
        assert env.app._worker is not None
        kept = len(env.app._worker._runner._deadlines)

    assert kept <= 64


async def test_looking_again_does_not_set_the_same_alarm_again(tmp_path: Path) -> None:
    """Alarms that were called off stay in the loop until their time has come; for a far timer that is an hour."""
    async with Environment(str(tmp_path / "alarms.db")) as env:
        await env.start(awaits_a_nudge_for_days, 1)
        await env.pass_time(30)
        await env.pass_time(30)
        before = len(env.clock._alarms)
        for _ in range(10):
            assert env.app._worker is not None
            env.app._worker.look_around()
            await env.settle()

        assert len(env.clock._alarms) == before


async def test_the_rows_of_the_timer_benchmark_are_those_that_parking_leaves(tmp_path: Path) -> None:
    """A million of them are written by hand; they must be what a worker would have left."""
    path = tmp_path / "shape.db"
    async with Environment(str(path)) as env:
        run = await env.start(one_sleep, 3600.5)
        await env.pass_time(30)
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        (real,) = map(dict, db.execute("select * from runs"))
        assert db.execute("select count(*) from events").fetchone()[0] == 0
    fill(tmp_path / "written.db", 0, 0, 1)
    with closing(sqlite3.connect(tmp_path / "written.db")) as db:
        db.row_factory = sqlite3.Row
        db.execute(PARKED_RUN, parked_run(RandomIds(1), real["created_at"], real["wake_at"]))
        (written,) = map(dict, db.execute("select * from runs"))

    own = {"run_id": run.run_id, "workflow_id": run.run_id, "seed": real["seed"], "updated_at": real["updated_at"]}
    assert written | own == real
    assert real["wake_at"] == real["created_at"] + 3_600_500


async def test_work_one_after_another_needs_no_more_threads_in_the_end(tmp_path: Path) -> None:
    """Threads are made when none is free; one that is forgotten while it waits is made again and again."""
    threads = Threads(64, "test")
    for number in range(3000):
        assert await threads.run(lambda number=number: number) == number  # type: ignore[misc]  # as it is now
    made = len(threads._made)
    both = await asyncio.gather(*(threads.run(partial(pow, 2, number)) for number in range(100)))
    threads.close()
    threads.join()

    assert both == [2**number for number in range(100)]
    # A few may be about to wait while the next work comes, on a busy machine.
    assert made <= 8


def memory_of(leak_mb: float) -> list[tuple[float, float]]:
    """Half an hour of samples: up and down by a megabyte, one jump, one peak, and a leak on top."""
    chance = random.Random(1)
    points: list[tuple[float, float]] = [
        (at, 40 + chance.uniform(-1, 1) + leak_mb * at / 1800) for at in range(0, 1800, 5)
    ]
    points[100] = (points[100][0], 90.0)
    return points


@pytest.mark.parametrize("leak_mb", [0.0, 0.5, 4.0])
def test_the_soak_tells_a_leak_from_noise(leak_mb: float) -> None:
    """A curve that goes up and down is no leak; one that creeps up below that is."""
    grown, noise = growth(memory_of(leak_mb))

    assert abs(grown - leak_mb) < 0.3
    assert noise < 2
    assert (grown > 1 + noise) == (leak_mb == 4.0)


def test_the_curves_are_a_picture_with_every_line_in_it() -> None:
    line = Line("<one>", [(float(at), at * at) for at in range(5000)])
    drawn = picture("A & B", "some", [Panel("first", [line, line]), Panel("empty", [Line("none", [])])])
    shapes = ET.fromstring(drawn)

    lines = shapes.findall("{http://www.w3.org/2000/svg}polyline")
    assert [len((found.get("points") or "").split()) for found in lines] == [385, 385, 0]
