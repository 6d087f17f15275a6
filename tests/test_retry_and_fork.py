"""Retry and fork: new runs that have the past of others, which stay as they are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    BadArguments,
    BadForkPoint,
    BadOption,
    BadValue,
    Deferred,
    IdConflict,
    Perdure,
    Request,
    Retry,
    Run,
    RunCancelled,
    RunClosed,
    RunEvent,
    RunFailed,
    RunOpen,
    RunTimedOut,
    Signal,
    Status,
    activity,
    at,
    continue_as_new,
    info,
    now,
    patched,
    rng,
    set_attributes,
    sleep,
    undo,
    workflow,
)
from perdure.engine.steering import forking
from perdure.stores.answers import Committed
from perdure.stores.operations import Batch, ForkRun, InsertRichRun, Operation
from perdure.testing import Environment, Fault

go = Signal("go", int)
approval = Deferred("approval", str)
price = Request("price", str, int)


class Bank:
    """What activities did, and whether they fail."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_broken = True


bank = Bank()


@pytest.fixture(autouse=True)
def _new_bank() -> None:
    bank.__init__()  # type: ignore[misc]  # as new


@activity(name="fork_reserve")
async def reserve(order: str) -> str:
    bank.calls.append(f"reserve {order}")
    return f"hold-{order}"


@activity(name="fork_release")
async def release(hold: str) -> None:
    bank.calls.append(f"release {hold}")


@activity(name="fork_charge", retry=Retry(max_attempts=2, initial_interval=1))
async def charge(cents: int) -> str:
    bank.calls.append(f"charge {cents}")
    if bank.is_broken:
        raise ConnectionError("no bank")
    return f"receipt {cents}"


@workflow(name="fork_checkout")
async def checkout(order: str, cents: int = 5) -> str:
    hold = await reserve(order)
    receipt = await charge(cents)
    return f"{hold} {receipt}"


@workflow(name="fork_takes_signals")
async def takes_signals(count: int) -> list[int]:
    first = await go.receive()
    await charge(first)
    return [first, *[await go.receive() for _ in range(count - 1)]]


@workflow(name="fork_many")
async def many(count: int) -> str:
    for number in range(count):
        await reserve(str(number))
    return await charge(count)


@workflow(name="fork_undoes")
async def undoes(order: str) -> str:
    hold = await reserve(order)
    undo(release, hold)
    first = rng().random()
    at(str(first))
    await go.receive()
    return await charge(1)


@asynccontextmanager
async def failed(env: Environment, *args: Any, workflow: Any = checkout, **options: Any) -> AsyncIterator[Run[Any]]:
    """A run that failed because the bank is down, which it is not any more."""
    async with env:
        run = await env.start(workflow.options(id="o-17", **options), *args)
        with pytest.raises(RunFailed):
            await env.result(run)
        bank.is_broken = False
        bank.calls.clear()
        yield run


async def history(run: Run[Any]) -> list[RunEvent]:
    return [event async for event in run.events()]


def facts(events: list[RunEvent]) -> list[tuple[str, str]]:
    return [(event.kind, event.place) for event in events]


# Retry


async def test_a_retry_runs_what_failed_again_and_nothing_else(env: Environment) -> None:
    """The promise: recorded results stay, and the old run is as it was."""
    async with failed(env, "o-17", 7, attributes={"tenant": "acme"}, entity_id="e", priority=3) as run:
        before, was = await history(run), await run.describe()

        again = await run.retry(reason="bank is back")

        assert await env.result(again) == "hold-o-17 receipt 7"
        assert bank.calls == ["charge 7"]
        assert await history(run) == before
        now_, told = await run.describe(), await again.describe()
        assert (now_.forked_to, was.forked_to) == (again.run_id, None)
        assert (told.forked_from, told.forked_at, told.fork_reason) == (run.run_id, 2, "bank is back")
        assert (told.attributes, told.entity_id, told.priority) == ({"tenant": "acme"}, "e", 3)
        assert (await history(again))[:2] == before[:2]
        assert (await env.app.get("o-17")).run_id == again.run_id
        with pytest.raises(RunFailed):
            await run.result()


