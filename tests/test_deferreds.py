"""Deferreds: values that come from outside once, by run and name or by a token."""

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from perdure import (
    AlreadyResolved,
    BadOption,
    BadToken,
    BadValue,
    Deferred,
    DeferredFailed,
    NotInWorkflow,
    Perdure,
    PerdureError,
    Request,
    Run,
    RunClosed,
    RunNotFound,
    Signal,
    Status,
    Stream,
    at,
    continue_as_new,
    select,
    sleep,
    workflow,
)
from perdure.testing import Environment


@dataclass
class Decision:
    ok: bool
    by: str = "nobody"


approval = Deferred("approval", Decision)
count = Deferred("count", int)
go = Signal("go", bool)


@workflow(name="deferred_asks")
async def asks() -> str:
    decision = await approval.wait()
    return f"{decision.ok} by {decision.by}"


@workflow(name="deferred_asks_by_token")
async def asks_by_token() -> str:
    at(approval.token())
    decision = await approval.wait()
    return f"{decision.ok} by {decision.by}"


@workflow(name="deferred_waits_thrice")
async def waits_thrice() -> list[int]:
    first = await asyncio.gather(count.wait(), count.wait())
    return [*first, await count.wait()]


@workflow(name="deferred_waits_late")
async def waits_late() -> int:
    await go.receive()
    return await count.wait()


@workflow(name="deferred_is_patient")
async def is_patient() -> list[object]:
    try:
        found: object = await count.wait(timeout=5)
    except TimeoutError as error:
        found = str(error)
    return [found, await count.wait()]


@workflow(name="deferred_hears_errors")
async def hears_errors() -> str:
    try:
        return str(await count.wait())
    except DeferredFailed as error:
        return f"failed: {error}"


@workflow(name="deferred_gives_token")
async def gives_token(name: str = "count") -> str:
    before = Deferred(name, int).token()
    await sleep(1)
    assert before == Deferred(name, int).token()
    return before


@workflow(name="deferred_with_token")
async def with_token(tokens: bool) -> int:
    if tokens:
        at(count.token())
    return await count.wait()


@workflow(name="deferred_goes_on")
async def goes_on(round: int) -> list[int]:
    await go.receive()
    if round < 2:
        continue_as_new(round + 1)
    return [await count.wait(), round]


@workflow(name="deferred_again_and_again")
async def again(found: list[int]) -> list[int]:
    found.append(await count.wait())
    if len(found) < 2:
        continue_as_new(found)
    return found


@workflow(name="deferred_or_time")
async def or_time() -> str:
    match await select(late=sleep(5), count=count.wait()):
        case ("count", int(value)):
            return f"got {value}"
        case _:
            return "late"


async def test_a_deferred_is_resolved_after_the_wait_began(env: Environment) -> None:
    async with env:
        run = await env.app.start(asks)
        await env.settle()
        await run.resolve(approval, Decision(ok=True, by="ann"))

        assert await run.result() == "True by ann"


async def test_a_deferred_is_resolved_before_the_wait_begins(env: Environment) -> None:
    async with env:
        run = await env.app.start(waits_late)
        await run.resolve(count, 7)
        await env.settle()
        await run.signal(go, True)

        assert await run.result() == 7


async def test_every_wait_of_the_run_gets_the_value_and_history_says_it_once(env: Environment) -> None:
    async with env:
        run = await env.app.start(waits_thrice)
        await env.settle()
        await run.resolve("count", 3)

        assert await run.result() == [3, 3, 3]
        assert [event.kind async for event in run.events()] == ["RunStarted", "DeferredResolved", "RunCompleted"]


async def test_the_same_value_again_is_accepted_and_another_one_is_not(env: Environment) -> None:
    async with env:
        run = await env.app.start(waits_late)
        await run.resolve(count, 7)
        await run.resolve("count", 7)

        with pytest.raises(AlreadyResolved, match="count"):
            await run.resolve(count, 8)
        with pytest.raises(AlreadyResolved):
            await run.resolve(count, error="no")
        await run.signal(go, True)
        assert await run.result() == 7


async def test_the_order_of_keys_makes_no_other_value_but_one_is_not_true(env: Environment) -> None:
    async with env:
        run = await env.app.start(waits_late)
        await run.resolve("a", {"x": 1, "y": 2})
        await run.resolve("a", {"y": 2, "x": 1})
        await run.resolve("b", 1)

        with pytest.raises(AlreadyResolved):
            await run.resolve("b", True)


