"""Idempotency keys: what is asked under one is done once, and answered alike each time."""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from perdure import (
    BadId,
    BadOption,
    Bulk,
    Deferred,
    Every,
    IdConflict,
    KeyAlreadyMade,
    KeyConflict,
    KeyInProgress,
    Log,
    Perdure,
    Request,
    Run,
    RunClosed,
    ScheduleNotFound,
    Signal,
    Status,
    activity,
    sleep,
    workflow,
)
from perdure.engine.duties import housekeeping
from perdure.engine.keys.commands import digest_of
from perdure.kernel.messages import SignalSent
from perdure.kernel.schedules import as_moment
from perdure.stores.answers import Applied
from perdure.stores.operations import Batch, ForgetKeys, TakeKey
from perdure.testing import Environment, Fault

knock = Signal("knock", int)
verdict = Deferred("verdict", str)
riddle = Request("riddle", int, int)
is_down = [True]


@workflow
async def keyed_counts(knocks: int) -> list[int]:
    return [await knock.receive() for _ in range(knocks)]


@workflow
async def keyed_waits() -> str:
    return await verdict.wait()


@workflow
async def keyed_answers() -> int:
    asked = await riddle.receive()
    asked.answer(asked.value * 2)
    return asked.value


@activity
async def keyed_may_fail() -> str:
    if is_down[0]:
        raise ValueError("down")
    return "up"


@workflow
async def keyed_tries() -> str:
    return await keyed_may_fail()


@pytest.fixture(autouse=True)
def _is_down() -> None:
    is_down[0] = True


async def test_a_start_under_a_key_happens_once(env: Environment) -> None:
    """A caller who did not hear the answer asks again, and gets the run it has started."""
    async with env:
        app = env.app
        runs = [await app.with_key("k-1").start(keyed_counts, 1) for _ in range(3)]
        assert len({run.run_id for run in runs}) == 1
        other = await app.with_key("k-2").start(keyed_counts, 1)
        assert other.run_id != runs[0].run_id
        assert await app.count() == 2
        # The handle itself has no key: two signals are two.
        for run in (runs[0], other):
            await run.signal(knock, 7)
        assert await env.result(runs[2]) == [7]
        assert await env.alive(app.with_key("k-2").run(keyed_counts, 1)) == [7]
        with pytest.raises(KeyConflict, match="k-1.*start.*other arguments") as refused:
            await app.with_key("k-1").start(keyed_counts, 2)
        assert refused.value.kept != refused.value.given
        with pytest.raises(KeyConflict):
            await app.with_key("k-1").start(keyed_counts.options(id="mine"), 1)
        assert await app.count() == 2


async def test_a_start_under_an_id_that_is_taken_is_answered_alike_later(env: Environment) -> None:
    """The answer of the first call counts, whatever has become of the id since."""
    async with env:
        app, wanted = env.app, keyed_counts.options(id="one")
        first = await app.start(wanted, 1)
        same = await app.with_key("k").start(wanted, 1)
        await first.terminate()
        newer = await app.start(wanted.options(on_conflict="replace"), 1)
        again = await app.with_key("k").start(wanted, 1)
        assert (same.run_id, again.run_id) == (first.run_id, first.run_id) != (newer.run_id,) * 2
        with pytest.raises(IdConflict):
            await app.with_key("r").start(wanted.options(on_conflict="reject"), 1)
        await newer.terminate()
        # A command that fails leaves no key.
        replaced = [await app.with_key("r").start(wanted.options(on_conflict="replace"), 1) for _ in range(2)]
        assert replaced[0].run_id == replaced[1].run_id != newer.run_id
        ended = [await app.with_key("t").start(wanted.options(on_conflict="terminate"), 1) for _ in range(2)]
        assert ended[0].run_id == ended[1].run_id
        assert (await ended[0].describe()).status != Status.TERMINATED