async def test_a_failed_call_has_fresh_attempts(env: Environment) -> None:
    """Attempts of the old run do not count in the new one."""
    async with failed(env, "o-17", 7) as run:
        bank.is_broken = True
        again = await run.retry()

        with pytest.raises(RunFailed):
            await env.result(again)

        assert bank.calls == ["charge 7", "charge 7"]
        bank.is_broken = False
        assert await env.result(await again.retry()) == "hold-o-17 receipt 7"


@pytest.mark.parametrize("count", [3, 4])
async def test_what_lies_behind_the_first_page_of_a_history_is_kept(
    env: Environment, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the calls of a long run would be made a second time; its end may stand on either side of a border."""
    monkeypatch.setattr(forking, "PAGE", 3)
    async with failed(env, count, workflow=many) as run:
        before = await history(run)
        other = await run.fork(at=count, id="other")
        again = await run.retry()

        assert await env.result(again) == f"receipt {count}"
        assert await env.result(other) == f"receipt {count}"
        assert sorted(bank.calls) == [f"charge {count}", f"charge {count}", f"reserve {count - 1}"]
        assert (await history(again))[: count + 1] == before[: count + 1]


async def test_a_run_whose_undos_ran_begins_from_the_beginning(env: Environment) -> None:
    """What it had done is undone: everything runs again, and what was sent is there again."""
    async with env:
        run = await env.start(undoes.options(id="o-17"), "o-17")
        await run.signal(go, 1)
        with pytest.raises(RunFailed):
            await env.result(run)
        first = (await run.describe()).step
        bank.is_broken = False
        bank.calls.clear()

        again = await run.retry()

        assert await env.result(again) == "receipt 1"
        assert bank.calls == ["reserve o-17", "charge 1"]
        assert (await again.describe()).forked_at == 1
        assert (await again.describe()).step != first, "its random numbers are others: ids made of them were used"


async def test_signals_that_were_taken_after_the_point_or_never_are_unread_in_order(env: Environment) -> None:
    """Nothing sent is lost, and nothing counts twice."""
    async with env:
        run = await env.start(takes_signals.options(id="o-17"), 3)
        await run.signal(go, 1, id="one")
        await run.signal(go, 2, id="two")
        with pytest.raises(RunFailed):
            await env.result(run)
        bank.is_broken = False

        again = await run.retry()
        await again.signal(go, 9, id="one")
        await again.signal(go, 9, id="two")
        await again.signal(go, 3, id="three")

        assert await env.result(again) == [1, 2, 3]
        assert [message.payload for message in await run.unread()] == [2]


async def test_what_a_fork_has_not_taken_yet_is_unread_in_it(env: Environment) -> None:
    """Signals that the run took after the point come again, with their ids."""
    async with env:
        bank.is_broken = False
        run = await env.start(takes_signals.options(id="o-17"), 3)
        for number in (1, 2, 3):
            await run.signal(go, number, id=str(number))
        assert await env.result(run) == [1, 2, 3]

        other = await run.fork(at=2, id="other")

        assert [message.payload for message in await other.unread()] in ([2, 3], [3], [])
        assert await env.result(other) == [1, 2, 3]
        assert facts(await history(other)) == facts(await history(run))
        ids = [event.body["message_id"] for event in await history(other) if event.kind == "SignalReceived"]
        assert ids == ["signal:1", "signal:2", "signal:3"]


@workflow(name="fork_sleeps")
async def sleeps() -> float:
    began = now()
    await reserve("x")
    await sleep(timedelta(hours=1))
    return (now() - began).total_seconds()


async def test_timers_keep_their_times(env: Environment) -> None:
    """A timer is as long as it was from the begin of the old run on, not as long again."""
    async with env:
        run = await env.start(sleeps.options(id="o-17"))
        await env.pass_time(timedelta(minutes=40))
        await run.terminate()

        again = await run.retry()
        await env.pass_time(timedelta(minutes=19))
        assert (await again.describe()).status == Status.SUSPENDED
        await env.pass_time(timedelta(minutes=2))

        assert await env.result(again) == 3600.0
        assert (await history(again))[0] == (await history(run))[0]


async def test_the_timeout_begins_anew(env: Environment) -> None:
    """A run that took too long gets as much time again."""
    async with env:
        run = await env.start(takes_signals.options(id="o-17", timeout=60), 1)
        await env.pass_time(61)
        with pytest.raises(RunTimedOut):
            await run.result()
        bank.is_broken = False

        again = await run.retry()
        await env.pass_time(50)
        await again.signal(go, 1)

        assert await env.result(again) == [1]


@workflow(name="fork_undoes_late")
async def undoes_late(cents: int) -> str:
    undo(release, await reserve("x"))
    return f"got {await go.receive()} for {cents}"


async def test_a_fork_after_the_timeout_has_a_time_of_its_own(env: Environment) -> None:
    """That the old run's time was over is the last thing it heard; the new one waits again where that did."""
    async with env:
        run = await env.start(undoes_late.options(id="o-17", timeout=60), 1)
        await env.pass_time(61)
        with pytest.raises(RunTimedOut):
            await run.result()
        kinds = [kind for kind, _ in facts(await history(run))]

        other = await run.fork(at=kinds.index("TimeoutReached") + 1, id="other")
        await env.settle()
        await other.signal(go, 5)

        assert await env.result(other) == "got 5 for 1"


@workflow(name="fork_cleans_up")
async def cleans_up(order: str) -> str:
    hold = await reserve(order)
    try:
        await go.receive()
    except asyncio.CancelledError:
        await release(hold)
        raise
    return hold


async def test_a_cancelled_run_goes_on_where_it_was_told_to_stop(env: Environment) -> None:
    """Its clean-up is no part of what it is for."""
    async with env:
        run = await env.start(cleans_up.options(id="o-17"), "o-17")
        await env.settle()
        await run.cancel()
        await env.settle()
        assert (await run.describe()).status == Status.CANCELLED

        again = await run.retry()
        await again.signal(go, 1)

        assert await env.result(again) == "hold-o-17"
        assert bank.calls == ["reserve o-17", "release hold-o-17"]
        assert (await again.describe()).cancel_requested_at is None


async def test_two_retries_at_once_make_one_run(env: Environment) -> None:
    """Both callers get it, whoever was first."""
    async with failed(env, "o-17", 7) as run:
        first, second = await asyncio.gather(run.retry(reason="one"), run.retry(reason="two"))

        assert first.run_id == second.run_id
        assert await env.result(second) == "hold-o-17 receipt 7"
        assert bank.calls == ["charge 7"]
        assert len(await env.app.list(id="o-17")) == 2


async def test_a_fork_that_has_the_id_is_not_taken_for_a_retry(env: Environment) -> None:
    """It may have left out what the caller of the retry counts on."""
    async with failed(env, "o-17", 7) as run:
        forked = await run.fork(at=1)

        with pytest.raises(IdConflict, match="a retry of run.*that run is newer"):
            await run.retry()

        assert (await run.describe()).forked_to == forked.run_id
        assert await env.result(forked) == "hold-o-17 receipt 7"


async def test_a_retry_that_another_process_makes_first_is_the_answer(env: Environment) -> None:
    """Between the look and the write another process has retried: its run is the only one."""
    async with failed(env, "o-17", 7) as run:
        others: list[str] = []

        async def overtake(batch: Batch) -> None:
            group = next((each for each in batch.groups if any(isinstance(op, ForkRun) for op in each)), None)
            if group is not None and not others:
                fork = next(op for op in group if isinstance(op, ForkRun))
                others.append(f"{fork.run_id[:-4]}0000")
                assert isinstance(await env.elsewhere(_under(others[0], group)), Committed)

        env.store.before_commit = overtake
        again = await run.retry()

        assert [again.run_id] == others
        assert await env.result(again) == "hold-o-17 receipt 7"
        assert (await run.describe()).forked_to == again.run_id


def _under(run_id: str, group: Any) -> list[Operation]:
    """The same retry with another run_id."""
    return [each._replace(run_id=run_id) if isinstance(each, ForkRun | InsertRichRun) else each for each in group]


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_COMMIT])
async def test_a_retry_whose_answer_is_lost_is_there_once(env: Environment, fault: Fault) -> None:
    """It is written again under the new epoch, and finds itself if it was written."""
    async with failed(env, "o-17", 7) as run:
        env.store.fail_at(env.store.commits + 1, fault)

        again = await env.alive(run.retry())

        assert await env.result(again) == "hold-o-17 receipt 7"
        assert len(await env.app.list(id="o-17")) == 2
        assert facts(await history(again))[1:] == [
            ("ActivityCompleted", "fork_reserve"),
            ("ActivityCompleted", "fork_charge"),
            ("RunCompleted", ""),
        ]