async def test_of_any_number_of_callers_exactly_one_wins(env: Environment) -> None:
    async with env:
        run = await env.app.start(asks)
        callers = (run.resolve(approval, Decision(ok=True, by=str(n))) for n in range(20))
        answers = await asyncio.gather(*callers, return_exceptions=True)

        winners = [n for n, answer in enumerate(answers) if answer is None]
        assert len(winners) == 1
        assert {type(answer) for answer in answers} == {type(None), AlreadyResolved}
        assert await run.result() == f"True by {winners[0]}"


async def test_a_wait_that_took_too_long_may_be_followed_by_another(env: Environment) -> None:
    async with env:
        run = await env.app.start(is_patient)
        await env.pass_time(6)
        await run.resolve(count, 1)

        assert await run.result() == ["the deferred 'count' was not resolved within 5", 1]


async def test_an_error_is_raised_where_the_workflow_waits(env: Environment) -> None:
    async with env:
        run = await env.app.start(hears_errors)
        await run.resolve(count, error="card declined")

        assert await run.result() == "failed: card declined"


async def test_a_deferred_may_win_a_select(env: Environment) -> None:
    async with env:
        run = await env.app.start(or_time)
        await env.settle()
        await run.resolve(count, 2)

        assert await run.result() == "got 2"


async def test_a_token_resolves_the_deferred_it_was_made_for(env: Environment) -> None:
    async with env:
        run = await env.app.start(with_token, True)
        await env.settle()
        token = (await run.describe()).step
        assert token is not None
        await env.app.resolve(token, 5)

        assert await run.result() == 5


async def test_a_token_is_the_same_on_every_replay_and_short_enough_for_a_url(env: Environment) -> None:
    async with env:
        run = await env.app.start(gives_token, "n" * 100)
        await env.pass_time(2)

        token = await run.result()
        assert len(token) <= 300
        assert set(token) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
        # Nobody guesses 128 bits; six of them are in a letter.
        assert len(token.partition(".")[2]) * 6 >= 128


async def test_a_token_that_was_changed_says_nothing_of_the_run(env: Environment) -> None:
    async with env:
        run = await env.app.start(with_token, True)
        other = await env.app.start(with_token, True)
        await env.settle()
        token, foreign = (await run.describe()).step or "", (await other.describe()).step or ""
        told, signature = token.split(".")
        another = base64.urlsafe_b64encode(f"{run.run_id}.amount".encode()).decode().rstrip("=")
        changed = [
            "", ".", "x", "ä.ä", "\ud800", token[:-1], token + "A", token + "=", f"{told}.{foreign.split('.')[1]}",
            f"{another}.{signature}", told, f"{told}.", token.swapcase(),
        ]  # fmt: skip

        for wrong in changed:
            with pytest.raises(BadToken) as refused:
                await env.app.resolve(wrong, 1)
            assert run.run_id not in str(refused.value)


async def test_what_a_run_resolved_and_has_not_waited_for_goes_on_with_it(env: Environment) -> None:
    async with env:
        run = await env.app.start(goes_on, 1)
        await run.resolve(count, 9)
        await run.signal(go, True)
        await run.signal(go, True)

        assert await run.result() == [9, 2]


async def test_an_old_token_and_an_old_handle_reach_the_run_that_continues(env: Environment) -> None:
    async with env:
        run = await env.app.start(again, [])
        await run.resolve(count, 1)
        await env.settle()
        await run.resolve(count, 2)

        assert await run.result() == [1, 2]


async def test_a_closed_or_missing_run_takes_no_value(env: Environment) -> None:
    async with env:
        run = await env.app.start(asks)
        await run.terminate()

        with pytest.raises(RunClosed):
            await run.resolve(approval, Decision(ok=True))


async def test_bad_input_is_refused_before_anything_is_written(env: Environment) -> None:
    async with env:
        run = await env.app.start(asks)
        with pytest.raises(BadValue):
            await run.resolve(approval, "yes")  # type: ignore[misc]  # that is the point
        with pytest.raises(BadOption, match="one of them"):
            await run.resolve(approval)
        with pytest.raises(BadOption, match="one of them"):
            await run.resolve(approval, Decision(ok=True), error="no")
        with pytest.raises(BadOption, match="is not a deferred"):
            await run.resolve(go, True)  # type: ignore[arg-type]  # that is the point
        with pytest.raises(PerdureError):
            await run.resolve("", 1)
        with pytest.raises(NotInWorkflow):
            approval.token()
        with pytest.raises(NotInWorkflow):
            await approval.wait()
        assert await run.deferreds() == []


