"""Hosts: presets, what a worker has done, and processes that live for seconds."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    Every,
    OutboxEvent,
    Perdure,
    Signal,
    Status,
    activity,
    continue_as_new,
    sink,
    sleep,
    workflow,
)
from perdure.app.hosts.invocations import handle
from perdure.app.hosts.presets import PRESETS
from perdure.app.internals import engine_of, furnish
from perdure.authoring.sinks import sinks
from perdure.engine.duties.maintenance import MaintenancePart
from perdure.engine.engine import StoreEngine
from perdure.engine.leasing.takeover import Takeover
from perdure.engine.stopping import Stopping
from perdure.errors import BadId, BadOption, RunNotFound, UnknownWorkflow
from perdure.ids import RandomIds
from perdure.stores.urls import store_for
from perdure.testing import Fault, VirtualClock
from perdure.testing.faults import FaultyStore

paid = Signal("host_paid", int)
began: list[str] = []


@activity
async def host_reserve(order: str) -> str:
    began.append(order)
    return f"held {order}"


@workflow
async def host_order(order: str) -> str:
    held = await host_reserve(order)
    cents = await paid.receive()
    await sleep(timedelta(days=3))
    return f"{held} for {cents}"


@workflow
async def host_plain(text: str) -> str:
    return await host_reserve(text)


@workflow
async def host_fails(text: str) -> str:
    raise ValueError(text)


@workflow
async def host_child_of(text: str) -> str:
    return await host_plain(text)


meanwhile: list[Callable[[], Awaitable[object]]] = []


@activity
async def host_takes_long() -> None:
    while meanwhile:
        await meanwhile.pop()()


@workflow
async def host_is_long() -> None:
    await host_takes_long()


@workflow
async def host_fans_out(count: int) -> list[str]:
    return list(await asyncio.gather(*(host_plain(f"child {number}") for number in range(count))))


@workflow
async def host_goes_on(left: int) -> str:
    if left:
        continue_as_new(left - 1)
    return "done"


@workflow
async def host_naps(seconds: float) -> None:
    await sleep(seconds)


@activity
async def host_hangs(text: str) -> str:
    began.append(text)
    await asyncio.Event().wait()
    return text


@workflow
async def host_stays(text: str) -> str:
    return await host_hangs(text)


class Site:
    """A database and a clock; every client on it is a process of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = VirtualClock()
        self.seeds = iter(range(1, 1000))

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Perdure]:
        app = Perdure(self.url, worker=False)
        furnish(app, store_for(self.url), self.clock, RandomIds(next(self.seeds)), replay_always=False)
        async with app:
            ticking = asyncio.ensure_future(self._ring())
            try:
                yield app
            finally:
                ticking.cancel()

    async def _ring(self) -> None:
        """Ring what is due, which on this clock happens only when it is moved."""
        while True:
            self.clock.advance(0)
            await asyncio.sleep(0.001)


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest) -> Site:
    began.clear()
    if request.param == "postgres":
        return Site(request.getfixturevalue("empty_url"))
    path: Path = request.getfixturevalue("quick_path")
    return Site(f"sqlite:///{path / 'hosts.db'}")


async def workers(app: Perdure) -> int:
    return len(await app.workers.list())


async def test_a_run_is_brought_on_by_one_invocation_after_the_other(site: Site) -> None:
    """Nothing but the database knows of it in between: no process, no row of a worker."""
    async with site.client() as app:
        run = await app.start(host_order, "o-1")
        event = {"run_id": run.run_id}
        assert (await app.handle(event)).status == "suspended"
        assert (await run.describe()).status == Status.SUSPENDED
        assert await workers(app) == 0
    async with site.client() as app:
        run = await app.get(run.id, workflow=host_order)
        assert (await app.handle(event)).status == "suspended"
        await run.signal(paid, 42)
        handled = await app.handle(event)
        assert handled.status == "suspended"
        assert handled.wake_at == datetime.fromtimestamp(site.clock.now() / 1000, UTC) + timedelta(days=3)
        site.clock.advance(3 * 24 * 3_600_000 + 1)
        assert (await app.handle(event)).status == "completed"
        assert (await app.handle(event)).status == "completed"
        assert await run.result() == "held o-1 for 42"
    assert began == ["o-1"]


async def test_a_run_that_fails_or_continues_is_told_as_it_ended(site: Site) -> None:
    async with site.client() as app:
        failed = await app.start(host_fails, "no")
        assert (await app.handle({"run_id": failed.run_id})).status == "failed"
        going = await app.start(host_goes_on, 3)
        handled = await app.handle({"run_id": going.run_id})
        assert handled.status == "completed"
        assert handled.run_id == (await app.get(going.id)).run_id != going.run_id