async def test_only_what_has_ended_badly_can_be_retried(env: Environment) -> None:
    """Each refusal says what to do instead."""
    async with failed(env, "o-17", 7) as run:
        again = await run.retry()
        await env.result(again)
        assert (await run.retry()).run_id == again.run_id, "it is retried already"

        with pytest.raises(RunClosed, match="fork"):
            await again.retry()
        await env.start(checkout.options(id="o-17", on_conflict="replace"), "o-18")
        with pytest.raises(IdConflict, match="newer"):
            await run.retry()
        with pytest.raises(IdConflict, match="newer"):
            await run.fork(at=2)
        waiting = await env.start(takes_signals, 1)
        with pytest.raises(RunOpen, match="end it first"):
            await waiting.retry()
        with pytest.raises(BadOption):
            await run.retry(reason=5)  # type: ignore[arg-type]


# Fork


async def test_a_result_can_be_given_by_hand(env: Environment) -> None:
    """Somebody paid by phone: the run goes on as if the activity had returned that, and history says who did."""
    async with failed(env, "o-17", 7) as run:
        other = await run.fork(at="fork_charge", results={"fork_charge": "by hand"}, reason="paid by phone")

        assert await env.result(other) == "hold-o-17 by hand"
        assert bank.calls == []
        given = (await history(other))[2]
        assert (given.kind, given.place, given.body) == ("ResultGiven", "fork_charge", {"value": "by hand"})
        assert other.id == "o-17"
        assert (await other.describe()).fork_reason == "paid by phone"


