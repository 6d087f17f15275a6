"""Order: a run receives its messages in the order they were sent, however a process learns of them."""

from collections.abc import Sequence
from pathlib import Path

from perdure import Signal, workflow
from perdure.engine.watch import in_their_order
from perdure.errors import RunUnreadable
from perdure.kernel.messages import Message, SignalSent
from perdure.stores.operations import PostMessage
from perdure.stores.records import LoadedRun, NewMessage
from perdure.testing import Environment, VirtualClock

letter = Signal("letter", str)


@workflow
async def spells(count: int) -> str:
    return "".join([await letter.receive() for _ in range(count)])


async def posted(env: Environment, run_id: str, text: str) -> None:
    """Written by another process: nobody here is told."""
    body = f'{{"name":"letter","payload":"{text}"}}'
    await env.elsewhere([PostMessage(run_id, f"m-{text}", "SignalSent", body, 1)])


async def test_a_message_that_became_visible_late_is_not_overtaken(env: Environment) -> None:
    """Where numbers are given before commits, a look at the highest number passes over a lower one."""
    async with env:
        run = await env.start(spells, 3)
        await env.settle()
        await posted(env, run.run_id, "a")
        # Somebody's higher number was seen before this one was there.
        env.engine.watch._last_message = await env.store.reads.last_message()
        await posted(env, run.run_id, "b")
        await env.pass_time(1)
        await run.signal(letter, "c")
        assert await env.result(run) == "abc"


async def test_a_message_sent_while_its_run_is_being_read_does_not_overtake_another(tmp_path: Path) -> None:
    """It is put aside until the run lives; what another process sent before it must come before it."""
    env = Environment(str(tmp_path / "order.db"), clock=VirtualClock())
    async with env:
        run = await env.start(spells, 3)
        await env.pass_time(60)
        assert not env.worker.is_live(run.run_id)
        read = env.store.reads.load_runs

        async def load_runs(run_ids: Sequence[str], worker_id: str) -> list[LoadedRun | RunUnreadable]:
            found = await read(run_ids, worker_id)
            await posted(env, run.run_id, "b")
            await run.signal(letter, "c")
            return found

        env.store.reads.load_runs = load_runs  # type: ignore[method-assign]  # something happens in between
        await posted(env, run.run_id, "a")
        assert await env.result(run) == "abc"


def test_each_message_is_told_which_one_of_its_run_it_is() -> None:
    """From how many the run has had by now: the last one is that one, the one before it one less."""

    def news(run_id: str, number: int, had: int) -> NewMessage:
        return NewMessage(run_id, Message(number, str(number), SignalSent("s", b""), 1), had)  # type: ignore[arg-type]  # not read

    found = [news("a", 4, 7), news("b", 5, 2), news("a", 6, 7), news("a", 8, 7)]
    assert [(each.run_id, each.had) for each in in_their_order(found)] == [("a", 5), ("b", 2), ("a", 6), ("a", 7)]