async def test_what_is_available_is_processed_and_counted(site: Site) -> None:
    """Children are runs of their own, found by the next look; more than `max_jobs` is left to the next invocation."""
    async with site.client() as app:
        await app.start(host_fails, "no")
        await app.start(host_order, "o-2")
        parent = await app.start(host_child_of, "c")
        processed = await app.process_available(max_jobs=10)
        assert (processed.processed, processed.succeeded, processed.failed, processed.suspended) == (4, 2, 1, 1)
        assert await parent.result() == "held c"
        for number in range(5):
            await app.start(host_plain, f"p-{number}")
        assert (await app.process_available(max_jobs=3)).processed == 3
        assert (await app.process_available(max_jobs=3)).processed == 2
        assert (await app.process_available(max_jobs=3)).processed == 0
        assert await workers(app) == 0


async def test_no_more_is_processed_than_may_be_however_few_there_were_at_first(site: Site) -> None:
    """Children are ripe when their parent has begun; the next look takes what is left of the number."""
    async with site.client() as app:
        await app.start(host_fans_out, 5)
        assert (await app.process_available(max_jobs=3)).processed == 3
    assert len(began) == 2


async def test_nothing_is_begun_when_the_budget_is_over(site: Site) -> None:
    """What came up meanwhile is left to the next invocation, which has time for it."""
    async with site.client() as app:

        async def more() -> None:
            await app.start(host_plain, "later")
            site.clock.advance(20_000)

        meanwhile.append(more)
        await app.start(host_is_long)
        assert (await app.process_available(budget=20)).processed == 1
        assert began == []
        assert (await app.process_available(budget=20)).processed >= 1
    assert began == ["later"]


async def test_one_run_is_handled_by_one_process_at_a_time(site: Site) -> None:
    """Queues of the clouds deliver twice; the second one must not do the work again."""
    async with site.client() as app, site.client() as other:
        run = await app.start(host_stays, "only")
        first = asyncio.ensure_future(app.handle({"run_id": run.run_id}, budget=20))
        while not began:  # noqa: ASYNC110 - a few turns
            await asyncio.sleep(0.001)
        assert (await other.handle({"run_id": run.run_id})).status == "busy"
        assert (await other.process_available()).processed == 0
        # Its budget is used up: what is under way is handed back, and done again by the next one.
        site.clock.advance(20_000)
        handled = await first
        assert handled.status == "suspended"
        # Whoever invokes by this comes again, and at once.
        assert handled.wake_at is not None
        assert handled.wake_at.timestamp() * 1000 <= site.clock.now()
        assert await workers(app) == 0
        assert (await run.describe()).status in {Status.PENDING, Status.SUSPENDED}
        again = asyncio.ensure_future(other.handle({"run_id": run.run_id}, budget=20))
        while len(began) < 2:  # noqa: ASYNC110 - a few turns
            await asyncio.sleep(0.001)
        site.clock.advance(20_000)
        await again
    assert began == ["only", "only"]


async def test_what_is_available_is_processed_beside_a_worker_that_stays(site: Site) -> None:
    """No run is done twice, and none is lost between the two."""
    names = [f"b-{number}" for number in range(40)]
    async with Perdure(site.url, worker=False) as app:
        runs = [await app.start(host_plain, name) for name in names]
        async with Perdure(site.url, max_live=3) as staying:
            processed = 0
            while await app.count(where="status != 'completed'"):
                processed += (await app.process_available(max_jobs=4)).succeeded
            assert [await run.result() for run in runs] == [f"held {name}" for name in names]
            assert processed + staying.worker_stats().closed == len(names)
            assert await workers(app) == 1
    assert sorted(began) == sorted(names)


async def crashed_handle(site: Site, run_id: str, fault: tuple[int, Fault] | None) -> int:
    """Handle a run in a process that a fault strikes; the number of its commits."""
    store = FaultyStore(site.url.removeprefix("sqlite:///"))
    if fault is not None:
        store.fail_at(*fault)
    died = asyncio.Event()
    store.crashed = died.set
    async with site.client() as app:
        brief = app._brief(20)
        brief.engine = app._engine_over(store, is_brief=True)
        brief.until = brief.engine.clock.monotonic() + 20_000
        handling = asyncio.ensure_future(handle(brief, app._store_reader, run_id))
        while not handling.done() and not died.is_set():
            site.clock.advance(50)
            await asyncio.sleep(0.001)
        if died.is_set():
            if store.commits > 1:
                # It was open: its worker has its row.
                brief.worker.abandon()
                brief.engine.abandon()
            store.abandon()
        while not handling.done():
            handling.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(handling, return_exceptions=True)
    return store.commits