async def test_a_result_of_another_type_is_refused_where_the_activity_is_known(env: Environment) -> None:
    """Else the fork would be held as a mismatch, for what its caller could have been told."""
    async with failed(env, "o-17", 7) as run:
        for place in ("fork_charge", "fork_charge#2", "fork_charge(k)", "a_branch/fork_charge"):
            with pytest.raises(BadValue, match=r"the result of .* \(annotated as str\)"):
                await run.fork(at=2, id="wrong", results={place: 5})
        assert len(await env.app.list(id="wrong")) == 0


async def test_arguments_can_be_replaced_by_name(env: Environment) -> None:
    """The others stay; what does not fit the signature is refused before anything is written."""
    async with failed(env, "o-17", 7) as run:
        other = await run.fork(at=1, id="trial", input={"cents": 100})

        assert await env.result(other) == "hold-o-17 receipt 100"
        for wrong in ({"cent": 1}, {"cents": "many"}):
            with pytest.raises((BadArguments, ValueError)):
                await run.fork(at=1, id="wrong", input=wrong)
        with pytest.raises(BadOption):
            await run.fork(at=1, id="wrong", input=[1])  # type: ignore[arg-type]
        assert len(await env.app.list(id="wrong")) == 0


async def test_an_open_run_can_be_forked_under_another_id_and_goes_on(env: Environment) -> None:
    """The original has all its messages, and the fork has them as well."""
    async with env:
        bank.is_broken = False
        run = await env.start(takes_signals.options(id="o-17"), 2)
        await run.signal(go, 1)
        await env.settle()

        with pytest.raises(RunOpen, match="another id"):
            await run.fork(at=2)
        other = await run.fork(at=2, id="other")
        await run.signal(go, 2)
        await other.signal(go, 3)

        assert await env.result(run) == [1, 2]
        assert await env.result(other) == [1, 3]
        assert (await run.describe()).forked_to == other.run_id