async def test_what_is_asked_of_a_run_under_a_key_happens_once(env: Environment) -> None:
    """Signals above all: without an id each would count."""
    async with env:
        run = await env.start(keyed_counts, 2)
        for _ in range(3):
            await run.with_key("s").signal(knock, 1)
        with pytest.raises(KeyConflict):
            await run.with_key("s").signal(knock, 2)
        await run.signal(knock, 2)
        assert await env.result(run) == [1, 2]
        # It has ended, and was signalled under this key nevertheless.
        await run.with_key("s").signal(knock, 1)
        with pytest.raises(RunClosed):
            await run.with_key("late").signal(knock, 1)
        waits = await env.start(keyed_waits)
        for verb in ("pause", "resume"):
            for _ in range(2):
                await getattr(waits.with_key("k"), verb)()
        for _ in range(2):
            await waits.with_key("k").set_attributes(tenant="acme")
        await waits.set_attributes(tenant="other")
        await waits.with_key("k").set_attributes(tenant="acme")
        assert (await waits.describe()).attributes == {"tenant": "other"}
        for _ in range(2):
            await waits.with_key("k").resolve(verdict, "fine")
        assert await env.result(waits) == "fine"
        await waits.with_key("k").resolve(verdict, "fine")
        asked = await env.start(keyed_answers)
        assert [await env.alive(asked.with_key("q").ask(riddle, 21)) for _ in range(2)] == [42, 42]
        for verb in ("cancel", "terminate"):
            ends = await env.start(keyed_waits)
            for _ in range(2):
                await getattr(ends.with_key("end"), verb)("enough")
            await env.settle()
            assert (await ends.describe()).closed_at is not None
            await getattr(ends.with_key("end"), verb)("enough")


async def test_retry_and_fork_under_a_key_give_the_same_run(env: Environment) -> None:
    async with env:
        app = env.app
        failed = await env.start(keyed_tries.options(id="tries"))
        await env.pass_time(60)
        is_down[0] = False
        retried = [await failed.with_key("k").retry() for _ in range(2)]
        assert retried[0].run_id == retried[1].run_id != failed.run_id
        assert await env.result(retried[1]) == "up"
        forks = [await retried[0].with_key("k").fork(1, id="other") for _ in range(2)]
        assert forks[0].run_id == forks[1].run_id
        assert forks[0].id == "other"
        own = [await retried[0].with_key("own").fork(1) for _ in range(2)]
        assert own[0].run_id == own[1].run_id
        assert await app.count() == 4


async def test_start_many_under_a_key_starts_each_once(env: Environment) -> None:
    async with env:
        app = env.app
        calls = [keyed_counts.call(n) for n in (1, 2, 1)]
        first = await app.with_key("k").start_many(*calls[:2])
        again = await app.with_key("k").start_many(*(keyed_counts.call(n) for n in (1, 2, 1)))
        ids = [[run.run_id for run in runs if isinstance(run, Run)] for runs in (first, again)]
        assert ids[0] == ids[1][:2]
        assert len(set(ids[1])) == 3 == await app.count()
        (other,) = await app.with_key("k").start_many(keyed_counts.call(5))
        assert isinstance(other, KeyConflict)


async def test_schedules_and_namespaces_under_a_key(env: Environment) -> None:
    async with env:
        app, hourly = env.app, Every(timedelta(hours=1))
        for _ in range(2):
            await app.with_key("k").schedules.create("nightly", keyed_waits.call(), hourly)
        with pytest.raises(KeyConflict):
            await app.with_key("k").schedules.create("nightly", keyed_waits.call(), Every(timedelta(hours=2)))
        triggered = [await app.with_key("k").schedules.trigger("nightly") for _ in range(2)]
        assert triggered[0].run_id == triggered[1].run_id
        assert await app.count() == 1
        await app.with_key("k").schedules.pause("nightly", "later")
        await app.schedules.resume("nightly")
        await app.with_key("k").schedules.pause("nightly", "later")
        assert not (await app.schedules.get("nightly")).paused
        await app.with_key("k").schedules.update("nightly", interval=timedelta(hours=3))
        await app.with_key("k").schedules.put("nightly", keyed_waits.call(), hourly)
        await env.pass_time(timedelta(hours=5))
        now = env.app._clock.now()
        span = as_moment(now - 4 * 3_600_000), as_moment(now - 1)
        filled = [await app.with_key("k").schedules.backfill("nightly", *span) for _ in range(2)]
        assert filled[0] == filled[1]
        assert [await app.with_key("k").schedules.delete("nightly") for _ in range(2)] == [True, True]
        assert await app.with_key("none").schedules.delete("nightly") is False
        with pytest.raises(ScheduleNotFound):
            await app.with_key("x").schedules.trigger("nightly")
        made = [await app.with_key("k").namespaces.create("blue") for _ in range(2)]
        assert made[0] == made[1]
        for _ in range(2):
            await app.with_key("k").namespaces.delete("blue")
        assert [each.name for each in await app.namespaces.list()] == ["main"]


