"""What workflow code must not do is refused: when it is decorated as far as its code tells, else when it runs."""

import asyncio
import linecache
import logging
import random
import re
import signal
import subprocess
import sys
import textwrap
import time
import traceback
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from perdure import NotAllowedInWorkflow, RunFailed, Workflow, activity, now, side_effect, sleep, workflow
from perdure.testing import Environment

SEES_CALLS = sys.version_info >= (3, 12)
HERE = Path(__file__)

# Each line that must be refused says so, and what the error names.
REFUSED = {
    "a clock": """
        import time
        @workflow
        async def judged() -> float:
            return time.time()  #! time.time() .. now()
        """,
    "a clock by another name": """
        from time import time as t
        @workflow
        async def judged() -> float:
            return t()  #! time.time() .. now()
        """,
    "a clock for durations": """
        import time
        @workflow
        async def judged() -> float:
            return time.perf_counter()  #! time.perf_counter() .. get_running_loop().time()
        """,
    "a clock read only without an argument": """
        import time
        @workflow
        async def judged() -> object:
            return time.localtime(0), time.localtime()  #! time.localtime() .. now()
        """,
    "a class method of a class in a module": """
        import datetime as dt
        @workflow
        async def judged() -> object:
            return dt.datetime.now(dt.UTC)  #! datetime.datetime.now() .. now()
        """,
    "a class method": """
        from datetime import date, datetime
        @workflow
        async def judged() -> object:
            return (
                date.today(),  #! datetime.date.today() .. now()
                datetime.utcnow(),  #! datetime.datetime.utcnow() .. now()
            )
        """,
    "a module imported inside": """
        @workflow
        async def judged() -> object:
            import time
            return time.time()  #! time.time() .. now()
        """,
    "a submodule imported inside by another name": """
        @workflow
        async def judged() -> object:
            import os.path as p
            return p.exists("x")  #! os.path.exists() .. activity
        """,
    "a function imported inside": """
        @workflow
        async def judged() -> object:
            from random import choice as pick
            return pick([1, 2])  #! random.choice() .. rng()
        """,
    "a library that is not even there": """
        @workflow
        async def judged() -> object:
            import httpx
            async with httpx.AsyncClient() as client:  #! httpx.AsyncClient() .. activity
                return await client.get("http://localhost")
        """,
    "a function of a library that is not there": """
        @workflow
        async def judged() -> object:
            from requests import get
            return get("http://localhost")  #! requests.get() .. activity
        """,
    "sleeping": """
        import time
        @workflow
        async def judged() -> None:
            time.sleep(1)  #! time.sleep() .. await sleep(
        """,
    "chance": """
        import random
        @workflow
        async def judged() -> object:
            random.shuffle([1])  #! random.shuffle() .. rng()
            random.Random()  #! random.Random() .. give it a seed
            return random.SystemRandom().random()  #! random.SystemRandom() .. rng()
        """,
    "secrets": """
        import os, secrets
        @workflow
        async def judged() -> object:
            secrets.token_hex()  #! secrets.token_hex() .. activity
            return os.urandom(4)  #! os.urandom() .. activity
        """,
    "ids": """
        import uuid
        from uuid import uuid4
        @workflow
        async def judged() -> object:
            uuid4()  #! uuid.uuid4() .. perdure's uuid4()
            return uuid.uuid1()  #! uuid.uuid1() .. perdure's uuid4()
        """,
    "the environment, called or not": """
        import os
        from os import environ
        @workflow
        async def judged() -> object:
            os.getenv("A")  #! os.getenv() .. side_effect
            os.environ.get("A")  #! os.environ .. side_effect
            "A" in environ  #! os.environ .. side_effect
            return os.environ["A"]  #! os.environ .. side_effect
        """,
    "files": """
        import os, tempfile
        from pathlib import Path
        @workflow
        async def judged() -> object:
            with open("x") as file:  #! open() .. activity
                os.listdir(".")  #! os.listdir() .. activity
                tempfile.mkdtemp()  #! tempfile.mkdtemp() .. activity
                Path.cwd()  #! pathlib.Path.cwd() .. activity
                return file.read()
        """,
    "asking a person": """
        @workflow
        async def judged() -> object:
            return input("well?")  #! input() .. signal
        """,
    "the network": """
        import socket, urllib.request
        from urllib.request import urlopen
        @workflow
        async def judged() -> object:
            urlopen("http://localhost")  #! urllib.request.urlopen() .. activity
            socket.create_connection(("localhost", 1))  #! socket.create_connection() .. activity
            return urllib.request.urlopen("http://localhost")  #! urllib.request.urlopen() .. activity
        """,
    "processes": """
        import os, subprocess
        @workflow
        async def judged(*command: str) -> object:
            os.system("true")  #! os.system() .. activity
            return subprocess.run(*command)  #! subprocess.run() .. activity
        """,
    "threads": """
        import asyncio, threading
        from concurrent.futures import ThreadPoolExecutor
        @workflow
        async def judged() -> object:
            threading.Thread(target=print).start()  #! threading.Thread() .. asyncio tasks
            ThreadPoolExecutor()  #! concurrent.futures.ThreadPoolExecutor() .. asyncio tasks
            asyncio.run(judged.fn())  #! asyncio.run() .. await the coroutine
            return await asyncio.to_thread(print)  #! asyncio.to_thread() .. plain `def`
        """,
    "a helper": """
        import time
        def stamp() -> float:
            return time.time()  #! time.time() .. in stamp, reached by the workflow 'judged'
        @workflow
        async def judged() -> float:
            return stamp()
        """,
    "a helper of a helper that is only passed on": """
        import random
        def key(_: int) -> float:
            return random.random()  #! random.random() .. in key, reached
        def mixed(items: list[int]) -> list[int]:
            return sorted(items, key=key)
        @workflow
        async def judged() -> object:
            return mixed([1])
        """,
    "wrapped helpers": """
        import contextlib, functools, time
        @functools.cache
        def stamp() -> float:
            return time.time()  #! time.time() .. in stamp, reached
        @contextlib.contextmanager
        def timed():
            yield time.time()  #! time.time() .. in timed, reached
        @workflow
        async def judged() -> object:
            with timed():
                return stamp()
        """,
    "a workflow in another module's wrapper": """
        import contextlib, time
        @contextlib.asynccontextmanager
        async def traced():
            yield
        @workflow
        @traced()
        async def judged() -> object:
            return time.time()  #! time.time() .. in judged:
        """,
    "code inside": """
        import time, uuid
        @workflow
        async def judged() -> object:
            def inner() -> float:
                return time.time()  #! time.time() .. in judged:
            first = lambda: uuid.uuid4()  #! uuid.uuid4() .. in judged:
            return [uuid.uuid4() for _ in range(2)], inner(), first()  #! uuid.uuid4() .. in judged:
        """,
    "a method of a class it makes": """
        import time
        class Order:
            def __init__(self) -> None:
                self.made = time.time()  #! time.time() .. in Order.__init__, reached
            @property
            def age(self) -> float:
                return time.time() - self.made  #! time.time() .. in Order.age, reached
            @classmethod
            def make(cls) -> "Order":
                return cls()
            def save(self) -> None:
                open("order", "w").close()
        @workflow
        async def judged() -> float:
            return Order.make().age
        """,
    "a method of a parameter": """
        import time
        class Order:
            def age(self) -> float:
                return time.time()  #! time.time() .. in Order.age, reached
        @workflow
        async def judged(order: Order) -> float:
            return order.age()
        """,
    "a method of an object of the module": """
        import time
        class Clock:
            def time(self) -> float:
                return time.time()  #! time.time() .. in Clock.time, reached
        clock = Clock()
        @workflow
        async def judged() -> float:
            return clock.time()
        """,
    "an inherited method": """
        import time
        class Base:
            def age(self) -> float:
                return time.time()  #! time.time() .. in Base.age, reached
        class Order(Base):
            def age_of(self) -> float:
                return super().age()
        @workflow
        async def judged() -> float:
            return Order().age_of()
        """,
    "a call over several lines": """
        import time
        @workflow
        async def judged() -> object:
            return max(
                1,
                time.localtime(  #! time.localtime() .. now()
                ),
            )
        """,
    "what stands beside a side effect": """
        import time
        @workflow
        async def judged() -> object:
            return await side_effect(time.time), time.time()  #! time.time() .. now()
        """,
    "what a side effect and others call": """
        import time
        @workflow
        async def judged() -> object:
            def stamp() -> float:
                return time.time()  #! time.time() .. now()
            return await side_effect(stamp), stamp()
        """,
    "what the function around it imported": """
        def make():
            import time
            @workflow
            async def judged() -> object:
                return time.time()  #! time.time() .. now()
        make()
        """,
}