async def test_a_point_that_is_not_there_is_refused(env: Environment) -> None:
    """With the places there are."""
    async with failed(env, "o-17", 7) as run:
        for at_ in (0, -1, 4, 99, "charg"):
            with pytest.raises(BadForkPoint) as error:
                await run.fork(at=at_)
            assert error.value.places == ("fork_reserve", "fork_charge")
        for wrong in ("", True, 1.5, None):
            with pytest.raises(BadOption):
                await run.fork(at=wrong)  # type: ignore[arg-type]
        with pytest.raises(BadForkPoint, match="has its result") as error:
            await run.fork(at=2, results={"fork_reserve": "x"})
        assert error.value.places == ("fork_charge",)
        with pytest.raises(BadForkPoint, match="no code can wait"):
            await run.fork(at=1, results={"fork_charge": "x"})
        assert len(await env.app.list(id="o-17")) == 1


async def test_a_fork_that_does_not_fit_its_code_is_held(env: Environment) -> None:
    """As any other run would be; a history is never made to fit."""
    async with failed(env, "o-17", 7) as run:
        other = await run.fork(at=3, id="other", results={"fork_other": 1})
        await env.settle()

        assert (await other.describe()).held == "mismatch"
        assert "perdure fork other --at 3 --id NEW --result PLACE=JSON" in str((await other.describe()).held_report)


@workflow(name="fork_waits_for_much")
async def waits_for_much(order: str) -> list[object]:
    found: list[object] = [await go.receive(), await approval.wait()]
    asked = await price.receive()
    asked.answer(len(asked.value))
    await sleep(3600)
    return [*found, asked.value, await reserve(order)]


async def test_every_kind_of_call_can_be_given_its_result(env: Environment) -> None:
    """A signal, a deferred, a timer; only a request cannot, for nobody asked."""
    async with env:
        run = await env.start(waits_for_much.options(id="o-17"), "o-17")
        await run.signal(go, 1)
        await run.resolve(approval, "yes")
        asking = asyncio.ensure_future(run.ask(price, "abc"))
        assert await env.result(run) == [1, "yes", "abc", "hold-o-17"]
        assert await asking == 3

        signalled = await run.fork(at="signal(go)", id="a", results={"signal(go)": 7})
        resolved = await run.fork(at="deferred(approval)", id="b", results={"deferred(approval)": "no"})
        woken = await run.fork(at="timer()", id="c", results={"timer()": None})
        asked = await run.fork(at="request(price)", id="d", results={"request(price)": "x"})
        await env.settle()

        assert (await signalled.describe()).step is None
        assert await env.result(woken) == [1, "yes", "abc", "hold-o-17"]
        assert await env.result(resolved) == [1, "no", "abc", "hold-o-17"]
        assert (await asked.describe()).held == "mismatch"
        assert await env.result(signalled) == [7, "yes", "abc", "hold-o-17"]


async def test_a_token_reaches_the_run_that_goes_on_under_the_id(env: Environment) -> None:
    """A link was sent before the run failed, or was stopped."""
    async with env:
        run = await env.start(asks_by_token.options(id="o-17"))
        await env.settle()
        token = (await run.describe()).step
        assert token is not None
        await run.terminate()
        with pytest.raises(RunClosed):
            await env.app.resolve(token, "nobody")
        second = await run.retry()
        await second.terminate()
        again = await second.fork(at=1)

        await env.app.resolve(token, "yes")

        assert await env.result(again) == "yes"


