"""Activities: tried again as agreed, ended in time, and cancelled when nobody waits."""

import asyncio
import contextvars
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from perdure import ActivityFailed, Retry, RunFailed, activity, sleep, workflow
from perdure.testing import Environment

log: list[str] = []


@pytest.fixture(autouse=True)
def _fresh_log() -> None:
    log.clear()


@activity(retry=Retry(max_attempts=4, initial_interval=10, backoff=3, max_interval=60))
async def flaky() -> str:
    log.append("flaky")
    raise ConnectionError("down")


@activity(retry=Retry(max_attempts=5, non_retryable=(ValueError, "KeyError")))
async def picky(kind: str) -> str:
    log.append(kind)
    raise {"value": ValueError, "key": KeyError, "other": OSError}[kind](kind)


@activity(timeout=5, retry=Retry(max_attempts=1))
async def slow() -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        log.append("cancelled")
        raise
    return "never"


class OddError(Exception):
    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(code, why)


@activity(retry=Retry(max_attempts=1))
async def odd() -> None:
    raise OddError(7, why="odd")


@activity
def in_a_thread(n: int) -> str:
    return f"{n} {threading.current_thread() is threading.main_thread()}"


@activity
async def changes_its_argument(items: list[int]) -> int:
    items.append(4)
    return len(items)


@workflow
async def runs_flaky() -> str:
    return await flaky()


@workflow
async def runs_picky(kind: str) -> str:
    return await picky(kind)


@workflow
async def runs_slow() -> str:
    return await slow()


@workflow
async def loses_patience() -> str:
    try:
        async with asyncio.timeout(1):
            return await slow()
    except TimeoutError:
        await sleep(1)
        return "gave up"


@workflow
async def races() -> str:
    fast, late = asyncio.create_task(sleep(1)), asyncio.create_task(slow())
    await asyncio.wait({fast, late}, return_when=asyncio.FIRST_COMPLETED)
    late.cancel()
    return "raced"


@workflow
async def catches_odd() -> str:
    try:
        await odd()
    except OddError as error:
        return str(error)
    return ""


class Unknowable(Exception):  # noqa: N818 - a name for a test
    """Loaded under no name that could be looked up."""


Unknowable.__qualname__ = "nowhere.Unknowable"


@activity(retry=Retry(max_attempts=1))
async def unknowable() -> None:
    raise Unknowable("what was it")


@workflow
async def catches_unknowable() -> str:
    try:
        await unknowable()
    except ActivityFailed as error:
        return str(error)
    return ""


@workflow
async def groups() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(odd())
        group.create_task(sleep(100))


@workflow
async def threads() -> list[str]:
    return list(await asyncio.gather(*(in_a_thread(n) for n in range(3))))


@workflow
async def shares_a_list() -> list[int]:
    items = [1, 2, 3]
    return [await changes_its_argument(items), len(items)]


async def test_attempts_come_at_the_agreed_times_and_end(env: Environment) -> None:
    """After 10, 30 and 60 seconds, not before; then the failure is recorded once."""
    async with env:
        run = await env.start(runs_flaky)
        await env.settle()
        made = []
        for _ in range(11):
            made.append(len(log))
            await env.pass_time(9.999)
            await env.pass_time(0.001)
        assert made == [1, 2, 2, 2, 3, 3, 3, 3, 3, 3, 4]
        with pytest.raises(RunFailed, match="ConnectionError: down"):
            await env.result(run)
        history = await env.events(run.id)
        assert [(event.kind, event.body.get("attempts")) for event in history[1:-1]] == [("ActivityFailed", 4)]


async def test_attempts_and_their_times_survive_a_crash(tmp_path: Path) -> None:
    async with Environment(str(tmp_path / "crash.db")) as env:
        run = await env.start(runs_flaky)
        await env.pass_time(10)
        assert len(log) == 2
        await env.crash()
        await env.pass_time(29)
        assert len(log) == 2
        await env.pass_time(1)
        assert len(log) == 3
        await env.pass_time(60)
        again = await env.app.get(run.id)
        with pytest.raises(RunFailed, match="down"):
            await env.result(again)
        assert len(log) == 4


async def test_a_long_back_off_parks_the_run(tmp_path: Path) -> None:
    async with Environment(str(tmp_path / "park.db"), park_after=5) as env:
        run = await env.start(runs_flaky)
        await env.pass_time(10)
        await env.pass_time(7)
        info = await run.describe()
        assert info.status == "SUSPENDED"
        assert info.waiting_for[0].failed_attempts == 2
        await env.pass_time(23)
        assert len(log) == 3


@pytest.mark.parametrize(("kind", "attempts"), [("value", 1), ("key", 1), ("other", 5)])
async def test_errors_not_worth_retrying_end_at_once(env: Environment, kind: str, attempts: int) -> None:
    async with env:
        run = await env.start(runs_picky, kind)
        with pytest.raises(RunFailed, match=kind):
            await env.result(run)
        assert len(log) == attempts


async def test_an_activity_is_ended_when_its_time_is_up(env: Environment) -> None:
    async with env:
        run = await env.start(runs_slow)
        with pytest.raises(RunFailed, match="TimeoutError: the activity took longer than its timeout of 5 s"):
            await env.result(run)
        assert log == ["cancelled"]