PASSED = {
    "what replays the same": """
        import asyncio
        from perdure import now, rng, sleep, uuid4
        @workflow
        async def judged() -> object:
            await asyncio.sleep(1)
            await sleep(asyncio.get_running_loop().time())
            return now(), uuid4(), rng().random()
        """,
    "printing and logging": """
        import logging
        log = logging.getLogger("judged")
        @workflow
        async def judged() -> None:
            print("here")
            log.info("here")
        """,
    "random numbers of a seed": """
        import random
        @workflow
        async def judged(seed: int) -> float:
            return random.Random(seed).random() + random.Random(x=seed).random()
        """,
    "what is computed from its arguments": """
        import datetime as dt, time, uuid, os.path
        @workflow
        async def judged() -> object:
            return dt.datetime(2030, 1, 1), time.gmtime(0), uuid.uuid5(uuid.NAMESPACE_DNS, "x"), os.path.join("a", "b")
        """,
    "names that are merely mentioned": """
        import time, uuid
        from datetime import datetime
        @activity
        async def judged_call(how: str) -> None: ...
        @workflow
        async def judged(at: "datetime.now") -> object:
            def mentions(at: "datetime.now" = datetime.now) -> None: ...
            found: time.time = 1
            await judged_call(time.time.__name__)
            return uuid.uuid4 is time.time
        """,
    "names that stand for something else here": """
        import time
        @workflow
        async def judged(time: object, open: object) -> object:
            random = time
            return time.time(), open("x"), random.random(), [uuid4() for uuid4 in [print]]
        """,
    "a function of the module's own": """
        def open(name: str) -> str:
            return name
        @workflow
        async def judged() -> object:
            return open("x")
        """,
    "activities, whatever they do": """
        import time
        @activity
        async def judged_stamps() -> float:
            return time.time()
        @activity(name="reads files")
        def reads() -> str:
            return open("x").read()
        @workflow
        async def judged() -> object:
            return await judged_stamps(), await reads(), await judged_stamps.options(timeout=1)()
        """,
    "other workflows, which are looked at by themselves": """
        import time
        @workflow(name="other judged")
        async def other() -> object:
            return time.time()  # perdure: ok
        @workflow
        async def judged() -> object:
            return await other()
        """,
    "side effects": """
        import os, random, time
        from functools import partial
        import perdure
        def stamp() -> float:
            return time.time()
        @workflow
        async def judged() -> object:
            def roll() -> float:
                return random.random()
            dice = lambda: random.random()
            from perdure import side_effect as record
            return (
                await side_effect(lambda: time.time()),
                await side_effect(stamp),
                await side_effect(roll),
                await side_effect(dice),
                await side_effect(lambda: roll() + dice()),
                await perdure.side_effect(partial(stamp)),
                await record(
                    lambda: os.environ["HOME"],
                ),
            )
        """,
    "lines that say so": """
        import time
        def stamp() -> float:
            return time.time()
        @workflow
        async def judged() -> object:
            print(time.time())  # perdure: ok
            print(stamp())  # perdure: ok - only shown to people
            return print(
                time.localtime(
                ),  # perdure: ok
            )
        """,
    "methods that are not called": """
        import dataclasses, uuid
        @dataclasses.dataclass
        class Order:
            name: str
            id: object = dataclasses.field(default_factory=uuid.uuid4)
            def save(self) -> None:
                open("order", "w").close()
        @workflow
        async def judged() -> object:
            return Order("x", id=1).name
        """,
    "helpers that nothing in the workflow uses": """
        import time
        def stamp() -> float:
            return time.time()
        @workflow
        async def judged() -> object:
            def unused() -> float:
                return time.time()
            return 1
        """,
    "objects that do things when they are looked at": """
        class Lazy:
            def __getattr__(self, name: str) -> object:
                raise RuntimeError(name)
            @property
            def __class__(self) -> type:
                raise RuntimeError("class")
        lazy = Lazy()
        @workflow
        async def judged() -> object:
            return lazy.now()
        """,
}