@workflow(name="fork_asks_by_token")
async def asks_by_token() -> str:
    at(approval.token())
    return await approval.wait()


# Children


@activity(name="fork_pack", retry=Retry(max_attempts=1))
async def pack(shelf: int) -> int:
    bank.calls.append(f"pack {shelf}")
    if bank.is_broken and shelf == 2:
        raise ConnectionError(f"no shelf {shelf}")
    return shelf


@workflow(name="fork_pick")
async def pick(shelf: int) -> int:
    return await pack(shelf)


@workflow(name="fork_picks")
async def picks(ids: list[str | None]) -> list[int]:
    """Its children in tasks of their own, under ids of their own or not."""
    calls = [pick.options(id=id) if id else pick for id in ids]
    found = await asyncio.gather(*(call(shelf) for shelf, call in enumerate(calls, start=1)), return_exceptions=True)
    if bad := [each for each in found if isinstance(each, BaseException)]:
        raise RuntimeError(f"{len(bad)} failed")
    return [each for each in found if isinstance(each, int)]


@pytest.mark.parametrize("ids", [[None] * 3, ["a", "b", "c"]])
async def test_children_that_ended_stay_ended_and_others_start_anew_under_their_ids(
    env: Environment, ids: list[str | None]
) -> None:
    """Of many the one that failed runs again, and has its id again."""
    async with failed(env, ids, workflow=picks) as run:
        old = {child.id: child.run_id for child in await run.children()}

        again = await run.retry()

        assert await env.result(again) == [1, 2, 3]
        assert bank.calls == ["pack 2"]
        (new,) = await again.children()
        assert new.id in old
        assert new.run_id != old[new.id]
        assert (await env.app.get(new.id)).run_id == new.run_id


@workflow(name="fork_slow_child")
async def slow_child() -> int:
    try:
        return await go.receive()
    except asyncio.CancelledError:
        await sleep(100)
        bank.calls.append("cleaned up")
        raise


@workflow(name="fork_waits_for_child")
async def waits_for_child(id: str | None) -> int:
    return await (slow_child.options(id=id) if id else slow_child)()


@pytest.mark.parametrize("id", [None, "kid"])
async def test_a_child_that_still_cleans_up_is_waited_for_and_started_anew(env: Environment, id: str | None) -> None:
    """It was told to stop with its parent; two of one id at once would do its work twice."""
    async with env:
        run = await env.start(waits_for_child.options(id="o-17"), id)
        await env.settle()
        (old,) = await run.children()
        await run.cancel(force=True)
        await env.settle()
        assert (await (await env.app.get(run_id=old.run_id)).describe()).closed_at is None

        again = await run.retry()
        await env.pass_time(50)
        assert list(await again.children()) == []
        await env.pass_time(60)

        (new,) = await again.children()
        assert (new.id, bank.calls) == (old.id, ["cleaned up"])
        await (await env.app.get(run_id=new.run_id)).signal(go, 5)
        assert await env.result(again) == 5


async def test_a_fork_of_an_open_run_leaves_the_children_of_that_alone(env: Environment) -> None:
    """They go on for the run that started them."""
    async with env:
        run = await env.start(waits_for_child.options(id="o-17"), None)
        await env.settle()
        (old,) = await run.children()

        other = await run.fork(at=1, id="other")
        await env.settle()

        (new,) = await other.children()
        assert new.id != old.id
        for kid, number in ((old, 1), (new, 2)):
            await (await env.app.get(run_id=kid.run_id)).signal(go, number)
        assert await env.result(run) == 1
        assert await env.result(other) == 2


# What else there is of a run


@workflow(name="fork_large")
async def large(text: str) -> str:
    told = await reserve(text)
    sent = await go.receive()
    return f"{told[:4]} {sent} {await charge(sent)}"