async def test_sinks_under_a_key(env: Environment) -> None:
    """Pausing, resuming and changing one are commands of their own, which may have the same key."""
    async with env:
        await env.app.outbox.add("crm", Log(), events=("run.*",))
        keyed = env.app.with_key("monday").outbox
        await keyed.pause("crm", "they move house")
        await keyed.update("crm", concurrency=2)
        await keyed.resume("crm")
        await env.app.outbox.update("crm", concurrency=3)
        await keyed.pause("crm", "they move house")
        await keyed.update("crm", concurrency=2)
        found = await env.app.outbox.get("crm")
        assert (found.state, found.concurrency) == ("active", 3)
        with pytest.raises(KeyConflict, match=r"outbox\.pause"):
            await keyed.pause("crm", "for another reason")


async def test_an_access_key_is_not_shown_again(env: Environment) -> None:
    """The second answer had an empty key, with which a program was refused much later and far away."""
    async with env:
        keys = env.app.with_key("k").keys
        made = await keys.create("ci", role="reader")
        with pytest.raises(KeyAlreadyMade, match=f"'{made.key_id}' was made under the idempotency key 'k'.*revoke it"):
            await keys.create("ci", role="reader")
        with pytest.raises(KeyConflict):
            await keys.create("cd", role="reader")
        assert [each.label for each in await env.app.keys.list()] == ["ci"]


async def test_the_bulk_commands_under_a_key(env: Environment) -> None:
    async with env:
        app = env.app
        runs = [await env.start(keyed_counts, 2) for _ in range(4)]
        sent = [await app.with_key("k").broadcast(knock, 1, where="true") for _ in range(2)]
        assert sent[0] == sent[1]
        assert sent[0].done == 4
        with pytest.raises(KeyConflict):
            await app.with_key("k").broadcast(knock, 2, where="true")
        await app.broadcast(knock, 2, where="true")
        assert [await env.result(run) for run in runs] == [[1, 2]] * 4
        more = [await env.start(keyed_waits) for _ in range(3)]
        first = await app.with_key("c").cancel_all(where="created_at > ago('1h')", reason="enough")
        await env.settle()
        late = await env.start(keyed_waits)
        again = await app.with_key("c").cancel_all(where="created_at > ago('1h')", reason="enough")
        assert first == again
        assert [(await run.describe()).status for run in (*more, late)] == [*(["CANCELLED"] * 3), "RUNNING"]


@workflow
async def keyed_tidies_up() -> int:
    """How often it was asked to stop."""
    asked = 0
    for _ in range(2):
        try:
            await sleep(3600)
        except asyncio.CancelledError:
            asked += 1
    return asked


async def test_a_bulk_command_that_was_cut_off_asks_no_run_twice(env: Environment) -> None:
    """What was done is not done twice: the runs that have the request are left alone."""
    async with env:
        runs = [await env.start(keyed_tidies_up) for _ in range(3)]

        def dies(_: Bulk) -> None:
            raise ConnectionError

        stop = partial(env.app.with_key("c").cancel_all, where="workflow = 'keyed_tidies_up'", reason="enough")
        with pytest.raises(ConnectionError):
            await stop(progress=dies)
        await env.settle()
        again = await stop()
        assert (again.matched, again.done, again.skipped) == (3, 0, 3)
        await env.settle()
        assert [await run.unread() for run in runs] == [[], [], []]
        assert [await env.result(run) for run in runs] == [1, 1, 1]


