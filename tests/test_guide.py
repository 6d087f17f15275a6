"""The guide is true: every Python block of it runs, in its order, and prints exactly what is shown below it.

The blocks of a page share one module and one database. A block that begins with the name of
a file is a program of its own: it is saved under that name and run. All other blocks run here,
with `app` open, on a clock that jumps to whatever is due next: three days take no time.
"""

import ast
import asyncio
import inspect
import math
import re
import sys
from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import perdure
from perdure.app import Perdure, Run, SyncPerdure
from perdure.authoring.activity import activities
from perdure.authoring.sinks import sinks
from perdure.authoring.workflow import workflows
from perdure.engine.duties.finding import SinkFinder
from perdure.engine.subscriptions.subscriptions import StoreSubscriptions
from perdure.engine.watch import Watch
from perdure.stores.sqlite.store import SqliteStore
from perdure.stores.urls import file_of
from perdure.testing import VirtualClock
from perdure.worker.worker import Worker

GUIDE = Path(__file__).parent.parent / "docs" / "guide"
PROGRAM = re.compile(r"# (\w+\.py)\n")

# What happens again and again, however long nobody waits for anything.
HOUSEKEEPING = {Watch.wake, Worker.sweep, StoreSubscriptions.wake, SinkFinder.wake}
CALM_TURNS = 40


class Block(NamedTuple):
    """A piece of Python, the line of its page it begins at, and what it prints; a program, each time it is run."""

    page: str
    line: int
    code: str
    outputs: tuple[str, ...] = ()


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page, in their order."""
    text, blocks = PAGES[page], list[Block]()
    for match in re.finditer(r"^```(?P<kind>\w+)\n(?P<body>.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if match["kind"] == "python":
            blocks.append(Block(page, text.count("\n", 0, match.start()) + 2, match["body"]))
        elif match["kind"] == "text":
            blocks[-1] = blocks[-1]._replace(outputs=(*blocks[-1].outputs, match["body"]))
    return blocks


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still until it is moved on."""

    now = 0.0

    def time(self) -> float:
        return self.now

    @property
    def next_in(self) -> float:
        """Seconds until the next of its timers is due."""
        times = [timer.when() for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        return min(times, default=math.inf) - self.now


class Time:
    """Lets time pass, for the engine and for the code around it alike, once nothing can happen without."""

    def __init__(self, clock: VirtualClock, apps: list[Perdure]) -> None:
        self._clock = clock
        self._apps = apps

    async def until_done(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        while not task.done():
            await self._settle()
            if not task.done():
                self._jump()
        await task

    async def _settle(self) -> None:
        calm = 0
        while calm < CALM_TURNS:
            await asyncio.sleep(0)
            calm = calm + 1 if all(map(_is_idle, self._apps)) else 0

    def _jump(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        seconds = min(loop.next_in, self._next_in)
        # With nothing to wait for, a second may still bring what housekeeping finds.
        seconds = max(seconds, 0.0) if math.isfinite(seconds) else 1.0
        loop.now += seconds
        self._clock.advance(round(seconds * 1000))

    @property
    def _next_in(self) -> float:
        """Seconds until the engine has something to do."""
        due_in = self._clock.due_in(lambda callback: getattr(callback, "__func__", None) in HOUSEKEEPING)
        return math.inf if due_in is None else due_in / 1000


def _is_idle(app: Perdure) -> bool:
    engine: Any = app._engine
    worker = app._worker
    return engine is None or ((engine.is_idle or engine.is_stalled) and (worker is None or worker.is_idle))


def _trimmed(output: str) -> str:
    """Without the spaces at the ends of lines, which no guide keeps."""
    return re.sub(r" +$", "", output, flags=re.MULTILINE)


class Reader:
    """Somebody who tries out a page of the guide."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.module = ModuleType("guide")
        self._folder = folder
        self._clock, self._apps = VirtualClock(), list[Perdure]()
        monkeypatch.chdir(folder)
        monkeypatch.setitem(sys.modules, "guide", self.module)
        # Names of workflows are those of the process; here nobody else has any.
        monkeypatch.setattr(workflows, "_known", {})
        monkeypatch.setattr(activities, "_known", {})
        monkeypatch.setattr(sinks, "_known", {})
        monkeypatch.setattr(perdure, "Perdure", self._perdure())

    def _perdure(self) -> type[Perdure]:
        clock, apps = self._clock, self._apps

        class GuidesPerdure(Perdure):
            """The real thing, by the guide's clock."""

            def __init__(self, url: str, **options: Any) -> None:
                # Housekeeping would have to see to parked runs, and is skipped.
                super().__init__(url, park_after=timedelta(days=36_500), **options)
                self._store = SqliteStore(None if file_of(url) is None else str(file_of(url)), threads=False)
                self._clock = clock
                self._heartbeat = None
                self._given = options
                apps.append(self)

            def sync(self) -> SyncPerdure:
                # On a thread of its own time passes by itself.
                return Perdure(self.url, **self._given).sync()

        return GuidesPerdure

    async def read(self, blocks: list[Block], capsys: pytest.CaptureFixture[str]) -> None:
        async with perdure.Perdure("sqlite:///guide.db", grace=0) as app:
            self.module.__dict__["app"] = app
            for block in blocks:
                shown = [output async for output in self._try_out(block, capsys)]
                assert (block.line, shown) == (block.line, [*(block.outputs or [""])])

    async def _try_out(self, block: Block, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[str]:
        program = PROGRAM.match(block.code)
        if program is None:
            await Time(self._clock, self._apps).until_done(self._run(block))
            yield _trimmed(capsys.readouterr().out)
            return
        (self._folder / program[1]).write_text(block.code)
        for _ in block.outputs or [""]:
            yield _trimmed(await self._run_program(program[1]))

    async def _run(self, block: Block) -> None:
        # Line for line as in the guide, so that tracebacks lead there.
        source = "\n" * (block.line - 1) + block.code
        code = compile(source, str(GUIDE / block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        result = eval(code, self.module.__dict__)
        if inspect.isawaitable(result):
            await result

    async def _run_program(self, name: str) -> str:
        process = await asyncio.create_subprocess_exec(sys.executable, name, stdout=-1, stderr=-1, cwd=self._folder)
        output, errors = await process.communicate()
        assert errors.decode() == ""
        return output.decode()


PAGES = {path.name: path.read_text() for path in sorted(GUIDE.glob("*.md"))}
TEXT = "\n".join(PAGES.values())
BLOCKS = {page: blocks for page in PAGES if (blocks := blocks_of(page))}


@pytest.mark.parametrize("page", BLOCKS)
def test_a_section_does_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = Reader(monkeypatch, tmp_path)
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(reader.read(BLOCKS[page], capsys))


def test_every_public_name_stands_in_the_guide() -> None:
    methods = [name for kind in (Perdure, Run) for name in vars(kind) if not name.startswith("_")]
    assert [name for name in [*perdure.__all__, *methods] if not re.search(rf"\b{name}\b", TEXT)] == []


def anchors_in(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_within_the_guide_leads_somewhere(page: str) -> None:
    for target, anchor in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", PAGES[page]):
        path = GUIDE / (target or page)
        assert path.is_file(), target
        assert not anchor or anchor in anchors_in(path.read_text()), anchor


def test_the_index_leads_to_every_page() -> None:
    assert set(re.findall(r"\]\((\w[\w-]*\.md)\)", PAGES["index.md"])) == set(PAGES) - {"index.md"}