async def test_large_values_come_along(env: Environment) -> None:
    """What is too large for its row lies elsewhere."""
    async with env:
        run = await env.start(large.options(id="o-17"), "x" * 5000)
        await run.signal(go, 1)
        with pytest.raises(RunFailed):
            await env.result(run)
        bank.is_broken = False
        bank.calls.clear()

        again = await run.retry()

        assert await env.result(again) == "hold 1 receipt 1"
        assert (await history(again))[:3] == (await history(run))[:3]
        assert bank.calls == ["charge 1"]


@activity(name="fork_pays_once", at_most_once=True)
async def pays_once() -> str:
    bank.calls.append("pay")
    if bank.is_broken:
        await asyncio.Event().wait()
    return "paid"


@workflow(name="fork_pays")
async def pays() -> str:
    return await pays_once()


async def test_a_fork_does_for_itself_what_is_done_at_most_once(env: Environment) -> None:
    """It is another run beside the one whose attempt is under way; that one loses nothing by it."""
    async with env:
        run = await env.start(pays.options(id="o-17"))
        await env.settle()
        bank.is_broken = False

        assert await env.result(await run.fork(at=1, id="other")) == "paid"
        assert bank.calls == ["pay", "pay"]


async def test_a_fork_behind_a_request_to_stop_shows_that_request(env: Environment) -> None:
    """It is in its history: whoever looks at the run must see that it is about to stop, and why."""
    async with env:
        run = await env.start(takes_signals.options(id="o-17"), 2)
        await env.settle()
        await run.cancel("enough", deadline=timedelta(days=1))
        with pytest.raises(RunCancelled):
            await env.result(run)
        (asked,) = [event for event in await history(run) if event.kind == "CancelRequested"]

        behind = await (await run.fork(at=asked.seq, id="behind")).describe()
        before = await (await run.fork(at=asked.seq - 1, id="before")).describe()

        assert (behind.cancel_requested_at, behind.cancel_reason) == (asked.at, "enough")
        assert (before.cancel_requested_at, before.cancel_reason) == (None, None)


async def test_what_is_done_at_most_once_is_not_done_again_by_a_retry(env: Environment) -> None:
    """It was under way when the run was ended: nobody knows how far it came. A second retry is a decision."""
    async with env:
        run = await env.start(pays.options(id="o-17"))
        await env.settle()
        await run.terminate()
        bank.is_broken = False

        again = await run.retry()
        with pytest.raises(RunFailed, match="lost"):
            await env.result(again)
        assert bank.calls == ["pay"]

        assert await env.result(await again.retry()) == "paid"


@workflow(name="fork_generation")
async def generation(number: int) -> str:
    got = await go.receive()
    if number == 1:
        continue_as_new(2)
    return f"{info().history_length} {got} {await charge(got)}"


async def test_a_retry_of_a_run_that_continued_is_one_of_its_newest_generation(env: Environment) -> None:
    """As its result is; the first start under the same id still finds it."""
    async with env:
        run = await env.start(generation.options(id="o-17"), 1)
        await run.signal(go, 1)
        await run.signal(go, 2)
        with pytest.raises(RunFailed):
            await env.result(run)
        bank.is_broken = False

        again = await run.retry()

        assert (await env.result(again)).endswith("2 receipt 2")
        assert (await env.start(generation.options(id="o-17"), 1)).run_id == again.run_id


async def test_what_an_earlier_generation_took_is_not_taken_again(env: Environment) -> None:
    """Signals under an id go on with the run that continues, so that none counts twice; nor does one in a retry."""
    async with env:
        run = await env.start(generation.options(id="o-17"), 1)
        await run.signal(go, 1, id="one")
        await env.settle()
        await run.signal(go, 2, id="two")
        with pytest.raises(RunFailed):
            await env.result(run)
        bank.is_broken = False
        second = await env.app.get("o-17")
        with pytest.raises(RunClosed, match="fork that one"):
            await run.fork(at=1, id="first")

        for again in (await second.fork(at=1, id="other"), await run.retry()):
            await again.signal(go, 9, id="one")
            assert str(await env.result(again)).endswith("2 receipt 2")