@pytest.mark.parametrize("bad", ["", "  ", "x" * 201, "new\nline"])
async def test_a_bad_key_is_refused_before_anything_is_asked(bad: str) -> None:
    async with Perdure("sqlite://", worker=False) as app:
        run = await app.start(keyed_waits)
        with pytest.raises(BadId, match="idempotency key"):
            app.with_key(bad)
        with pytest.raises(BadId, match="idempotency key"):
            run.with_key(bad)
        for wrong in ({"keep": 0}, {"stale_after": -1}, {"keep": "a day"}):
            with pytest.raises(BadOption):
                app.with_key("k", **wrong)
        with pytest.raises(BadOption, match="connection"):
            await run.with_key("k").signal("x", 1, connection=object())
        assert await run.unread() == []


async def test_a_refusal_is_no_first_answer_once_the_key_is_over(env: Environment) -> None:
    """While the key is kept, the signal that the run got before it ended is told again; after that it is refused."""
    async with env:
        run = await env.start(keyed_counts, 1)
        await run.with_key("k", keep=10).signal(knock, 1)
        assert await env.result(run) == [1]
        await run.with_key("k", keep=10).signal(knock, 1)
        await env.pass_time(11)
        with pytest.raises(RunClosed):
            await run.with_key("k", keep=10).signal(knock, 1)


async def test_a_key_is_kept_for_a_while(env: Environment) -> None:
    """After that it is as good as new, and its row is gone before long."""
    async with env:
        first = await env.app.with_key("k", keep=10).start(keyed_waits)
        second = await env.app.with_key("day").start(keyed_waits)
        await env.pass_time(11)
        again = await env.app.with_key("k", keep=10).start(keyed_waits)
        assert again.run_id != first.run_id
        await env.pass_time(timedelta(hours=25))
        keys = env.engine._store.reads.keys
        assert await keys.oldest() is None
        assert (await env.app.with_key("day").start(keyed_waits)).run_id != second.run_id


async def test_a_long_command_is_kept_for_as_long_as_its_caller_says(env: Environment) -> None:
    """After that the key is as good as new, as that of a short one."""
    async with env:
        await env.start(keyed_waits)
        asked = env.app.with_key("k", keep=10)
        assert (await asked.broadcast(knock, 1, where="true")).matched == 1
        await env.start(keyed_waits)
        await env.pass_time(5)
        assert (await asked.broadcast(knock, 1, where="true")).matched == 1
        await env.pass_time(6)
        assert (await asked.broadcast(knock, 1, where="true")).matched == 2


async def test_a_long_command_is_kept_from_its_end_on(env: Environment) -> None:
    """It may take as long as its answer is kept, and who asks right after it must still be told."""

    def takes_its_time(batch: Batch) -> None:
        if any(isinstance(each, TakeKey) for group in batch.groups for each in group):
            env.store.before_commit = lambda _: None
            env.clock.advance(8000)

    async with env:
        await env.start(keyed_waits)
        asked = env.app.with_key("k", keep=10)
        env.store.before_commit = takes_its_time
        assert (await asked.broadcast(knock, 1, where="true")).matched == 1
        await env.start(keyed_waits)
        await env.pass_time(5)
        assert (await asked.broadcast(knock, 1, where="true")).matched == 1
        await env.pass_time(6)
        assert (await asked.broadcast(knock, 1, where="true")).matched == 2


