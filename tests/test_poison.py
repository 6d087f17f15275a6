"""Poison: a run its workers die of is found among all the others, and nobody else is held for it."""

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import Run, RunClosed, RunNotHeld, Signal, activity, sleep, workflow
from perdure.kernel import quarantine
from perdure.kernel.quarantine import (
    LONGEST_PAUSE_MS,
    Death,
    LastEvent,
    Tried,
    patience_ms,
    quarantine_report,
    where_it_was,
)
from perdure.stores.answers import Answer, Applied, Blamed, Committed, Freed, Moved, Outcome, Paused
from perdure.stores.operations import (
    AppendEvent,
    Batch,
    ClaimRuns,
    DeleteWorker,
    FreeRuns,
    HoldRun,
    InsertRun,
    NoteLosses,
    NoteWaiting,
    Operation,
    ParkRun,
    PostMessage,
    RaiseEpoch,
    RecordAttempt,
    RegisterWorker,
    ResumeRun,
)
from perdure.stores.queries import queries
from perdure.stores.records import RunRow
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing import Environment, VirtualClock

NOW = 1000


class Ledger:
    """A store, and workers that come, own runs and are lost."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self._workers = 0

    def write(self, *operations: Operation) -> Answer:
        told: list[Outcome] = []
        self.store.commit(Batch([operations], None, 0), told.append)
        assert isinstance(told[0], Committed)
        return told[0].answers.get(0, Applied())

    def insert(self, *run_ids: str, priority: int = 0, wake_at: int = NOW) -> None:
        for run_id in run_ids:
            status = ("default", "PENDING", None, wake_at, priority)
            self.write(InsertRun(run_id, "main", run_id, "wf", *status, "{}", 7, NOW))

    def register(self) -> str:
        self._workers += 1
        worker_id = f"w-{self._workers}"
        self.write(RegisterWorker(worker_id, "main", 99_000, ("default",), "host", self._workers, NOW))
        return worker_id

    def claim(self, worker_id: str, limit: int = 100, suspects: int = 1, now: int = NOW) -> list[str]:
        answer = self.write(ClaimRuns(worker_id, "main", ("default",), ("wf",), now, limit, suspects))
        assert isinstance(answer, Applied)
        assert isinstance(answer.value, list)
        return answer.value

    def claim_all(self, worker_id: str) -> list[str]:
        """Everything there is; the rule of one suspect at a time is the worker's."""
        taken: list[str] = []
        while more := self.claim(worker_id):
            taken += more
        return taken

    def lose(self, worker_id: str, limit: int = 500) -> Answer:
        return self.write(RaiseEpoch(worker_id, 1), FreeRuns(worker_id, NOW, limit))

    def lost_with(self, *run_ids: str, alone: bool = False) -> Answer:
        """A worker owns these and, unless they are alone, one that does nothing; and is lost."""
        worker_id = self.register()
        if not alone:
            self.insert("bystander")
        for run_id in (*run_ids, "bystander"):
            self.own(run_id, worker_id)
        answer = self.lose(worker_id)
        self.store.transactions.db.execute("delete from runs where run_id = 'bystander'")
        return answer

    def own(self, run_id: str, worker_id: str | None) -> None:
        self.store.transactions.db.execute(
            "update runs set owner = ?, wake_at = null where run_id = ?", (worker_id, run_id)
        )

    def move(self, run_id: str, seq: int) -> None:
        body = '{"name":"step","arguments":{},"result":1,"started_at":1}'
        self.write(AppendEvent("main", run_id, seq, "ActivityCompleted", f"step#{seq}", NOW, body))

    def get_on(self, run_id: str) -> None:
        """Its next worker sees everything end that was under way, and lets go of it."""
        worker_id = self.register()
        self.own(run_id, worker_id)
        self.write(NoteLosses(run_id, worker_id, 0, 0))
        self.own(run_id, None)

    def counts(self, run_id: str) -> tuple[int, int]:
        """Losses, and deaths with it as the only suspect."""
        sql = "select losses, coalesce(json_array_length(deaths), 0) from runs where run_id = ?"
        return tuple(self.store.transactions.db.execute(sql, (run_id,)).fetchone())

    async def row(self, run_id: str) -> RunRow:
        row = await self.store.reads.run("main", run_id)
        assert row is not None
        return row