# What would take another way on a later Python.
AWAITING_IN_GROUPS = """
    async def call_off() -> None:
        try:
            await sleep(1)
        except* KeyError:
            async with asyncio.timeout(1):  #! `raise` or `await` .. 3.11.4
                pass
    @workflow
    async def judged() -> None:
        try:
            await call_off()
        except* ValueError:
            await sleep(1)  #! `except*` .. catch `ExceptionGroup`
        except* KeyError as errors:
            raise TypeError from errors  #! `except*` .. after the block
        await sleep(1)
    """
PASSED["groups of errors, and what comes after"] = """
    @workflow
    async def judged() -> None:
        failed = []
        try:
            await sleep(1)
        except* KeyError as errors:
            failed = [*failed, str(errors)]
        except* ValueError:
            raise
        else:
            await sleep(1)
        if failed:
            raise TypeError(*failed)
    """
(REFUSED if sys.version_info < (3, 11, 4) else PASSED)["awaiting in a group"] = AWAITING_IN_GROUPS


class Module:
    """A module of a user's, from its source; workflows in it are decorated by the real decorator."""

    def __init__(self, source: str, path: Path) -> None:
        self.source = textwrap.dedent(source)
        path.write_text(self.source)
        self.path = path
        self.module = ModuleType("refusal_case")
        vars(self.module).update(workflow=workflow, activity=activity, side_effect=side_effect)
        linecache.checkcache(str(path))
        exec(compile(self.source, str(path), "exec"), vars(self.module))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