async def test_keys_that_are_over_are_deleted_however_many_they_are(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bites, so that no transaction is long; the next look is ten minutes away."""
    monkeypatch.setattr(housekeeping, "BITE", 2)
    async with env:
        for number in range(5):
            await env.app.with_key(f"k-{number}", keep=10).start(keyed_waits)
        await env.pass_time(601)
        assert await env.store.reads.keys.oldest() is None


async def test_keys_that_could_not_be_deleted_are_deleted_soon(env: Environment) -> None:
    """It is looked for them every ten minutes only, and a refusal is no reason to wait so long again."""

    def refuses_once(batch: Batch) -> None:
        if any(isinstance(each, ForgetKeys) for group in batch.groups for each in group):
            env.store.before_commit = lambda _: None
            env.store.fail_at(1, Fault.REFUSED)

    async with env:
        env.store.before_commit = refuses_once
        await env.app.with_key("k", keep=10).start(keyed_waits)
        await env.pass_time(601)
        assert await env.store.reads.keys.oldest() is not None
        await env.pass_time(10)
        assert await env.store.reads.keys.oldest() is None


async def test_two_callers_with_one_key_at_the_same_moment(env: Environment) -> None:
    """In one batch or in two: one effect, and both get its answer."""
    async with env:
        app = env.app
        runs = await asyncio.gather(*(app.with_key("k").start(keyed_counts, 3) for _ in range(20)))
        assert len({run.run_id for run in runs}) == 1
        await asyncio.gather(*(runs[0].with_key("s").signal(knock, 1) for _ in range(20)))
        assert len(await runs[0].unread()) <= 1
        mixed: list[Any] = await asyncio.gather(
            *(app.with_key("m").start(keyed_counts, n % 2) for n in range(6)), return_exceptions=True
        )
        started = {run.run_id for run in mixed if isinstance(run, Run)}
        assert len(started) == 1
        assert sum(isinstance(each, KeyConflict) for each in mixed) == 3
        assert await app.count() == 2


async def test_a_long_command_is_under_way_until_it_ends_or_its_caller_is_taken_for_dead(env: Environment) -> None:
    """Its caller was killed: after a while exactly one of those who ask goes on, and nothing is done twice."""
    async with env:
        app = env.app
        runs = [await env.start(keyed_counts, 2) for _ in range(3)]
        await _die_in_the_middle(env)
        with pytest.raises(KeyInProgress, match="broadcast"):
            await app.with_key("k").broadcast(knock, 1, where="true")
        await env.pass_time(601)
        told: list[Any] = await asyncio.gather(
            *(app.with_key("k").broadcast(knock, 1, where="true") for _ in range(3)), return_exceptions=True
        )
        assert sum(isinstance(each, KeyInProgress) for each in told) == 2
        assert (await app.with_key("k").broadcast(knock, 1, where="true")).matched == 3
        await app.broadcast(knock, 2, where="true")
        assert [await env.result(run) for run in runs] == [[1, 2]] * 3


async def _die_in_the_middle(env: Environment) -> None:
    """A caller of this broadcast that took the key, sent one of the signals, and was never heard of again."""
    (newest, *_) = await env.app.list(limit=1)
    await (await env.app.get(run_id=newest.run_id)).signal(knock, 1, id="key:k")
    digest = digest_of((SignalSent("knock", msgspec.Raw(b"1")), "true", None))
    now = env.app._clock.now()
    key = TakeKey("dead", "main", "broadcast", "k", digest, None, now, now + 600_000, now + 86_400_000)
    assert isinstance(await env.engine.committer.apply(key), Applied)


async def test_a_long_command_that_fails_leaves_no_key(env: Environment) -> None:
    async with env:
        with pytest.raises(ScheduleNotFound):
            await env.app.with_key("k").schedules.backfill("none", *_yesterday(env))
        await env.settle()
        await env.app.schedules.create("none", keyed_waits.call(), Every(timedelta(hours=1)))
        assert (await env.app.with_key("k").schedules.backfill("none", *_yesterday(env))).times > 0


def _yesterday(env: Environment) -> Any:
    now = env.app._clock.now()
    return as_moment(now - 86_400_000), as_moment(now - 80_000_000)


def test_code_that_does_not_await_has_keys_too() -> None:
    with Perdure("sqlite://", worker=False).sync() as app:
        runs = [app.with_key("k").start(keyed_counts, 1) for _ in range(2)]
        assert runs[0] == runs[1]
        for _ in range(2):
            runs[0].with_key("s").signal(knock, 1)
        assert len(runs[0].unread()) == 1