@asynccontextmanager
async def a_ledger(*run_ids: str) -> AsyncIterator[Ledger]:
    store = SqliteStore(None)
    await store.open()
    ledger = Ledger(store)
    ledger.insert(*run_ids)
    yield ledger
    await store.close()


# The rule


@pytest.mark.parametrize(
    ("moves", "losses"),
    [("", 0), ("l", 1), ("ll", 2), ("lll", 3), ("llgl", 1), ("llel", 3), ("lgl", 1), ("lglgl", 1), ("llgll", 2)],
)
async def test_losses_count_until_the_worker_says_that_the_run_got_on(moves: str, losses: int) -> None:
    """l: its worker is lost; e: an event; g: it got on. Events alone say nothing: a timer may tick on."""
    async with a_ledger("r", "other") as ledger:
        for number, move in enumerate(moves):
            match move:
                case "l":
                    ledger.lost_with("r", "other")
                case "e":
                    ledger.move("r", 2 + moves[:number].count("e"))
                case "g":
                    ledger.get_on("r")
        assert ledger.counts("r")[0] == losses


async def test_the_only_suspect_is_blamed_and_held_at_the_fifth_death() -> None:
    """Two losses make a suspect; from then on, five deaths with nobody else to suspect."""
    async with a_ledger("poison", "innocent") as ledger:
        for deaths in (0, 0, 1, 2, 3, 4):
            assert ledger.lost_with("poison") == Applied(Freed(2, Blamed("poison", deaths) if deaths else None))
            assert ledger.counts("poison")[1] == deaths
        assert (await ledger.row("poison")).held is None
        assert ledger.lost_with("poison", "innocent") == Applied(Freed(3, Blamed("poison", 5, is_held=True)))
        row = await ledger.row("poison")
        assert (row.held, row.status, row.owner, row.wake_at) == ("quarantine", "SUSPENDED", None, None)
        report = msgspec.json.decode(row.held_report or "")
        assert report["trouble"].startswith("5 workers died with this run")
        assert [death["pid"] for death in report["deaths"]] == [3, 4, 5, 6, 7]
        assert report["under_way"] == "somewhere after its start; what it began then was not written down"
        assert "`perdure resume poison`" in report["remedy"]
        assert (await ledger.row("innocent")).held is None


async def test_the_report_names_what_was_under_way() -> None:
    """Whoever is paged at night must know where to look: which step, in which attempt, after what."""
    async with a_ledger("poison") as ledger:
        ledger.move("poison", 2)
        ledger.write(RecordAttempt("main", "poison", "charge", 1, "charge", "{}", NOW, NOW))
        ledger.write(RecordAttempt("main", "poison", "charge", 2, "charge", "{}", NOW, NOW))
        ledger.write(RecordAttempt("main", "poison", "step#2", 1, "step", "{}", NOW, NOW))
        for _ in range(6):
            ledger.lost_with("poison")
        worker_id = ledger.register()
        ledger.insert("bystander")
        for run_id in ("poison", "bystander"):
            ledger.own(run_id, worker_id)
        waits = '[{"kind":"timer","place":"timer()","until":5},{"kind":"activity","place":"step#2","name":"step"}]'
        ledger.write(NoteWaiting("poison", worker_id, waits, NOW))
        ledger.lose(worker_id)
        report = msgspec.json.decode((await ledger.row("poison")).held_report or "")
    assert report["under_way"] == (
        "in the timer at timer(), the activity charge at charge, attempt 3, after event 2, ActivityCompleted at step#2"
    )


@pytest.mark.parametrize(
    ("waiting", "tried", "last", "told"),
    [
        (None, [], None, "somewhere after its start; what it began then was not written down"),
        ("[]", [], LastEvent(3, "TimerFired", "timer()"), "somewhere after event 3, TimerFired at timer(); what it"),
        (None, [], LastEvent(2, "CancelRequested", ""), "somewhere after event 2, CancelRequested at the run itself;"),
        ('[{"kind":"side_effect","place":"draw"}]', [], None, "in the side effect at draw, after its start"),
        ('{"not": "a list"}', [], None, "somewhere after its start;"),
        (None, [Tried("ended", "ended", 1)], None, "somewhere after its start;"),
        (None, [Tried(f"a#{n}", "a", n) for n in range(1, 6)], None, "attempt 4 and 2 more, after its start"),
        ('[{"kind":"more","place":"","name":"and 7 more"}]', [], None, "somewhere after its start;"),
    ],
)
def test_where_a_run_was_is_told_as_far_as_it_is_known(
    waiting: str | None, tried: list[Tried], last: LastEvent | None, told: str
) -> None:
    assert told in where_it_was(waiting, tried, {"ended"}, last)