async def test_a_fault_at_any_commit_of_an_invocation_is_made_good_by_the_next(quick_path: Path) -> None:
    """Every commit, from the row of the worker to its end, and every kind of fault: one result, and no row left."""
    site = Site(f"sqlite:///{quick_path / 'crashed.db'}")
    async with site.client() as app:
        run = await app.start(host_plain, "plain")
        commits = await crashed_handle(site, run.run_id, None)
        assert await run.result() == "held plain"
        assert commits >= 4
        for fault, number in itertools.product(Fault, range(1, commits + 1)):
            text = f"{fault.name} at {number}"
            run = await app.start(host_plain, text)
            await crashed_handle(site, run.run_id, (number, fault))
            assert (await app.handle({"run_id": run.run_id})).status == "completed", text
            assert await run.result() == f"held {text}"
            outcomes = [event for event in [e async for e in run.events()] if event.kind == "ActivityCompleted"]
            assert len(outcomes) == 1, text
            assert began.count(text) <= 2, text
            # A worker that never heard that it is one has no lock, and is gone when its lease is over.
            site.clock.advance(31_000)
            await app.tick()
            assert await workers(app) == 0, text


async def test_what_a_process_left_that_died_is_available(quick_path: Path) -> None:
    site = Site(f"sqlite:///{quick_path / 'left.db'}")
    async with site.client() as app:
        run = await app.start(host_plain, "left")
        await crashed_handle(site, run.run_id, (3, Fault.CRASH_AFTER))
        assert (await run.describe()).status == Status.RUNNING
        assert (await app.process_available()).succeeded == 1
        assert await run.result() == "held left"


async def test_what_is_due_within_a_second_is_waited_for(site: Site) -> None:
    async with site.client() as app:
        run = await app.start(host_naps, 0.5)
        assert (await app.handle({"run_id": (await app.start(host_naps, 5)).run_id})).status == "suspended"
        handling = asyncio.ensure_future(app.handle({"run_id": run.run_id}))
        while not handling.done():
            site.clock.advance(10)
            await asyncio.sleep(0.001)
        assert (await handling).status == "completed"


async def test_a_paused_run_is_left_alone_and_generations_that_continue_have_ended_well(site: Site) -> None:
    async with site.client() as app:
        run = await app.start(host_plain, "paused")
        await run.pause("a while")
        assert (await asyncio.wait_for(app.handle({"run_id": run.run_id}), 30)).status == "suspended"
        await app.start(host_goes_on, 2)
        processed = await app.process_available()
        assert (processed.processed, processed.succeeded, processed.failed) == (3, 3, 0)
    assert began == []


async def test_a_part_of_the_budget_is_kept_for_handing_back(site: Site) -> None:
    """A process that is killed at the end of its time has handed back by then. Parts of one kind are counted as one."""

    async def two() -> int:
        return 2

    async with site.client() as app:
        now = site.clock.monotonic()
        assert (app._brief(20).until - now, app._brief(1).until - now) == (19_000, 800)
        async with app._brief(20) as brief:
            parts = [MaintenancePart(name, "things", two) for name in ("one", "other")]
            counts, _ = await brief.engine.maintenance.tick("main", brief.until, *parts)
        assert counts["things"] == 4