@pytest.mark.parametrize("title", REFUSED)
def test_what_a_replay_would_not_repeat_is_refused_when_it_is_decorated(title: str, tmp_path: Path) -> None:
    """With every place, what stands there, and what to write instead."""
    path = tmp_path / "judged.py"
    with pytest.raises(NotAllowedInWorkflow) as refused:
        Module(REFUSED[title], path)

    *others, hint = refused.value.__notes__
    assert "# perdure: ok" in hint
    told = sorted([str(refused.value), *(note.removeprefix("also: ") for note in others)])
    wanted = sorted(
        (f"{path}:{number} in ", *line.partition("#! ")[2].split(" .. "))
        for number, line in enumerate(textwrap.dedent(REFUSED[title]).splitlines(), 1)
        if "#! " in line
    )
    assert len(told) == len(wanted)
    for text, parts in zip(told, wanted, strict=True):
        assert all(part in text for part in parts), (text, parts)


@pytest.mark.parametrize("title", PASSED)
def test_what_does_no_harm_is_not_refused(title: str, tmp_path: Path) -> None:
    assert isinstance(Module(PASSED[title], tmp_path / "judged.py").judged, Workflow)


def test_code_without_a_source_is_looked_at_too() -> None:
    """In a console, or given to `python -c`."""
    program = "import perdure, time\n@perdure.workflow\nasync def judged(): return time.time()"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "<string>:3 in judged: time.time() is not possible inside a workflow" in shown.stderr