async def test_one_that_was_alone_is_never_held_and_rests_longer_each_time() -> None:
    """It endangers nobody; and who kills a process from outside, again and again, has done nothing to its runs."""
    async with a_ledger("r") as ledger:
        rests = []
        for losses in range(20):
            answer = ledger.lost_with("r", alone=True)
            row = await ledger.row("r")
            assert (row.held, row.status, row.owner, row.losses) == (None, "PENDING", None, losses + 1)
            # Below zero it has a turn: it is ripe at once.
            rests.append(max((row.wake_at or 0) - NOW, 0))
            paused = Paused("r", losses + 1, NOW + rests[-1]) if losses >= 2 else None
            assert answer == Applied(Freed(1, paused))
        assert rests == [0, 0, *(1000 * 2**n for n in range(9)), *([300_000] * 9)]
        assert ledger.counts("r") == (20, 0)


async def test_a_rest_set_by_a_clock_that_is_ahead_lasts_no_longer_than_any_rest() -> None:
    """The process that freed it was a day ahead, and for a day nobody tried it again."""
    async with a_ledger("r") as ledger:
        for _ in range(2):
            ledger.lost_with("r", alone=True)
        worker_id = ledger.register()
        ledger.own("r", worker_id)
        ledger.write(RaiseEpoch(worker_id, 1), FreeRuns(worker_id, NOW + 86_400_000, 10))
        assert ledger.claim(ledger.register(), now=NOW) == ["r"]


async def test_the_longest_rest_is_not_cut_short() -> None:
    async with a_ledger("r") as ledger:
        for _ in range(15):
            ledger.lost_with("r", alone=True)
        assert ledger.claim(ledger.register(), now=NOW) == []
        assert ledger.claim(ledger.register(), now=NOW + LONGEST_PAUSE_MS) == ["r"]


async def test_a_parent_that_waits_for_the_suspect_is_no_company() -> None:
    """A program with one run, killed in a child of that, is as harmless as one without children."""
    async with a_ledger("parent", "child") as ledger:
        ledger.store.transactions.db.execute("update runs set parent_id = 'parent' where run_id = 'child'")
        for _ in range(2):
            ledger.lost_with("child")
        assert ledger.lost_with("child", "parent", alone=True) == Applied(Freed(2, Paused("child", 3, NOW + 1000)))
        assert ledger.lost_with("child", "parent") == Applied(Freed(3, Blamed("child", 1)))
        assert [((await ledger.row(name)).wake_at or 0) < 0 for name in ("parent", "child")] == [True, True]


async def test_only_deaths_that_took_others_with_them_count() -> None:
    """One that kills whenever it is tried is found all the same: in between it may be alone."""
    async with a_ledger("r") as ledger:
        for _ in range(2):
            ledger.lost_with("r")
        for deaths in range(1, 6):
            ledger.lost_with("r", alone=True)
            answer = ledger.lost_with("r")
            assert answer == Applied(Freed(2, Blamed("r", deaths, is_held=deaths == 5)))


async def test_a_run_that_outlived_its_watch_in_between_was_lost_as_often() -> None:
    """People are told how often its workers died, not what is left of that to count against it."""
    async with a_ledger("r") as ledger:
        for _ in range(2):
            ledger.lost_with("r", alone=True)
        worker_id = ledger.register()
        ledger.own("r", worker_id)
        ledger.write(NoteLosses("r", worker_id, 1, 1))
        ledger.lose(worker_id)
        assert ledger.lost_with("r", alone=True) == Applied(Freed(1, Paused("r", 4, NOW + 1000)))


async def test_among_several_suspects_nobody_is_blamed() -> None:
    async with a_ledger("a", "b") as ledger:
        for _ in range(20):
            ledger.lost_with("a", "b")
        assert (ledger.counts("a"), ledger.counts("b")) == ((20, 0), (20, 0))