async def test_a_value_of_another_type_is_told_where_the_workflow_waits(env: Environment) -> None:
    async with env:
        run = await env.app.start(waits_late)
        await run.resolve("count", "seven")
        await run.signal(go, True)

        with pytest.raises(PerdureError, match="the deferred 'count'"):
            await run.result()


async def test_deferreds_are_listed_with_their_type_and_since_when_they_are_waited_for(env: Environment) -> None:
    async with env:
        run = await env.app.start(asks)
        await run.resolve("other", 1)
        await env.pass_time(3)

        waited, resolved = await run.deferreds()

        assert (waited.name, waited.is_resolved) == ("approval", False)
        assert waited.since is not None
        assert waited.type is not None
        assert "ok" in str(waited.type)
        assert (resolved.name, resolved.is_resolved, resolved.since) == ("other", True, None)


async def test_a_parked_run_wakes_for_its_deferred(env: Environment) -> None:
    async with env:
        run = await env.app.start(asks)
        await env.pass_time(30)
        assert (await run.describe()).status == "SUSPENDED"
        await run.resolve(approval, Decision(ok=False))

        assert await run.result() == "False by nobody"


async def test_a_missing_run_is_told(env: Environment) -> None:
    async with env:
        run = await env.app.start(asks)
        run.run_id = "0" * 28

        with pytest.raises(RunNotFound):
            await run.resolve(approval, Decision(ok=True))


def test_code_that_does_not_await_resolves_as_well() -> None:
    with Perdure("sqlite://").sync() as app:
        run = app.start(asks)
        run.resolve(approval, Decision(ok=True, by="ann"))
        assert run.result() == "True by ann"

        token = app.run(gives_token)
        with pytest.raises(RunClosed):
            app.resolve(token, 1)


async def test_a_token_of_another_namespace_or_database_is_none(env: Environment) -> None:
    async with env:
        run = await env.app.start(with_token, True)
        await env.settle()
        token = (await run.describe()).step or ""
    async with Perdure("sqlite://") as other:
        with pytest.raises(BadToken):
            await other.resolve(token, 1)
    async with Perdure(env._url, namespace="other") as other:
        with pytest.raises(BadToken):
            await other.resolve(token, 1)


async def token_of(env: Environment) -> tuple[Run[str], str]:
    """A run that waits for its approval, and the token of that."""
    run = await env.app.start(asks_by_token)
    await env.settle()
    return run, str((await run.describe()).step)


async def test_a_token_takes_a_value_of_a_class_of_its_own(env: Environment) -> None:
    async with env:
        run, token = await token_of(env)
        await env.app.resolve(token, Decision(True, "ann"))
        assert await run.result() == "True by ann"


async def test_a_name_takes_a_value_of_a_class_of_its_own(env: Environment) -> None:
    async with env:
        run = await env.app.start(asks)
        await run.resolve("approval", Decision(True, "ann"))
        assert await run.result() == "True by ann"


async def test_what_a_token_cannot_do_is_told_by_the_id_that_people_know(env: Environment) -> None:
    async with env:
        run, token = await token_of(env)
        await env.app.resolve(token, Decision(True))
        with pytest.raises(AlreadyResolved, match=run.id):
            await env.app.resolve(token, Decision(False))


async def test_an_error_without_a_text_is_refused(env: Environment) -> None:
    async with env:
        run = await env.app.start(asks)
        with pytest.raises(BadOption, match="says what is wrong, in a text that is not empty"):
            await run.resolve(approval, error=" ")


@pytest.mark.parametrize("kind", [3, asyncio.Task, asyncio.Lock])
@pytest.mark.parametrize("channel", [Deferred, Signal, Stream, Request])
def test_a_type_whose_values_never_come_back_is_refused_where_it_is_given(channel: Any, kind: object) -> None:
    with pytest.raises(BadOption, match="no type of values that can be restored from JSON"):
        channel("odd", kind)
    with pytest.raises(BadOption, match="no type of values that can be restored from JSON"):
        Request("odd", int, cast("Any", kind))


@pytest.mark.parametrize(
    "kind", [Any, object, Decision, Path, UUID, datetime, Mapping, list[Decision], int | None, Status]
)
def test_a_type_whose_values_come_back_is_accepted(kind: Any) -> None:
    assert Deferred("fine", kind).name == "fine"