def test_code_without_columns_is_looked_at_too(tmp_path: Path) -> None:
    """Python can be told to leave them out; then a line with a side effect is left alone."""
    (tmp_path / "judged.py").write_text(
        "import perdure, time\n"
        "@perdure.workflow\n"
        "async def judged():\n"
        "    await perdure.side_effect(lambda: time.time())\n"
        "    return time.time()\n"
    )
    shown = subprocess.run(
        [sys.executable, "-X", "no_debug_ranges", "judged.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "judged.py:5 in judged: time.time() is not possible" in shown.stderr
    assert "also" not in shown.stderr


# Helpers that come later in the module

LATE = """
    from perdure import sleep
    import time
    @workflow
    async def judged(seconds: float) -> float:
        await sleep(seconds)
        await sleep(seconds)
        return stamp()
    def stamp() -> float:
        return {call}
    """


def late(path: Path, call: str) -> Module:
    return Module(LATE.format(call=call), path)


@workflow
async def goes_unharmed(number: int) -> int:
    return number


async def test_a_helper_defined_later_is_found_before_the_first_run(
    env: Environment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Told in the log when the worker begins, and by each run; other workflows go on."""
    module = late(tmp_path / "judged.py", "time.time()")
    async with env:
        assert f"{module.path}:10 in stamp, reached by the workflow 'judged': time.time()" in caplog.text
        run = await env.start(module.judged, 0)
        with pytest.raises(RunFailed, match=r"time.time\(\) is not possible inside a workflow.*use now\(\)") as failed:
            await env.result(run)
        assert isinstance(failed.value.__cause__, NotAllowedInWorkflow)
        assert await env.result(await env.start(goes_unharmed, 3)) == 3


async def test_so_is_one_in_a_module_that_is_imported_while_a_worker_runs(env: Environment, tmp_path: Path) -> None:
    async with env:
        module = late(tmp_path / "judged.py", "time.time()")
        with pytest.raises(RunFailed, match=r"time.time\(\) is not possible inside a workflow"):
            await env.result(await env.start(module.judged, 0))


async def test_runs_under_way_are_held_by_such_a_helper_and_go_on_without_it(env: Environment, tmp_path: Path) -> None:
    """A bad version must not end the runs that a good one began."""
    async with env:
        versions = [late(tmp_path / "good.py", "1.0")]
        await env.start(versions[0].judged.options(id="under way"), 60)
        await env.pass_time(61)
        versions.append(late(tmp_path / "bad.py", "time.time()"))
        await env.crash()
        await env.pass_time(61)
        run = await env.app.get("under way")
        assert (await run.describe()).held == "mismatch"

        versions.append(late(tmp_path / "better.py", "2.0"))
        await env.crash()
        assert await env.result(await env.app.get("under way")) == 2.0


# While it runs: files, sockets, processes


def function(module: str, name: str) -> Callable[..., Any]:
    """A function as no look at the code can find it."""
    found: Callable[..., Any] = vars(sys.modules[module])[name]
    return found


@workflow
async def touches_the_world(how: str, path: str) -> object:  # noqa: PLR0911 - one for each way
    match how:
        case "a method":
            return Path(path).read_text()
        case "another module":
            return zipfile.is_zipfile(path)
        case "a folder":
            return [each.name for each in Path(path).parent.iterdir()]
        case "a process":
            return function("subprocess", "run")(["cat", path], check=False)
        case "a socket":
            return function("socket", "create_connection")(("127.0.0.1", 9))
        case "a database":
            return function("sqlite3", "connect")(path)
        case "a failure it expects":
            try:
                return zipfile.is_zipfile(path)
            except OSError:
                return False
        case _:
            return zipfile.is_zipfile(path)  # perdure: ok


REFUSED_RUNNING = {
    "a method": r"(open|pathlib.Path.read_text)\(",
    "another module": r"open\('.*file'\)",
    "a folder": r"(os.listdir|os.scandir|pathlib.Path.iterdir)\(",
    "a process": r"subprocess\.(Popen\('cat'\)|run\(\))",
    "a socket": r"socket\.",
    "a database": r"sqlite3\.connect\(",
    "a failure it expects": r"open\('.*file'\)",
}


@pytest.mark.parametrize("how", REFUSED_RUNNING)
async def test_files_sockets_and_processes_are_refused_at_the_call(env: Environment, how: str, tmp_path: Path) -> None:
    """Whoever makes it, and however it is imported; the run fails, its neighbours do not."""
    path = tmp_path / "file"
    path.write_text("text")
    async with env:
        run, neighbour = await env.start(touches_the_world, how, str(path)), await env.start(goes_unharmed, 3)
        with pytest.raises(
            RunFailed,
            match=rf"{HERE}:\d+ in touches_the_world.*: {REFUSED_RUNNING[how]}.* not possible inside a workflow",
        ) as failed:
            await env.result(run)
        assert isinstance(failed.value.__cause__, NotAllowedInWorkflow)
        assert await env.result(neighbour) == 3


async def test_a_line_that_says_so_may_open_files(env: Environment, tmp_path: Path) -> None:
    async with env:
        (tmp_path / "file").write_text("text")
        assert await env.result(await env.start(touches_the_world, "accepted", str(tmp_path / "file"))) is False


@activity
async def writes_at_once(path: str) -> float:
    Path(path).write_text("at once")
    return time.time()


@activity
async def writes_in_a_task(path: str) -> float:
    await asyncio.sleep(0)
    Path(path).write_text("in a task")
    return time.time()


@activity
def writes_in_a_thread(path: str) -> float:
    Path(path).write_text("in a thread")
    return time.time()


@workflow
async def writes_files(path: str) -> list[str]:
    found = []
    for write in (writes_at_once, writes_in_a_task, writes_in_a_thread):
        await write(path)
        found.append(await side_effect(lambda: Path(path).read_text()))
    await side_effect(lambda: Path(path).unlink())
    return found


async def test_activities_and_side_effects_may_do_everything(env: Environment, tmp_path: Path) -> None:
    async with env:
        run = await env.start(writes_files, str(tmp_path / "file"))
        assert await env.result(run) == ["at once", "in a task", "in a thread"]
        assert not (tmp_path / "file").exists()


@workflow
async def leaves_a_file(path: str) -> None:
    try:
        await sleep(3600)
    finally:
        Path(path).touch()


async def test_clean_up_of_a_run_that_only_leaves_memory_touches_nothing(env: Environment, tmp_path: Path) -> None:
    async with env:
        await env.start(leaves_a_file, str(tmp_path / "file"))
        await env.pass_time(1)
        await env.crash()
        assert not (tmp_path / "file").exists()


# What must pass although it opens files


class FailsAtItsEnd:
    def __del__(self) -> None:
        raise ValueError("at its end")


@workflow
async def needs_files(how: str) -> object:  # noqa: PLR0911 - one for each need
    match how:
        case "import":
            import refusals_lazily_imported  # type: ignore[import-not-found]  # the test writes it

            return refusals_lazily_imported.VALUE
        case "log":
            logging.getLogger("test.refusals").error("here")
            return None
        case "traceback":
            try:
                return 1 // 0
            except ZeroDivisionError:
                return traceback.format_exc()
        case "signal":
            signal.raise_signal(signal.SIGUSR1)
            return None
        case "unraisable":
            FailsAtItsEnd()
            return None
        case "zone":
            return now().astimezone(ZoneInfo.no_cache("Europe/Paris")).tzname()
        case _:
            print("here")
            return None


async def test_an_import_inside_a_workflow_works(
    env: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python lists folders and reads and writes files for it, and the module may do so as well."""
    (tmp_path / "file").write_text("text")
    (tmp_path / "refusals_lazily_imported.py").write_text(
        f"with open({str(tmp_path / 'file')!r}) as file: VALUE = file.read()"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.delitem(sys.modules, "refusals_lazily_imported", raising=False)
    async with env:
        assert await env.result(await env.start(needs_files, "import")) == "text"


async def test_a_log_may_open_its_file_inside_a_workflow(env: Environment, tmp_path: Path) -> None:
    logger, handler = logging.getLogger("test.refusals"), logging.FileHandler(tmp_path / "log", delay=True)
    logger.addHandler(handler)
    try:
        async with env:
            await env.result(await env.start(needs_files, "log"))
    finally:
        logger.removeHandler(handler)
        handler.close()
    assert "here" in (tmp_path / "log").read_text()


async def test_tracebacks_show_their_lines_inside_a_workflow(
    env: Environment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Those of the traceback module, and those Python writes by itself."""
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    async with env:
        linecache.clearcache()
        assert "return 1 // 0" in str(await env.result(await env.start(needs_files, "traceback")))
        await env.result(await env.start(needs_files, "unraisable"))
    shown = capfd.readouterr().err
    assert 'raise ValueError("at its end")' in shown
    assert "NotAllowedInWorkflow" not in shown


async def test_a_signal_handler_that_comes_in_between_may_open_files(env: Environment, tmp_path: Path) -> None:
    """It interrupts whatever runs; no run may fail for it."""
    before = signal.signal(signal.SIGUSR1, lambda _, __: (tmp_path / "file").write_text("text"))
    try:
        async with env:
            await env.result(await env.start(needs_files, "signal"))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (tmp_path / "file").read_text() == "text"


async def test_time_zones_and_printing_work_inside_a_workflow(
    env: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    async with env:
        assert await env.result(await env.start(needs_files, "zone")) in {"CET", "CEST"}
        await env.result(await env.start(needs_files, "print"))
    assert "here" in capsys.readouterr().out


# While it runs: every call of the workflow's own code, from Python 3.12 on


def given(value: object) -> object:
    return value


def called(fn: Callable[[], object]) -> object:
    return fn()


@dataclass
class Stamped:
    name: str
    at: datetime = field(default_factory=datetime.now)


@workflow
async def calls_in_any_way(how: str) -> object:  # noqa: PLR0911 - one for each way
    match how:
        case "by its name":
            return function("time", "time")()
        case "another each time":
            return [called(fn) for fn in (dict, list, function("time", "time_ns"))]
        case "a method of a class":
            return str(vars(sys.modules["datetime"])["datetime"].now())
        case "a method of an object":
            pick = function("random", "choice")
            return pick([1, 2])
        case "no seed":
            return function("random", "Random")().random()
        case "a seed":
            return function("random", "Random")(7).random()
        case "a default":
            return Stamped("x").name
        case "a default that is given":
            return Stamped("x", now()).name
        case "nothing in particular":
            asyncio.current_task().add_done_callback(print)  # type: ignore[union-attr]  # it runs in one
            return given(None)
        case _:
            return function("time", "time")() > 0  # perdure: ok


NAMED_IN_CALLS = {
    "by its name": "time.time",
    "another each time": "time.time_ns",
    "a method of a class": "datetime.datetime.now",
    "a method of an object": "random.choice",
    "no seed": "random.Random",
    "a default": "datetime.datetime.now",
}


@pytest.mark.skipif(not SEES_CALLS, reason="Python 3.11 cannot tell")
@pytest.mark.parametrize("how", NAMED_IN_CALLS)
async def test_clocks_and_chance_are_refused_at_the_call(env: Environment, how: str) -> None:
    """In whatever way the function got there."""
    async with env:
        run, neighbour = await env.start(calls_in_any_way, how), await env.start(goes_unharmed, 3)
        with pytest.raises(RunFailed, match=rf"{re.escape(NAMED_IN_CALLS[how])}\(\) is not possible inside a workflow"):
            await env.result(run)
        assert await env.result(neighbour) == 3


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("a seed", random.Random(7).random()),
        ("a default that is given", "x"),
        ("nothing in particular", None),
        ("accepted", True),
    ],
)
async def test_calls_that_do_no_harm_are_not_refused(env: Environment, how: str, expected: object) -> None:
    async with env:
        assert await env.result(await env.start(calls_in_any_way, how)) == expected


async def test_outside_workflows_the_same_code_may_call_everything(env: Environment) -> None:
    async with env:
        await env.result(await env.start(calls_in_any_way, "a default that is given"))
        assert isinstance(called(time.time), float)
        assert Stamped("x").at.year > 2000


# What it does to the process


def run_program(program: str) -> str:
    shown = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False, timeout=60
    )
    return shown.stdout + shown.stderr


def test_nothing_is_hooked_before_a_worker_begins_and_then_once() -> None:
    """An audit hook cannot be taken back; a program that only imports us must not get one."""
    shown = run_program("""
        import asyncio, sys
        hooks = []
        sys.addaudithook(lambda event, args: hooks.append(event) if event == "sys.addaudithook" else None)
        from perdure import Perdure, workflow
        @workflow
        async def judged(): pass
        async def main():
            async with Perdure("sqlite://", worker=False):
                before = len(hooks)
            async with Perdure("sqlite://"), Perdure("sqlite://"):
                print(before, len(hooks))
        asyncio.run(main())
        """)
    assert shown == "0 1\n"


@pytest.mark.skipif(not SEES_CALLS, reason="Python 3.11 has no monitoring")
@pytest.mark.parametrize("taken", ["", "3", "3, 4"])
def test_debuggers_and_coverage_keep_their_place(taken: str) -> None:
    """Where every other place is taken, calls go unseen and everything else works."""
    shown = run_program(f"""
        import asyncio, sys, time
        for tool in [{taken}]:
            sys.monitoring.use_tool_id(tool, "other")
        from perdure import Perdure, workflow
        @workflow
        async def judged():
            return isinstance(getattr(time, "time")(), float)
        async def main():
            async with Perdure("sqlite://") as app:
                print([sys.monitoring.get_tool(tool) for tool in range(6)])
                print(await app.run(judged))
        asyncio.run(main())
        """)
    tools = {"": ("perdure", None), "3": ("other", "perdure"), "3, 4": ("other", "other")}[taken]
    assert str([None, None, None, *tools, None]) in shown
    assert ("True" in shown) == (taken == "3, 4")
    assert ("NotAllowedInWorkflow" in shown) == (taken != "3, 4")
