"""Bugs of others, about requests: starts and signals whose answer was lost, odd values, equal times.

The numbers in the docstrings are those of docs/bugs-of-others.md.
"""

import asyncio
from pathlib import Path

import pytest

from perdure import Retry, RunFailed, Signal, Status, StoreUnavailable, ValueTooLarge, activity, workflow
from perdure.testing import Environment
from perdure.testing.faults import Fault

letter = Signal("letter", str)
begun: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    begun.clear()


@activity(retry=Retry(max_attempts=3, initial_interval=1))
async def writes_a_lot(size: int) -> str:
    begun.append("a lot")
    return "x" * size


@activity
async def copies(text: str) -> str:
    begun.append(text)
    return text


@workflow
async def reads_a_letter(name: str) -> str:
    await copies(name)
    return await copies(await letter.receive())


@workflow
async def has_a_lot_written(size: int) -> int:
    return len(await writes_a_lot(size))


@workflow
async def waits_on_nobody() -> None:
    await asyncio.Event().wait()


@workflow
async def waits_for_itself() -> None:
    await waits_for_itself.options(id="itself")()


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_COMMIT])
async def test_a_start_whose_answer_was_lost_gives_the_same_run_again(env: Environment, fault: Fault) -> None:
    """R47: sent again after the network had failed, the start was a conflict, or made a second run."""
    async with env:
        env.store.fail_at(1, fault)
        first = await env.alive(env.start(reads_a_letter.options(id="once"), "dear"))
        again = await env.alive(env.start(reads_a_letter.options(id="once"), "dear"))
        assert first.run_id == again.run_id
        await again.signal(letter, "reader")
        assert await env.result(first) == "reader"
        assert begun == ["dear", "reader"]
        assert len(await env.app.list()) == 1


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_busy_database_makes_no_lasting_error(env: Environment, number: int) -> None:
    """R14: the look whether an id is known was outside the retries; a lock there failed the run for good."""
    async with env:
        env.store.fail_at(number, Fault.REFUSED)
        for _ in range(2):
            try:
                run = await env.alive(env.start(reads_a_letter.options(id="busy"), "dear"))
            except StoreUnavailable:
                continue
        await env.pass_time(5)
        run = await env.alive(env.start(reads_a_letter.options(id="busy"), "dear"))
        await env.alive(run.signal(letter, "reader", id="l-1"))
        assert await env.result(run) == "reader"
        assert env.store.is_spent


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "null", "[1]", '"', "\u2028", "\U0001f600"])
async def test_odd_text_goes_through_every_door(env: Environment, text: str) -> None:
    """R55: a NUL byte, or JSON that is no object, made an internal event fail; the run showed running for ever."""
    async with env:
        run = await env.start(reads_a_letter, text)
        await run.signal(letter, text)
        assert await env.result(run) == text
        assert begun == [text, text]
        await env.crash()
        again = await env.app.get(run.id)
        assert (await again.describe()).status is Status.COMPLETED


async def test_a_result_above_the_limit_fails_once_and_visibly(env: Environment) -> None:
    """R32, R44: too large to be written, it was produced and refused again and again, and choked everything."""
    async with env:
        run = await env.start(has_a_lot_written, 3_000_000)
        with pytest.raises(RunFailed, match="3,000,0.. bytes"):
            await env.result(run)
        assert begun == ["a lot"]
        neighbour = await env.start(reads_a_letter, "dear")
        with pytest.raises(ValueTooLarge):
            await neighbour.signal(letter, "x" * 3_000_000)
        await neighbour.signal(letter, "short")
        assert await env.result(neighbour) == "short"


async def test_runs_of_one_millisecond_have_one_order_and_none_is_shown_twice(tmp_path: Path) -> None:
    """R56: equal times gave another order at every look; pages overlapped, limits were overrun."""
    async with Environment(str(tmp_path / "ties.db")) as env:
        started = [await env.start(reads_a_letter, str(number)) for number in range(50)]
        assert len({(await run.describe()).created_at for run in started}) == 1
        shown: list[str] = []
        after: str | None = None
        while True:
            page = await env.app.list(limit=7, after=after)
            shown += [info.run_id for info in page]
            after = page.cursor
            if after is None:
                break
        assert shown == sorted((run.run_id for run in started), reverse=True)


async def test_runs_of_one_millisecond_are_claimed_once_each_and_all(tmp_path: Path) -> None:
    """R56: with room for few, equal times must not leave anybody behind."""
    async with Environment(str(tmp_path / "claims.db"), worker=False) as client:
        runs = [await client.start(reads_a_letter.options(id=f"r{n}"), str(n)) for n in range(20)]
        for run in runs:
            await run.signal(letter, "x")
    async with Environment(str(tmp_path / "claims.db"), max_live=3) as env:
        for number in range(20):
            assert await env.result(await env.app.get(f"r{number}")) == "x"
        assert sorted(word for word in begun if word != "x") == sorted(map(str, range(20)))


async def test_a_run_that_would_wait_for_itself_is_told_so(env: Environment) -> None:
    """R40: suspended for a completion that only it could produce, it hung for ever."""
    async with env:
        run = await env.start(waits_for_itself.options(id="itself"))
        with pytest.raises(RunFailed, match="'itself' cannot wait for itself"):
            await env.result(run)


async def test_a_run_that_waits_for_nothing_outside_shows_that_and_can_be_ended(env: Environment) -> None:
    """R40: nobody can wake it; so nothing may be shown that looks as if somebody could."""
    async with env:
        run = await env.start(waits_on_nobody)
        await env.pass_time(30)
        info = await run.describe()
        assert (info.status, info.waiting_for) == (Status.SUSPENDED, ())
        await env.alive(run.terminate("it will never end"))
        assert (await run.describe()).status is Status.TERMINATED
