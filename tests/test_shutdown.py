"""Shutdown: a process that is told to end hands its runs back, and nobody is blamed for its end."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import ClassVar

import pytest

from perdure import Perdure, RunInfo
from perdure.app.shutdown import SIGNALS

# One run with one slow activity, and the ways in which people open a Perdure.
SCRIPT = textwrap.dedent("""\
    import asyncio
    import os
    import signal
    import sys
    import time

    from perdure import Perdure, Retry, activity, workflow
    from perdure.app import shutdown

    url, how = sys.argv[1:]
    begun, closing = asyncio.Event(), asyncio.Event()


    # An end that is taken for its failure is seen at once.
    @activity(retry=Retry(max_attempts=1))
    async def slow() -> str:
        print("begun", flush=True)
        begun.set()
        if how == "ends":
            return "done"
        if how == "hangs":
            shutdown.PATIENCE_SECONDS = 0.2
            while True:
                pass
        if how == "hangs for ever":
            shutdown.PATIENCE_SECONDS = 3600
            while signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
                pass
            print("told", flush=True)
            while True:
                pass
        if how == "exits on a bare loop":
            asyncio.get_running_loop().call_soon(sys.exit, 3)
        await asyncio.sleep(3600)
        return "late"


    @workflow
    async def job() -> str:
        return await slow()


    async def main() -> None:
        async with Perdure(url) as app:
            run = await app.start(job.options(id="a"))
            if how.startswith("closes"):
                await begun.wait()
                asyncio.get_running_loop().call_later(0.05, is_closing)
                return
            if how == "forks":
                await begun.wait()
                forks()
            print(await run.result())


    def is_closing() -> None:
        print("closing", flush=True)
        closing.set()


    def forks() -> None:
        child = os.fork()
        if not child:
            # In one piece each, for both write into one pipe.
            os.write(1, b"child\\n")
            time.sleep(3600)
        os.write(1, f"{child}\\n".encode())
        print(os.waitpid(child, 0)[1], flush=True)


    async def in_the_background() -> None:
        task = asyncio.create_task(main())
        await (closing if how.startswith("closes") else begun).wait()
        del task


    async def left_open() -> None:
        app = await Perdure(url).__aenter__()
        await app.start(job.options(id="a"))
        await begun.wait()


    async def twice() -> None:
        async with Perdure(url), Perdure(url, queues=["other"]) as app:
            await app.start(job.options(id="b", queue="other"))
            await main()


    def over_a_bridge() -> None:
        app = Perdure(url).sync().open()
        run = app.start(job.options(id="a"))
        if how == "exits over a bridge":
            while not begun.is_set():
                time.sleep(0.01)
            sys.exit(3)
        print(run.result())


    def forks_beside_a_bridge() -> None:
        app = Perdure(url).sync().open()
        run = app.start(job.options(id="a"))
        while not begun.is_set():
            time.sleep(0.01)
        child = os.fork()
        if not child:
            sys.exit(0)
        print(os.waitpid(child, 0)[1], run.describe().status, flush=True)
        run.result()


    match how:
        case "over a bridge" | "exits over a bridge":
            over_a_bridge()
        case "forks beside a bridge":
            forks_beside_a_bridge()
        case "on a bare loop" | "exits on a bare loop":
            asyncio.new_event_loop().run_until_complete(main())
        case "in the background" | "closes in the background":
            asyncio.run(in_the_background())
        case "left open":
            asyncio.run(left_open())
        case "twice":
            asyncio.run(twice())
        case _:
            asyncio.run(main())
    """)


class Program:
    """The script as a process."""

    started: ClassVar[list[subprocess.Popen[str]]] = []

    def __init__(self, folder: Path, url: str, how: str) -> None:
        script = folder / "slow.py"
        script.write_text(SCRIPT)
        self._process = subprocess.Popen(
            [sys.executable, str(script), url, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.started.append(self._process)
        self.send = self._process.send_signal

    def says(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip()

    def ends(self) -> int:
        self.said, self.complained = self._process.communicate(timeout=60)
        return self._process.returncode


@pytest.fixture(autouse=True)
def all_end() -> Iterator[None]:
    yield
    for process in Program.started:
        process.kill()
        process.communicate()
    Program.started.clear()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, quick_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("empty_url"))
    return f"sqlite:///{quick_path}/test.db"


async def seen(url: str, id: str = "a") -> RunInfo:
    async with Perdure(url, worker=False) as app:
        return await (await app.get(id)).describe()


async def check_handed_back(url: str, id: str = "a") -> None:
    """Nobody owns it, nothing is held against it, and the next worker finds it at once."""
    info = await seen(url, id)
    assert (info.status, info.held, info.losses) == ("PENDING", None, 0)


async def test_a_script_that_is_stopped_again_and_again_goes_on_each_time(url: str, tmp_path: Path) -> None:
    """A deploy, an editor's stop button, a container's end: nine of these held the run, and the script hung."""
    # To start a process takes longer than all else.
    for number in (signal.SIGTERM, signal.SIGHUP) * (5 if url.startswith("sqlite") else 2):
        program = Program(tmp_path, url, "")
        assert program.says() == "begun"
        program.send(number)
        assert (program.ends(), program.said, program.complained) == (-number, "", "")
        await check_handed_back(url)
    program = Program(tmp_path, url, "ends")
    assert (program.ends(), program.said) == (0, "begun\ndone\n")


@pytest.mark.parametrize(
    ("how", "number", "code"),
    [
        ("over a bridge", signal.SIGTERM, -signal.SIGTERM),
        ("over a bridge", signal.SIGINT, -signal.SIGINT),
        ("exits over a bridge", None, 3),
        ("on a bare loop", signal.SIGTERM, -signal.SIGTERM),
        ("exits on a bare loop", None, 3),
        ("", signal.SIGINT, -signal.SIGINT),
        ("in the background", None, 0),
        ("left open", None, 0),
    ],
)
async def test_whichever_way_a_program_ends_nobody_is_blamed(
    url: str, tmp_path: Path, how: str, number: int | None, code: int
) -> None:
    """Who notices that it ends can say so; only a kill looks like a crash."""
    program = Program(tmp_path, url, how)
    assert program.says() == "begun"
    if number is not None:
        program.send(number)
    assert program.ends() == code
    await check_handed_back(url)


async def test_all_that_are_open_hand_back(tmp_path: Path, quick_path: Path) -> None:
    url = f"sqlite:///{quick_path}/test.db"
    program = Program(tmp_path, url, "twice")
    assert [program.says(), program.says()] == ["begun", "begun"]
    program.send(signal.SIGTERM)
    assert program.ends() == -signal.SIGTERM
    for id in ("a", "b"):
        await check_handed_back(url, id)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_one_that_is_closing_waits_for_no_activity_any_more(url: str, tmp_path: Path, number: int) -> None:
    """Who is told to end while an activity may finish for ten seconds must not be killed for that.

    Ctrl-C cancels the closing itself: nothing was handed back, and the end of the loop counted as a failed attempt.
    """
    program = Program(tmp_path, url, "closes")
    assert [program.says(), program.says()] == ["begun", "closing"]
    program.send(number)
    assert program.ends() == -number
    await check_handed_back(url)


async def test_one_that_is_closing_when_its_loop_ends_hands_back(url: str, tmp_path: Path) -> None:
    """The end of a loop cancels all tasks at once: the activities, and the one that closes."""
    program = Program(tmp_path, url, "closes in the background")
    assert [program.says(), program.says()] == ["begun", "closing"]
    assert program.ends() == 0
    await check_handed_back(url)


async def test_a_process_that_hangs_ends_all_the_same(tmp_path: Path, quick_path: Path) -> None:
    """Nothing can be handed back by a loop that stands still; but it must not keep the process for ever."""
    url = f"sqlite:///{quick_path}/test.db"
    program = Program(tmp_path, url, "hangs")
    assert program.says() == "begun"
    program.send(signal.SIGTERM)
    assert program.ends() == -signal.SIGTERM
    assert "runs could not be handed back within 0.2 s" in program.complained


async def test_a_second_signal_ends_a_process_on_the_spot(tmp_path: Path, quick_path: Path) -> None:
    program = Program(tmp_path, f"sqlite:///{quick_path}/test.db", "hangs for ever")
    assert program.says() == "begun"
    program.send(signal.SIGTERM)
    assert program.says() == "told"
    program.send(signal.SIGTERM)
    assert program.ends() == -signal.SIGTERM


async def test_a_forked_child_dies_of_the_signal_as_ever(tmp_path: Path, quick_path: Path) -> None:
    """A pool of processes is ended by SIGTERM; what its parent has opened is not its own to hand back."""
    url = f"sqlite:///{quick_path}/test.db"
    program = Program(tmp_path, url, "forks")
    told = [program.says() for _ in range(3)]
    child = int(next(word for word in told if word.isdigit()))
    os.kill(child, signal.SIGTERM)
    assert program.says() == str(int(signal.SIGTERM))
    program.send(signal.SIGTERM)
    assert program.ends() == -signal.SIGTERM


async def test_a_forked_child_that_exits_hands_back_nothing(url: str, tmp_path: Path) -> None:
    """It has inherited what is done at the exit of a program, and whatever that would hand back is its parent's."""
    program = Program(tmp_path, url, "forks beside a bridge")
    assert program.says() == "begun"
    assert program.says() == "0 RUNNING"
    program.send(signal.SIGTERM)
    assert program.ends() == -signal.SIGTERM
    assert "handed back" not in program.complained
    await check_handed_back(url)