async def test_one_that_moved_on_in_the_hands_of_the_lost_worker_is_no_suspect() -> None:
    """It made room for the next suspect, and that one is then the only one."""
    async with a_ledger("moved", "stuck") as ledger:
        for _ in range(2):
            ledger.lost_with("moved", "stuck")
        ledger.get_on("moved")
        ledger.lost_with("moved", "stuck")
        assert (ledger.counts("moved"), ledger.counts("stuck")) == ((1, 0), (3, 1))


async def test_progress_wipes_out_what_was_held_against_a_run() -> None:
    async with a_ledger("r") as ledger:
        for _ in range(6):
            ledger.lost_with("r")
        assert ledger.counts("r") == (6, 4)
        ledger.get_on("r")
        for deaths in (0, 0, 1, 2, 3, 4):
            ledger.lost_with("r")
            assert ledger.counts("r")[1] == deaths
        assert (await ledger.row("r")).held is None


@pytest.mark.parametrize("bite", [1, 2, 3])
async def test_a_rescuer_that_dies_between_bites_leaves_nobody_counted_twice_or_blamed(bite: int) -> None:
    """Of two suspects one is freed; the next rescuer must not take the other for the only one."""
    async with a_ledger("a", "b", "c") as ledger:
        for _ in range(2):
            ledger.lost_with("a", "b")
        worker_id = ledger.register()
        ledger.claim_all(worker_id)
        ledger.lose(worker_id, limit=bite)
        for _ in range(4):
            # As the next rescuer does it: it reads the epoch anew, and raises it again.
            epoch = next((row.epoch for row in await ledger.store.reads.workers() if row.worker_id == worker_id), 1)
            ledger.write(RaiseEpoch(worker_id, epoch), FreeRuns(worker_id, NOW, bite))
        ledger.write(DeleteWorker(worker_id))
        assert [ledger.counts(run_id) for run_id in "abc"] == [(3, 0), (3, 0), (1, 0)]
        assert worker_id not in {row.worker_id for row in await ledger.store.reads.workers()}


async def test_a_rescue_under_another_epoch_counts_nothing() -> None:
    async with a_ledger("r") as ledger:
        worker_id = ledger.register()
        ledger.claim_all(worker_id)
        assert ledger.write(RaiseEpoch(worker_id, 7), FreeRuns(worker_id, NOW, 500)) == Moved()
        assert ledger.counts("r") == (0, 0)
        ledger.lose(worker_id)
        assert ledger.counts("r") == (1, 0)


@pytest.mark.parametrize(("status", "losses"), [("SUSPENDED", 0), ("PENDING", 3)])
async def test_who_only_waits_is_no_suspect_any_more(status: str, losses: int) -> None:
    """A worker that stops hands back what it has; that alone clears nobody."""
    async with a_ledger("r") as ledger:
        for _ in range(3):
            ledger.lost_with("r")
        worker_id = ledger.register()
        assert ledger.claim(worker_id) == ["r"]
        ledger.write(ParkRun("r", worker_id, status, NOW, None, None, NOW))
        assert ledger.counts("r")[0] == losses


async def test_a_suspect_that_outlived_its_time_is_watched_for_longer_the_next_time() -> None:
    """Else one that kills after a while would hide among those that only take long."""
    async with a_ledger("r") as ledger:
        for _ in range(2):
            ledger.lost_with("r")
        worker_id = ledger.register()
        ledger.claim(worker_id)
        ledger.write(NoteLosses("r", worker_id, 1, 1))
        assert (ledger.counts("r")[0], (await ledger.row("r")).outlived) == (1, 1)
        ledger.lose(worker_id)
        assert (ledger.counts("r"), (await ledger.row("r")).outlived) == ((2, 0), 1)
    assert [patience_ms(outlived) for outlived in (0, 1, 2, 8, 999)] == [100, 400, 1600, 3_600_000, 3_600_000]


def test_the_report_tells_what_happened_and_what_to_do() -> None:
    deaths = tuple(Death(number, number, "host") for number in range(3))
    assert set(msgspec.json.decode(quarantine_report("o-1", deaths))) == {"trouble", "under_way", "deaths", "remedy"}


# Claims


async def suspected(ledger: Ledger, *run_ids: str) -> None:
    for _ in range(2):
        ledger.lost_with(*run_ids)


