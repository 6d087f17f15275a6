"""Queries: what a workflow exposes, read from disk by anybody."""

import logging
from collections.abc import Callable

import pytest

from perdure import (
    BadId,
    BadOption,
    NotInWorkflow,
    QueryNotFound,
    RunNotFound,
    Signal,
    activity,
    continue_as_new,
    expose,
    now,
    workflow,
)
from perdure.stores.answers import Outcome
from perdure.stores.operations import Batch, WriteSnapshot
from perdure.testing import Environment

step = Signal("step", int)


@workflow(name="query_counts")
async def counts(until: int) -> int:
    done = 0
    expose("progress", lambda: {"done": done, "of": until})
    while done < until:
        done += await step.receive()
    return done


@workflow(name="query_fails_to_show")
async def fails_to_show() -> None:
    async def later() -> int:
        return 1

    expose("good", lambda: 1)
    expose("bad", lambda: 1 // 0)
    expose("odd", lambda: object())
    expose("clock", lambda: now())
    expose("later", lambda: later())
    await step.receive()


@workflow(name="query_shows_much")
async def shows_much(size: int) -> None:
    expose("small", lambda: 1)
    expose("large", lambda: "x" * size)
    await step.receive()


@workflow(name="query_goes_on")
async def goes_on(round: int) -> int:
    expose("round", lambda: round)
    await step.receive()
    if round < 3:
        continue_as_new(round + 1)
    return round


@workflow(name="query_exposes_late")
async def exposes_late(round: int) -> None:
    if round == 0:
        expose("round", lambda: round)
        continue_as_new(1)
    await step.receive()
    expose("round", lambda: round)
    await step.receive()


class SpeechlessError(Exception):
    """An error whose text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@workflow(name="query_cannot_say_why")
async def cannot_say_why(error: str) -> int:
    def fail() -> None:
        raise SpeechlessError if error == "speechless" else ValueError("\udcff in a name")

    expose("good", lambda: 1)
    expose("bad", fail)
    return await step.receive()


@workflow(name="query_fails_at_length")
async def fails_at_length(count: int, length: int) -> None:
    def fail() -> None:
        raise ValueError("ü" * length)

    for number in range(count):
        expose(f"{number}", fail)
    await step.receive()


@activity
async def one() -> int:
    return 1


@workflow(name="query_hurries")
async def hurries(steps: int) -> int:
    done = 0
    expose("done", lambda: done)
    for _ in range(steps):
        done += await one()
    return done


@workflow(name="query_bad_functions")
async def bad_functions() -> list[str]:
    async def later() -> int:
        return 1

    found = []
    for name, function in (("a", later), ("b", lambda x: x), ("c", 7), ("", lambda: 1)):
        try:
            expose(name, function)  # type: ignore[arg-type]
        except (BadOption, BadId) as error:
            found.append(type(error).__name__)
    return found


async def test_a_run_shows_what_it_exposes_after_every_wait(env: Environment) -> None:
    async with env:
        run = await env.start(counts, 3)
        await env.settle()
        assert await run.query("progress") == {"done": 0, "of": 3}
        await run.signal(step, 2)
        await env.pass_time(1)
        assert await run.query() == {"progress": {"done": 2, "of": 3}}
        snapshot = await run.snapshot()
        assert (snapshot.seq, snapshot.errors) == (2, {})


async def test_a_run_shows_what_it_exposes_although_the_clock_was_set_back(env: Environment) -> None:
    """Else it would show nothing new for as long as the clock was ahead."""
    async with env:
        run = await env.start(counts, 3)
        await env.settle()
        env.clock.set_by(-3_600_000)
        await run.signal(step, 2)
        await env.settle()
        assert await run.query("progress") == {"done": 2, "of": 3}


async def test_what_shows_the_same_is_not_written_again() -> None:
    """A run of a thousand steps that shows how many there will be writes that once."""
    written: list[object] = []

    async with Environment() as env:
        env.store.after_commit = lambda batch: written.extend(
            op for group in batch.groups for op in group if isinstance(op, WriteSnapshot)
        )
        run = await env.start(shows_much, 1)
        for _ in range(3):
            await env.pass_time(2)
            await run.signal("other", 1)
        await env.pass_time(2)
        await run.signal(step, 1)
        await env.result(run)
    assert len(written) == 1


async def test_what_a_run_showed_at_its_end_stays(env: Environment) -> None:
    async with env:
        run = await env.start(counts, 2)
        await env.settle()
        await run.signal(step, 1)
        await run.signal(step, 1)
        assert await env.result(run) == 2
        assert await run.query("progress") == {"done": 2, "of": 2}


async def test_a_parked_run_is_shown_as_it_is_without_a_worker(env: Environment) -> None:
    async with env:
        run = await env.start(counts, 3)
        await run.signal(step, 1)
        await env.pass_time(15)
        assert (await run.describe()).status == "SUSPENDED"
    client = Environment(env.path, clock=env.clock, worker=False)
    async with client:
        assert await (await client.app.get(run.id)).query("progress") == {"done": 1, "of": 3}


async def test_what_was_not_written_before_a_crash_is_shown_after_it(env: Environment) -> None:
    """A snapshot follows the event it shows; between the two a process may die."""
    async with env:
        run = await env.start(counts, 3)
        await env.pass_time(2)
        await run.signal(step, 1)
        await env.settle()
        await env.crash()
        await env.settle()
        again = await env.app.get(run.id)
        assert await again.query("progress") == {"done": 1, "of": 3}


async def test_functions_that_fail_are_told_of_and_the_run_goes_on(env: Environment) -> None:
    async with env:
        run = await env.start(fails_to_show)
        await env.settle()
        snapshot = await run.snapshot()
        assert snapshot.values == {"good": 1}
        assert snapshot.errors["bad"] == "ZeroDivisionError: integer division or modulo by zero"
        assert "cannot be written as JSON" in snapshot.errors["odd"]
        assert "NotInWorkflow: an exposed function may not call now()" in snapshot.errors["clock"]
        assert "coroutine" in snapshot.errors["later"]
        with pytest.raises(QueryNotFound, match="no value for 'bad' .ZeroDivisionError.*there are 'good'"):
            await run.query("bad")
        await run.signal(step, 1)
        await env.result(run)


@pytest.mark.parametrize(
    ("error", "told"),
    [("odd letter", "ValueError: \\udcff in a name"), ("speechless", "SpeechlessError: <SpeechlessError whose")],
)
async def test_an_error_that_cannot_be_written_is_told_as_far_as_it_can_be(
    env: Environment, error: str, told: str
) -> None:
    """The run hung for ever, and its worker parked and handed back no other run any more."""
    async with env:
        run = await env.start(cannot_say_why, error)
        await env.settle()
        snapshot = await run.snapshot()
        assert snapshot.values == {"good": 1}
        assert snapshot.errors["bad"].startswith(told)
        await run.signal(step, 7)
        assert await env.result(run) == 7


async def test_a_name_that_is_not_there_is_told_with_those_that_are(env: Environment) -> None:
    async with env:
        run = await env.start(counts, 1)
        await env.settle()
        with pytest.raises(QueryNotFound, match="shows no 'x'; there are 'progress'"):
            await run.query("x")
        plain = await env.start(bad_functions)
        assert await env.result(plain) == ["BadOption", "BadOption", "BadOption", "BadId"]
        assert await plain.query() == {}
        assert (await plain.snapshot()).seq == 0
        with pytest.raises(QueryNotFound, match="nor anything else"):
            await plain.query("x")
        with pytest.raises(RunNotFound):
            await env.app.get("nobody")


async def test_large_values_are_told_of_and_the_largest_left_out(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "perdure.worker"):
        async with env:
            run = await env.start(shows_much, 150_000)
            too_large = await env.start(shows_much, 300_000)
            await env.settle()
            assert await run.query("small") == 1
            assert await run.query("large") == "x" * 150_000
            assert (await too_large.snapshot()).values == {"small": 1}
            assert "300,002 bytes" in (await too_large.snapshot()).errors["large"]
    assert [record.event for record in caplog.records if hasattr(record, "event")].count("snapshot_large") == 1


async def test_a_long_error_of_a_function_is_cut(env: Environment) -> None:
    """Five million letters were written again whenever the text of the error changed."""
    async with env:
        run = await env.start(fails_at_length, 1, 5_000_000)
        await env.settle()
        error = (await run.snapshot()).errors["0"]
        assert error.startswith("ValueError: üüü")
        assert len(error) < 500


async def test_errors_and_names_count_for_the_size_of_all_that_is_shown(env: Environment) -> None:
    """There may be many functions, and each may fail at length."""
    async with env:
        run = await env.start(fails_at_length, 2_000, 1_000)
        await env.settle()
        assert 200 * 1024 < (await run.snapshot()).size <= 300 * 1024


async def test_the_size_that_is_warned_of_is_in_bytes(env: Environment, caplog: pytest.LogCaptureFixture) -> None:
    """Letters of two bytes and more were counted as one."""
    with caplog.at_level(logging.WARNING, "perdure.worker"):
        async with env:
            await env.start(fails_at_length, 200, 1_000)
            await env.settle()
    (told,) = [record for record in caplog.records if getattr(record, "event", "") == "snapshot_large"]
    assert vars(told)["bytes"] > 200 * 2 * 300


async def test_a_run_that_is_continued_is_shown_by_the_newest(env: Environment) -> None:
    async with env:
        run = await env.start(goes_on, 1)
        await env.settle()
        for round in (1, 2, 3):
            await env.pass_time(1)
            assert await run.query("round") == round
            await run.signal(step, 1)
        assert await env.result(run) == 3
        assert await run.query("round") == 3


async def test_until_a_successor_shows_something_what_came_before_is_shown(env: Environment) -> None:
    async with env:
        run = await env.start(exposes_late, 0)
        await env.settle()
        assert await run.query("round") == 0
        await run.signal(step, 1)
        await env.pass_time(1)
        assert await run.query("round") == 1


async def test_a_run_that_hurries_writes_what_it_shows_now_and_then(env: Environment) -> None:
    async with env:
        written: list[WriteSnapshot] = []
        commit = env.store.commit

        def counting(batch: Batch, done: Callable[[Outcome], None]) -> None:
            written.extend(op for group in batch.groups for op in group if isinstance(op, WriteSnapshot))
            commit(batch, done)

        env.store.commit = counting  # type: ignore[method-assign]
        run = await env.start(hurries, 50)
        assert await env.result(run) == 50
        assert await run.query("done") == 50
    assert len(written) == 2, "one when it first waits, and one at its end"


def test_only_workflows_expose() -> None:
    with pytest.raises(NotInWorkflow):
        expose("x", lambda: 1)


async def test_a_long_history_is_warned_of_once(
    env: Environment, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.worker.warnings.LONG_HISTORY", 2)
    with caplog.at_level(logging.WARNING, "perdure.worker"):
        async with env:
            run = await env.start(counts, 9)
            for _ in range(3):
                await run.signal(step, 1)
            await env.pass_time(15)
            await run.signal(step, 1)
            await env.pass_time(15)
    events = [getattr(record, "event", "") for record in caplog.records]
    assert events.count("history_long") == 1