# Handlers


@pytest.fixture(autouse=True)
def nobody_handles() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in SIGNALS]


def somebody_elses(number: int, frame: FrameType | None) -> None:
    """Never called."""


async def test_handlers_are_set_while_a_worker_is_open_and_taken_back(tmp_path: Path) -> None:
    """Signals of a program that has nothing open are none of our business."""
    default = [signal.SIG_DFL, signal.SIG_DFL]
    async with Perdure("sqlite://", worker=False):
        assert handlers() == default
    async with Perdure("sqlite://"):
        ours = handlers()
        assert signal.SIG_DFL not in ours
        async with Perdure("sqlite://"):
            assert handlers() == ours
        assert handlers() == ours
    assert handlers() == default


async def test_somebody_elses_handlers_are_left_alone() -> None:
    """Set before or after: a web server has its own way of ending. And `nohup` means it."""
    signal.signal(signal.SIGTERM, somebody_elses)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    async with Perdure("sqlite://"):
        assert handlers() == [somebody_elses, signal.SIG_IGN]
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert handlers() == [signal.SIG_DFL, signal.SIG_IGN]
    async with Perdure("sqlite://"):
        signal.signal(signal.SIGTERM, somebody_elses)
    assert handlers() == [somebody_elses, signal.SIG_IGN]


async def test_another_thread_sets_no_handlers() -> None:
    """Python lets only the main thread do that; opening must not fail for it."""

    def opens() -> list[object]:
        with Perdure("sqlite://").sync():
            return handlers()

    assert await asyncio.to_thread(opens) == [signal.SIG_DFL, signal.SIG_DFL]


def test_a_bridge_that_the_main_thread_opens_sets_them() -> None:
    with Perdure("sqlite://").sync():
        assert signal.SIG_DFL not in handlers()
    assert handlers() == [signal.SIG_DFL, signal.SIG_DFL]