async def test_suspects_come_back_in_groups_that_get_smaller_and_in_the_end_alone() -> None:
    """Hundreds of healthy ones must not wait for each other; whoever kills is alone after a few deaths more."""
    names = [f"s{number:03}" for number in range(120)]
    async with a_ledger(*names) as ledger:
        await suspected(ledger, *names)
        worker_id = ledger.register()
        assert [len(ledger.claim(worker_id, limit=400, suspects=100)) for _ in range(3)] == [100, 20, 0]
        ledger.lose(worker_id)
        assert len(ledger.claim(ledger.register(), suspects=100)) == 10
        ledger.lost_with(*names)
        assert [len(ledger.claim(ledger.register(), suspects=100)) for _ in range(2)] == [1, 1]


async def test_a_claim_takes_suspects_beside_others_and_only_those_lost_as_often() -> None:
    async with a_ledger("s1", "s2", "t1", "a", "b") as ledger:
        await suspected(ledger, "s1", "s2", "t1")
        ledger.lost_with("t1")
        worker_id = ledger.register()
        assert sorted(ledger.claim(worker_id, suspects=0)) == ["a", "b"]
        assert ledger.claim(worker_id, suspects=0) == []
        assert [ledger.claim(worker_id, suspects=100) for _ in range(3)] == [["s1", "s2"], ["t1"], []]


async def test_half_of_the_places_are_left_for_other_runs() -> None:
    async with a_ledger("s1", "s2", "s3", "s4") as ledger:
        await suspected(ledger, "s1", "s2", "s3", "s4")
        ledger.insert("a", "b", "c")
        assert ledger.claim(ledger.register(), limit=4, suspects=100) == ["s1", "s2", "a", "b"]


async def test_the_only_place_goes_to_a_run_of_higher_priority_than_the_suspect() -> None:
    async with a_ledger("s1") as ledger:
        await suspected(ledger, "s1")
        ledger.insert("urgent", priority=1)
        ledger.insert("other")
        worker_id = ledger.register()
        assert [ledger.claim(worker_id, limit=1) for _ in range(3)] == [["urgent"], ["s1"], ["other"]]


async def test_the_only_place_goes_to_the_suspect_while_nothing_of_higher_priority_can_be_taken() -> None:
    """A timer that is due next year must not strand it; the claim loop would look for it every few milliseconds."""
    async with a_ledger("s1") as ledger:
        await suspected(ledger, "s1")
        ledger.insert("asleep", priority=1, wake_at=NOW + 1)
        ledger.insert("other")
        worker_id = ledger.register()
        assert [ledger.claim(worker_id, limit=1) for _ in range(3)] == [["s1"], ["other"], []]


async def test_suspects_that_may_not_be_claimed_are_no_reason_to_wake() -> None:
    """The claim loop would else look for them every few milliseconds."""
    async with a_ledger("s1") as ledger:
        await suspected(ledger, "s1")
        assert await ledger.store.reads.next_wake("main", ["default"], ["wf"]) is None
        assert await ledger.store.reads.next_wake("main", ["default"], ["wf"], suspects=True) == -1


async def test_a_message_for_a_run_in_quarantine_does_not_free_it() -> None:
    async with a_ledger("r") as ledger:
        for _ in range(7):
            ledger.lost_with("r")
        ledger.write(PostMessage("r", "m", "SignalSent", '{"name":"go","payload":1}', NOW))
        assert ledger.claim(ledger.register()) == []


async def test_a_resumed_run_begins_with_a_clean_sheet() -> None:
    async with a_ledger("r") as ledger:
        assert ledger.write(ResumeRun("r", NOW)) == Moved()
        for _ in range(7):
            ledger.lost_with("r")
        assert ledger.write(ResumeRun("r", NOW)) == Applied()
        row = await ledger.row("r")
        assert (row.held, row.held_report, row.status) == (None, None, "PENDING")
        assert ledger.counts("r") == (0, 0)
        assert ledger.claim(ledger.register(), suspects=0) == ["r"]


def plan_of(db: sqlite3.Connection, sql: str, **parameters: object) -> str:
    return " ".join(str(row[3]) for row in db.execute(f"explain query plan {sql}", parameters))