async def test_a_fork_right_before_the_end_of_patched_code_fits(env: Environment) -> None:
    """The last thing that the code did was to ask about a change."""
    async with env:
        run = await env.start(is_patched.options(id="o-17"))
        assert await env.result(run) == "hold-x"
        assert [kind for kind, _ in facts(await history(run))][-2:] == ["Patched", "RunCompleted"]

        assert await env.result(await run.fork(at=3, id="other")) == "hold-x"


@workflow(name="fork_is_patched")
async def is_patched() -> str:
    found = await reserve("x")
    return found if patched("new way") else "old way"


async def test_attributes_set_later_come_along_and_are_found(env: Environment) -> None:
    """A run is found by what it said, and so is its retry."""
    async with env:
        run = await env.start(says.options(id="o-17", attributes={"tenant": "acme"}))
        with pytest.raises(RunFailed):
            await env.result(run)
        bank.is_broken = False

        again = await run.retry()

        assert (await again.describe()).attributes == {"tenant": "acme", "stage": "paying"}
        assert await env.result(again) == {"tenant": "acme"}


async def test_attributes_from_outside_stay_when_the_code_of_the_new_run_says_more(env: Environment) -> None:
    """The code knows nothing of them; what it says is added to them, in a retry as in the run itself."""
    async with env:
        run = await env.start(says_more.options(id="o-17", attributes={"tenant": "acme"}))
        with pytest.raises(RunFailed):
            await env.result(run)
        bank.is_broken = False
        await run.set_attributes(vip=True, tenant=None)

        again = await run.retry()

        assert await env.result(again) == {"tenant": "acme", "stage": "paid"}
        assert (await again.describe()).attributes == {"vip": True, "stage": "paid"}


@workflow(name="fork_says_more")
async def says_more() -> dict[str, object]:
    set_attributes(stage="paying")
    await charge(1)
    set_attributes(stage="paid")
    return dict(info().attributes)


@pytest.mark.parametrize("verb", ["retry", "fork"])
async def test_options_come_along(env: Environment, verb: str) -> None:
    """A run that is mended is worked by the same workers, and found by the same ids."""
    async with env:
        options: Any = {"queue": "far", "priority": 3, "entity_id": "e", "correlation_id": "c", "timeout": 3600}
        run = await env.start(checkout.options(id="o-17", **options), "o")
        await env.pass_time(60)
        await run.terminate()

        again = await (run.retry() if verb == "retry" else run.fork(1))

        info = await again.describe()
        assert (info.queue, info.priority, info.entity_id, info.correlation_id) == ("far", 3, "e", "c")
        assert info.deadline_at == info.created_at + timedelta(hours=1)


@workflow(name="fork_says")
async def says() -> dict[str, object]:
    first = dict(info().attributes)
    set_attributes(stage="paying")
    await charge(1)
    return first


def test_code_that_does_not_await_has_the_same(tmp_path: Path) -> None:
    """No second set of names."""
    with Perdure(f"sqlite:///{tmp_path}/sync.db").sync() as app:
        run = app.start(once_more.options(id="o-17"))
        with pytest.raises(RunFailed):
            run.result()
        bank.is_broken = False

        assert run.retry(reason="again").result() == "hold-x receipt 1"
        other = app.get("o-17").fork(at="fork_charge_once", id="other", results={"fork_charge_once": "by hand"})
        assert other.result() == "hold-x by hand"


@activity(name="fork_charge_once", retry=Retry(max_attempts=1))
async def charge_once() -> str:
    if bank.is_broken:
        raise ConnectionError("no bank")
    return "receipt 1"


@workflow(name="fork_once_more")
async def once_more() -> str:
    return f"{await reserve('x')} {await charge_once()}"