PROGRAM = """
import asyncio, sys
from pathlib import Path
from perdure import Perdure, activity, workflow

url, run_id, mark = sys.argv[1:]

@activity
async def brief_work(text: str) -> str:
    with open(mark, "a") as file:
        file.write("began\\n")
    while not Path(mark + ".go").exists():
        await asyncio.sleep(0.01)
    return text

@workflow
async def brief_run(text: str) -> str:
    return await brief_work(text)

async def main() -> None:
    async with Perdure(url, worker=False, lease=1) as app:
        if run_id == "start":
            print((await app.start(brief_run, "done")).run_id)
        else:
            print((await app.handle({"run_id": run_id}, budget=60)).status)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_process_that_is_killed_or_frozen_in_the_middle_is_taken_over(
    request: pytest.FixtureRequest, quick_path: Path, how: signal.Signals, database: str
) -> None:
    """Clouds freeze processes between two invocations; what they had is done by the next one, and recorded once."""
    url = request.getfixturevalue("empty_url") if database == "postgres" else f"sqlite:///{quick_path / 'brief.db'}"
    program, mark = quick_path / "brief.py", quick_path / "mark"
    program.write_text(PROGRAM)

    def process(run_id: str) -> subprocess.Popen[str]:
        words = [sys.executable, str(program), url, run_id, str(mark)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def begins() -> int:
        return mark.read_text().count("began") if mark.exists() else 0

    run_id = process("start").communicate()[0].strip()
    first = process(run_id)
    until(lambda: begins() == 1)
    first.send_signal(how)
    try:
        mark.with_name("mark.go").touch()
        told = "busy"
        while told == "busy":
            told = process(run_id).communicate()[0].strip()
        assert told == "completed"
        assert begins() == 2
    finally:
        first.send_signal(signal.SIGCONT)
        answer = first.communicate()[0].strip()
    # What was frozen learns that it is not its own any more, and writes nothing.
    assert answer == ("" if how == signal.SIGKILL else "completed")
    assert begins() == 2


def until(is_so: Callable[[], object]) -> None:
    """Wait for other processes."""
    for _ in range(3000):
        if is_so():
            return
        time.sleep(0.02)
    raise AssertionError("it never came")


async def test_a_tick_does_each_part_once_and_one_that_fails_stops_no_other(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.client() as app:
        await app.schedules.create("often", host_plain.call("s"), Every(timedelta(minutes=1)))
        short = await app.start(host_order.options(timeout=30), "o-3")
    site.clock.advance(61_000)
    async with site.client() as app:
        done = await app.tick()
        assert done.errors == {}
        short = await app.get(short.id, workflow=host_order)
        assert (done.counts["scheduled"], done.counts["overdue"], done.counts["rescued"]) == (1, 1, 0)
        assert (await short.describe()).status == Status.TIMED_OUT
        assert (await app.process_available()).succeeded == 1
        assert set((await app.tick()).counts.values()) == {0}
        assert [duty.holder for duty in await app.duties()] != []

        async def broken(*_: object) -> int:
            raise ValueError("the disk is on fire")

        monkeypatch.setattr(Stopping, "close_overdue", broken)
        site.clock.advance(61_000)
        done = await app.tick()
        assert done.errors == {"overdue": "ValueError: the disk is on fire"}
        assert done.counts["scheduled"] == 1
        assert await workers(app) == 0


async def test_a_part_that_takes_too_long_is_named_and_the_rest_is_not_begun(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(_: Takeover) -> int:
        site.clock.advance(60_000)
        await asyncio.Event().wait()
        return 0

    async with site.client() as app:
        monkeypatch.setattr(Takeover, "rescue", hangs)
        done = await app.tick(budget=20)
        assert done.counts == {}
        assert list(done.errors)[:3] == ["rescue", "overdue", "schedules"]
        assert "was not begun" in done.errors["schedules"]


async def test_a_receiver_that_hangs_until_the_budget_is_over_keeps_no_other_from_its_turn(site: Site) -> None:
    """Each tick would break it off before it has failed, so that it is never down, and all behind it get nothing."""
    taken: list[str] = []

    async def a_hangs(_: OutboxEvent) -> None:
        await asyncio.Event().wait()

    async def b_takes(event: OutboxEvent) -> None:
        taken.append(event.type)

    async with site.client() as app:
        with sinks_of(a_hangs, b_takes):
            await app.tick()
            await app.start(host_plain, "told")
            ticking = asyncio.ensure_future(app.tick(budget=20))
            async with asyncio.timeout(30):
                while (await app.outbox.get("b_takes")).backlog:  # noqa: ASYNC110 - a few turns
                    await asyncio.sleep(0.001)
            site.clock.advance(20_000)
            done = await ticking
    assert taken == ["run.started"]
    assert "sink:a_hangs" in done.errors


async def test_a_tick_makes_the_sinks_of_its_code(site: Site) -> None:
    """Where no worker stays nobody else does, and from then on nothing is missed."""
    taken: list[str] = []

    async def from_code(event: OutboxEvent) -> None:
        taken.append(event.type)

    async with site.client() as app:
        with sinks_of(from_code):
            assert (await app.tick()).errors == {}
            assert [found.name for found in await app.outbox.list()] == ["from_code"]
            await app.start(host_plain, "told")
            assert (await app.process_available()).succeeded == 1
            assert (await app.tick()).counts["delivered"] == 2
    assert taken == ["run.started", "run.completed"]


@contextmanager
def sinks_of(*functions: Callable[[OutboxEvent], Awaitable[None]]) -> Iterator[None]:
    """Sinks that come with the code of this process, for a while."""
    kept = [sink(events=("run.*",))(fn) for fn in functions]
    try:
        yield
    finally:
        for each in kept:
            sinks._known.pop(each.name)


async def test_bad_input_is_refused(site: Site) -> None:
    async with site.client() as app:
        run = await app.start(host_plain, "x")
        for wrong in (0, -1, "soon"):
            with pytest.raises(BadOption, match="budget"):
                await app.tick(budget=wrong)  # type: ignore[arg-type]
        with pytest.raises(BadOption, match="max_jobs"):
            await app.process_available(max_jobs=0)
        events: list[Any] = [{}, None, "r"]
        for event in events:
            with pytest.raises(BadOption, match="run_id"):
                await app.handle(event)
        with pytest.raises(BadId):
            await app.handle({"run_id": ""})
        with pytest.raises(RunNotFound):
            await app.handle({"run_id": "nobody"})
        with pytest.raises(BadOption, match="works nothing"):
            app.worker_stats()
        assert await workers(app) == 0
        assert (await run.describe()).status == Status.PENDING
    client = Perdure(site.url, worker=False, workflows=[host_fails])
    furnish(client, store_for(site.url), site.clock, RandomIds(999), replay_always=False)
    async with client:
        with pytest.raises(UnknownWorkflow, match="host_plain"):
            await client.handle({"run_id": run.run_id})
        assert await workers(client) == 0
    with pytest.raises(BadOption, match="there is no preset 'fast'"):
        Perdure(site.url, preset="fast")


async def test_a_perdure_that_works_needs_no_invocations() -> None:
    async with Perdure("sqlite://") as app:
        for call in (app.tick, app.process_available):
            with pytest.raises(BadOption, match="worker=False"):
                await call()
    async with Perdure("sqlite://", worker=False) as app:
        with pytest.raises(BadOption, match="worker=False"):
            await app.tick()


def test_a_preset_is_what_is_not_given_besides() -> None:
    app = Perdure("sqlite://", preset="dev", lease=20)
    assert app._settings is not None
    dev = PRESETS["dev"]
    assert (app._settings.max_live, app._settings.park_after_ms) == (dev.max_live, dev.park_after * 1000)
    assert (app._lease_ms, app._grace_ms) == (20_000, dev.grace * 1000)
    standard = Perdure("sqlite://")
    assert standard._settings is not None
    assert (standard._settings.max_live, standard._lease_ms, standard._grace_ms) == (10_000, 30_000, 10_000)


async def test_a_worker_tells_what_it_has_done(site: Site) -> None:
    async with Perdure(site.url, worker=False) as app:
        waiting = await app.start(host_plain, "before")
    async with Perdure(site.url) as app:
        assert await (await app.get(waiting.id, workflow=host_plain)).result() == "held before"
        run = await app.start(host_plain, "after")
        await run.result()
        stats = app.worker_stats()
        engine = engine_of(app)
        assert isinstance(engine, StoreEngine)
        assert stats.worker_id == engine.worker_id
        # An activity and an end of each; only the first had to be claimed, and none had a past.
        assert (stats.claimed, stats.closed, stats.steps, stats.replays, stats.live) == (1, 2, 4, 0, 0)
        assert not stats.is_stopping


def test_the_same_without_await(quick_path: Path) -> None:
    with Perdure(f"sqlite:///{quick_path / 'stats.db'}").sync() as worker:
        assert worker.run(host_plain, "here") == "held here"
        assert worker.worker_stats().closed == 1
    with Perdure(f"sqlite:///{quick_path / 'sync.db'}", worker=False).sync() as app:
        run = app.start(host_plain, "sync")
        assert app.tick(budget=5).errors == {}
        assert app.handle({"run_id": run.run_id}).status == "completed"
        assert app.process_available(max_jobs=1).processed == 0


def test_an_order_goes_through_processes_of_seconds(quick_path: Path) -> None:
    """The example, as its head says it is run."""
    program = Path(__file__).parent.parent / "examples" / "serverless.py"
    environment = os.environ | {"DATABASE_URL": f"sqlite:///{quick_path / 'shop.db'}", "RETURN_SECONDS": "0.1"}

    def invoke(*words: str) -> str:
        command = [sys.executable, str(program), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    run_id = invoke("start", "o-1")
    assert invoke("handle", run_id) == "suspended"
    invoke("pay", run_id, "4200")
    # A timer of less than a second is waited for.
    assert invoke("handle", run_id) == "completed"
    assert invoke("tick").splitlines()[-1] == "Processed(processed=0, succeeded=0, failed=0, suspended=0)"