async def test_many_suspects_do_not_lie_in_the_way_of_others(tmp_path: Path) -> None:
    """Each is in one of two indexes: whoever looks for the others never sees them."""
    async with a_ledger("a") as ledger:
        db = ledger.store.transactions.db
        sql = queries("sqlite")
        known = {"queue": "default", "priority": 0, "now": NOW, "namespace": "main", "workflows": "[]"}
        assert "runs USING INDEX runs_ripe (queue=? AND priority=? AND wake_at<?)" in plan_of(
            db, sql["ripest"], window=4, **known
        )
        assert "USING INDEX runs_suspected (queue=?)" in plan_of(db, sql["first_suspect"], **known)
        assert "TEMP B-TREE" not in plan_of(db, sql["first_suspect"], **known)
        plan = plan_of(db, sql["free_runs"], worker_id="w", now=NOW, limit=500)
        assert "USING INDEX runs_open (owner=?)" in plan
        assert "SCAN runs" not in plan
        assert "INDEX runs_open (owner=?)" in plan_of(db, sql["suspects_of"], worker_id="w")


# In one process after another

poisonous = True
go_ahead = Signal("go_ahead", int)
dying: list[Environment] = []
fetched: list[str] = []
gates: list[asyncio.Event] = []
fuses: list[asyncio.Event] = []


@activity
async def fetch(key: str) -> str:
    fetched.append(key)
    if key == "poison" and poisonous:
        dying[0].store.has_crashed = True
        dying[0].store.crashed()
    return key


@activity
async def stall(key: str) -> str:
    await gates[-1].wait()
    return key


@activity
async def tick(number: int) -> None:
    if number % 3 == 0:
        fuses[-1].set()


@activity
async def blow_up() -> None:
    fuses.append(asyncio.Event())
    await fuses[-1].wait()
    dying[0].store.has_crashed = True
    dying[0].store.crashed()


async def tick_on() -> None:
    number = 1
    while True:
        await sleep(0.01)
        await tick(number)
        number += 1


@workflow
async def ticks_and_blows_up(key: str) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(tick_on())
        group.create_task(blow_up())


def die() -> None:
    dying[0].store.has_crashed = True
    dying[0].store.crashed()


@workflow
async def dies_of_its_own_code(how: str) -> None:
    match how:
        case "after a sleep":
            await sleep(0.5)
        case "after a long sleep":
            await sleep(3600)
        case "after a timeout":
            with suppress(TimeoutError):
                await asyncio.wait_for(go_ahead.receive(), 0.5)
        case "in a loop":
            for _ in range(3):
                await sleep(0.5)
    die()


@workflow
async def fetches(key: str) -> str:
    return await fetch(key)


@workflow
async def stalls(key: str) -> str:
    return await stall(key)


@workflow
async def awaits_a_word(key: str) -> int:
    return await go_ahead.receive()


@pytest.fixture(autouse=True)
def afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "poisonous", True)
    for listed in (dying, fetched, gates, fuses):
        listed.clear()


async def die_until_held(env: Environment, run_id: str) -> int:
    """Restart a process that dies of a run until that is in quarantine; answers how often it died."""
    for deaths in range(30):
        await env.settle()
        # Longer than the longest rest of one that was alone.
        for _ in range(620):
            row = None if env.has_died else await env.store.reads.run("main", run_id)
            if env.has_died or (row is not None and row.held == "quarantine"):
                break
            await env.pass_time(0.5)
        if not env.has_died:
            assert row is not None
            assert row.held == "quarantine"
            return deaths
        await env.crash()
    raise AssertionError("it dies again and again")


async def beside_others(path: Path) -> Environment:
    """A process with a run that only waits, and stays in memory; it is about to die of another one."""
    await started(path, waits=["bystander"])
    env = Environment(str(path), park_after=timedelta(days=1))
    dying.append(env)
    await env.open()
    return env


async def started(path: Path, **keys: Sequence[str]) -> dict[str, str]:
    """Runs that a client starts; their run_ids by key."""
    kinds = {"fetches": fetches, "stalls": stalls, "waits": awaits_a_word, "ticks": ticks_and_blows_up}
    run_ids = {}
    async with Environment(str(path), worker=False) as client:
        for kind, names in keys.items():
            for name in names:
                run = await client.start(kinds[kind].options(id=name), name)
                run_ids[name] = run.run_id
    return run_ids