@pytest.mark.parametrize(("workflow", "expected"), [(loses_patience, "gave up"), (races, "raced")])
async def test_an_activity_nobody_waits_for_is_cancelled(env: Environment, workflow: object, expected: str) -> None:
    """Its outcome is not written, and the history replays without it."""
    async with env:
        run = await env.start(workflow)  # type: ignore[arg-type,var-annotated]  # one of the two above
        assert await env.result(run) == expected
        assert log == ["cancelled"]
        assert all("slow" not in event.place for event in await env.events(run.id))


async def test_an_error_keeps_its_type_even_if_its_constructor_wants_something_else(env: Environment) -> None:
    async with env:
        run = await env.start(catches_odd)
        assert await env.result(run) == "(7, 'odd')"


async def test_an_error_whose_type_is_not_at_hand_keeps_its_text(env: Environment) -> None:
    async with env:
        run = await env.start(catches_unknowable)
        assert "nowhere.Unknowable: what was it" in await env.result(run)


async def test_a_failed_group_tells_what_failed_in_it(env: Environment) -> None:
    async with env:
        run = await env.start(groups)
        with pytest.raises(RunFailed, match=r"ExceptionGroup: .*OddError: \(7, 'odd'\)"):
            await env.result(run)


async def test_plain_functions_run_in_threads(env: Environment) -> None:
    async with env:
        run = await env.start(threads)
        assert await env.result(run) == ["0 False", "1 False", "2 False"]


async def test_an_activity_cannot_change_the_workflows_own_values(env: Environment) -> None:
    """A replay would not see the change; so there is none to see."""
    async with env:
        run = await env.start(shares_a_list)
        assert await env.result(run) == [4, 3]


async def test_a_quiet_run_shows_what_it_waits_for(env: Environment) -> None:
    """Also while it is live, and to other processes."""
    async with env:
        run = await env.start(runs_slow)
        await env.pass_time(timedelta(seconds=2))
        await env.pass_time(timedelta(seconds=1))
        info = await run.describe()
        assert (info.status, [(w.kind, w.name) for w in info.waiting_for]) == ("RUNNING", [("activity", "slow")])


def test_a_thread_that_outlasts_its_worker_does_not_keep_the_process(tmp_path: Path) -> None:
    """Nobody should have to wait for, or kill, a program that has nothing left to do."""
    program = tmp_path / "stuck.py"
    program.write_text(
        "import asyncio, threading\n"
        "from perdure import Perdure, activity, workflow\n"
        "@activity\n"
        "def stuck() -> None:\n"
        "    threading.Event().wait()\n"
        "@workflow\n"
        "async def waits() -> None:\n"
        "    await stuck()\n"
        "async def main() -> None:\n"
        "    async with Perdure('sqlite://', grace=0.01) as app:\n"
        "        await app.start(waits)\n"
        "asyncio.run(main())\n"
        "print('ended')\n"
    )
    shown = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, check=True)
    assert shown.stdout == "ended\n"
    assert shown.stderr.startswith("1 activity did not finish within 0.01 s"), shown.stderr
    assert len(shown.stderr.splitlines()) == 1


@activity(timeout=1, retry=Retry(max_attempts=1))
async def slow_and_in_a_hurry() -> str:
    await asyncio.Event().wait()
    return "never"


@workflow
async def runs_slow_and_in_a_hurry() -> str:
    return await slow_and_in_a_hurry()


async def test_an_activity_is_not_out_of_time_because_the_wall_clock_was_set(env: Environment) -> None:
    """Set forward by an hour, every attempt under way would be over at once, and each side effect end its run."""
    async with env:
        run, hurried = await env.start(runs_slow), await env.start(runs_slow_and_in_a_hurry)
        await env.settle()
        env.clock.set_by(3_600_000)
        await env.pass_time(2)
        assert (await hurried.describe()).status == "FAILED"
        assert log == []
        await env.pass_time(4)
        assert log == ["cancelled"]
        with pytest.raises(RunFailed):
            await env.result(run)


tenant = contextvars.ContextVar("tenant", default="nobody")


def _served(name: str) -> str:
    before = tenant.get()
    tenant.set(name)
    return before


@activity
async def serves_at_once(name: str) -> str:
    return _served(name)


@activity
async def serves_in_a_task(name: str) -> str:
    await asyncio.sleep(0)
    return _served(name)


@activity
def serves_in_a_thread(name: str) -> str:
    return _served(name)


@workflow
async def serves_a_tenant(name: str) -> list[str]:
    return [
        before
        for serve in (serves_at_once, serves_in_a_task, serves_in_a_thread)
        for before in (await serve(name), await serve(name))
    ]


async def test_what_an_activity_sets_in_its_context_is_its_own(env: Environment) -> None:
    """A tenant, a trace or a database session kept in a context variable must not reach the next one's work."""
    async with env:
        for name in ("ann", "ben"):
            assert await env.run(serves_a_tenant, name) == ["nobody"] * 6
    assert tenant.get() == "nobody"