async def test_one_poison_run_among_many_is_held_and_all_others_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "poison.db"
    others = [f"run-{number}" for number in range(30)]
    run_ids = await started(path, fetches=[*others[:15], "poison", *others[15:]])
    env = await beside_others(path)

    deaths = await die_until_held(env, run_ids["poison"])

    # Two until it is a suspect, two with others who are, five as the only one; more when no other run is there yet.
    assert 9 <= deaths <= 12
    suspected = [record for record in caplog.records if getattr(record, "event", "") == "run_suspected"]
    assert [record.getMessage().split(" workers")[0] for record in suspected] == [
        f"run 'poison' is suspected: {number} of 5" for number in range(1, 5)
    ]
    report = (await (await env.app.get("poison")).describe()).held_report or ""
    assert msgspec.json.decode(report)["under_way"] == "in the activity fetch at fetch, after its start"
    for key in others:
        assert await env.result(await env.app.get(key)) == key
    held = await env.app.list(limit=100)
    assert [info.id for info in held if info.held] == ["poison"]
    assert (await (await env.app.get("bystander")).describe()).status == "RUNNING"
    await env.alive(env.app.__aexit__(None, None, None))


async def test_one_that_ticks_on_beside_what_kills_is_held_and_not_one_that_takes_long(tmp_path: Path) -> None:
    """Its history grows with every life; the innocent one's does not."""
    path = tmp_path / "ticks.db"
    run_ids = await started(path, ticks=["poison"], stalls=["long"])
    gates.append(asyncio.Event())
    env = await beside_others(path)

    await die_until_held(env, run_ids["poison"])

    assert [info.id for info in await env.app.list() if info.held] == ["poison"]
    gates[-1].set()
    assert await env.result(await env.app.get("long")) == "long"
    await env.alive(env.app.__aexit__(None, None, None))


@pytest.mark.parametrize("how", ["at once", "after a sleep", "after a long sleep", "after a timeout", "in a loop"])
async def test_workflow_code_that_kills_is_held_wherever_it_was_before(tmp_path: Path, how: str) -> None:
    """It ran ahead of its last event, and dies before that is on disk; in each life it only seems to wait."""
    path = tmp_path / "code.db"
    async with Environment(str(path), worker=False) as client:
        run = await client.start(dies_of_its_own_code.options(id="poison"), how)
    env = await beside_others(path)
    if how == "after a long sleep":
        await env.pass_time(3600)

    assert await die_until_held(env, run.run_id) <= 12

    await env.alive(env.app.__aexit__(None, None, None))


async def test_a_run_in_quarantine_goes_on_when_it_is_mended_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mended.db"
    run_ids = await started(path, fetches=["poison"])
    env = await beside_others(path)
    await die_until_held(env, run_ids["poison"])
    run = await env.app.get("poison")

    monkeypatch.setattr(sys.modules[__name__], "poisonous", False)
    await run.resume()

    assert await env.result(run) == "poison"
    with pytest.raises(RunClosed):
        await run.resume()
    await env.alive(env.app.__aexit__(None, None, None))


async def test_only_a_held_run_can_be_resumed(env: Environment) -> None:
    """Whoever mistakes a waiting run for a stuck one is told so."""
    async with env:
        run = await env.start(awaits_a_word, "a")
        with pytest.raises(RunNotHeld, match=r"is not held \(RUNNING\) and goes on by itself"):
            await run.resume()
        await env.pass_time(20)
        with pytest.raises(RunNotHeld, match="SUSPENDED"):
            await run.resume()


async def test_a_run_held_for_a_mismatch_can_be_resumed_without_a_restart(env: Environment) -> None:
    async with env:
        run = await env.start(awaits_a_word, "a")
        await env.settle()
        hold = HoldRun(run.run_id, env.engine.worker_id, "mismatch", "{}", env.clock.now())
        env.worker._runs.evict(env.worker._live[run.run_id])
        await env.elsewhere([hold])
        await run.signal(go_ahead, 7)
        await env.pass_time(60)
        assert (await run.describe()).held == "mismatch"

        await run.resume()

        assert await env.result(run) == 7


async def lose_twice(path: Path) -> None:
    """Two workers take everything there is, and die before anything is done."""
    for _ in range(2):
        env = Environment(str(path))
        await env.open()
        await env.settle()
        env.bury()
        await asyncio.sleep(0)


def owned_by(path: Path, env: Environment) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        found = db.execute(
            "select workflow_id from runs where owner = ? order by workflow_id", (env.engine.worker_id,)
        ).fetchall()
    return [workflow_id for (workflow_id,) in found]


async def test_suspects_in_long_activities_make_room_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be innocent; nobody waits for them for ever."""
    monkeypatch.setattr(quarantine, "TOGETHER", {})
    path = tmp_path / "long.db"
    await started(path, stalls=["a", "b", "c"])
    gates.append(asyncio.Event())
    await lose_twice(path)
    async with Environment(str(path)) as env:
        await env.settle()
        assert owned_by(path, env) == ["a"]
        await env.pass_time(0.05)
        assert owned_by(path, env) == ["a"]
        await env.pass_time(0.05)
        assert owned_by(path, env) == ["a", "b"]
        await env.pass_time(0.1)
        assert owned_by(path, env) == ["a", "b", "c"]
        gates[-1].set()
        for key in "abc":
            assert await env.result(await env.app.get(key)) == key


async def test_suspects_that_only_wait_are_cleared_at_once(tmp_path: Path) -> None:
    """A thousand of them would else be watched one after the other, and the last be deaf for minutes."""
    path = tmp_path / "waits.db"
    await started(path, waits=[f"run-{number}" for number in range(20)], fetches=["z"])
    await lose_twice(path)
    clock = VirtualClock()
    async with Environment(str(path), clock=clock) as env:
        await env.settle()
        assert len(owned_by(path, env)) == 20
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("select count(*) from runs where losses > 0 and closed_at is null").fetchone() == (0,)


async def test_suspects_do_not_hold_up_other_runs(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    await started(path, stalls=["a", "b"])
    gates.append(asyncio.Event())
    await lose_twice(path)
    await started(path, fetches=["x", "y"])
    async with Environment(str(path)) as env:
        for key in ("x", "y"):
            assert await env.result(await env.app.get(key)) == key
        assert owned_by(path, env) == ["a", "b"]
        gates[-1].set()


async def until_taken(env: Environment, run: Run[Any]) -> None:
    """Let time pass until a worker has the run, and no further: one that outlives its watch is cleared."""
    while (info := await run.describe()).status != "RUNNING":
        until = info.waiting_for[0].until if info.waiting_for else None
        rest_ms = 0 if until is None else round(until.timestamp() * 1000) - env.clock.now()
        await env.pass_time(max(rest_ms, 50) / 1000)


async def test_a_program_with_one_run_may_be_killed_twenty_times_and_then_ends(env: Environment) -> None:
    """Nobody is endangered by it, and who kills is as likely somebody from outside: no command is needed."""
    gates.append(asyncio.Event())
    async with env:
        run = await env.start(stalls.options(id="a"), "a")
        for deaths in range(20):
            await until_taken(env, run)
            await env.crash()
            run = await env.app.get("a", workflow=stalls)
            assert (await run.describe()).losses == deaths + 1
        gates[-1].set()
        assert await env.result(run) == "a"


async def test_a_run_that_rests_says_so_to_whoever_waits_for_it(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever starts the program again after a kill must not take it for one that hangs."""
    gates.append(asyncio.Event())
    why = "its worker died 6 times while it ran; it, or somebody from outside, ended it"
    async with env:
        run = await env.start(stalls.options(id="a"), "a")
        for _ in range(6):
            await until_taken(env, run)
            await env.crash()
            run = await env.app.get("a", workflow=stalls)
        assert f"run 'a' rests: {why}. No other run was in danger, so it is tried again, in 8 s" in caplog.text

        wait = (await run.describe()).waiting_for[0]

        assert (wait.kind, wait.reason) == ("rest", why)
        assert wait.until is not None
        assert wait.until.timestamp() * 1000 == env.clock.now() + 8000
        with pytest.raises(TimeoutError, match=rf"has no result after 0: it rests until [-0-9: ]+ [A-Z]+, {why}"):
            await run.result(timeout=0)
        gates[-1].set()
        assert await env.result(run) == "a"
        rests = [
            record.getMessage() for record in caplog.records if getattr(record, "event", "") == "awaited_run_rests"
        ]
        assert [text.partition(" until ")[0] for text in rests] == ["run 'a' rests"]
