"""The demo: an order is killed with -9 half-way, started again, and finishes.

A worker process works the order of orders.py. This script only watches: it reads the
history on disk, and a file in which every activity leaves a line each time it runs. At
the end it compares the two, and fails when a recorded step ran twice.
"""

import signal
import sys

# Whoever stops it while all of this is being imported is spared a traceback as well.
INTERRUPTED = 130
signal.signal(signal.SIGINT, lambda *_: sys.exit(INTERRUPTED))

import asyncio
import os
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Self

from orders import Delivery, address, fulfil
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from perdure import Perdure, Run, RunEvent

ORDER = "o-17"
ADDRESS = "12 Mill Lane"
ITEMS = ["mug", "lamp", "desk", "sofa"]
STEPS = ["reserve", *(f"pack {item}" for item in ITEMS), "sleep", "address", "ship", "bill"]
KILL_AFTER = 3  # recorded steps: the order is reserved, two of four items are packed
ONCE_MORE = 2  # times a step may run that was under way at the kill
GIVE_UP_AFTER = 120.0  # seconds
LOOK_EVERY = 0.1

EXPECTED = Delivery(ORDER, [f"box with a {item}" for item in ITEMS], ADDRESS, f"track-{ORDER}")
TITLES = {
    "reserve": "reserve the order",
    "sleep": "sleep 1.5 s",
    "address": "signal: the address",
    "ship": "ship it",
    "bill": "send the bill",
}

RAN = Text("✓ ran", style="green")
AGAIN = Text("✓ ran again", style="yellow")
UNDER_WAY = Text("… under way", style="cyan")
KILLED = Text("✗ killed", style="red")
REMEMBERED = Text("↺ remembered", style="magenta")
NOTHING = Text("")

# Not activities: the order waits. How waiting and its end are shown, and which steps come before.
WAITS = {
    "sleep": (Text("… sleeps", style="cyan"), Text("✓ slept", style="green"), {f"pack {item}" for item in ITEMS}),
    "address": (Text("… waits for it", style="cyan"), Text("✓ received", style="green"), {"sleep"}),
}


class Story:
    """What has happened so far: who ran what, and what is on disk."""

    def __init__(self, effects: Path) -> None:
        self._effects = effects
        self.workers: list[int] = []
        self.recorded: set[str] = set()
        self.recorded_before_the_kill: set[str] = set()
        self.is_first_dead = False

    @property
    def lines(self) -> Counter[tuple[int, str]]:
        """How often each process ran each activity."""
        if not self._effects.exists():
            return Counter()
        found = (line.partition(" ") for line in self._effects.read_text(encoding="utf-8").splitlines())
        return Counter((int(pid), step_named(what)) for pid, _, what in found)

    @property
    def under_way_at_the_kill(self) -> list[str]:
        """What the first process had begun, and took with it."""
        return [s for s in STEPS if (self.workers[0], s) in self.lines and s not in self.recorded_before_the_kill]

    def runs_of(self, step: str) -> int:
        """How often an activity ran, in whatever process."""
        return sum(count for (_, ran), count in self.lines.items() if ran == step)

    def cell(self, worker: int, step: str, lines: Counter[tuple[int, str]]) -> Text:
        """What one process did with one step."""
        if step in WAITS:
            return self._wait(worker, step)
        is_first = worker == 0
        has_run = (self.workers[worker], step) in lines
        if is_first and self.is_first_dead:
            return RAN if step in self.recorded_before_the_kill else KILLED if has_run else NOTHING
        if not is_first and step in self.recorded_before_the_kill:
            has_begun = any(pid == self.workers[worker] for pid, _ in lines)
            return AGAIN if has_run else REMEMBERED if has_begun else NOTHING
        if step in self.recorded:
            return AGAIN if not is_first and (self.workers[0], step) in lines else RAN
        return UNDER_WAY if has_run else NOTHING

    def _wait(self, worker: int, step: str) -> Text:
        if worker == 0:
            return NOTHING
        waiting, over, before = WAITS[step]
        return over if step in self.recorded else waiting if before <= self.recorded else NOTHING

    def cells(self) -> list[list[Text]]:
        """For each step what each process did with it."""
        lines = self.lines
        return [[self.cell(worker, step, lines) for worker in range(len(self.workers))] for step in STEPS]


class Display:
    """The story on the screen: a live table on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console, story: Story) -> None:
        self._console = console
        self._story = story
        self._live = Live(console=console, refresh_per_second=12) if console.is_terminal else None
        self._told: dict[tuple[int, str], str] = {}
        self._notes: list[Text] = []

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.update(self._table())
            self._live.stop()

    def say(self, text: str, style: str = "bold") -> None:
        """Tell what the demo does."""
        note = Text(f"▸ {text}", style=style)
        self._notes.append(note)
        if self._live is None:
            self._console.print(note, soft_wrap=True)
        else:
            self._live.update(self._table())

    def refresh(self) -> None:
        """Show what is new."""
        if self._live is not None:
            self._live.update(self._table())
            return
        for step, row in zip(STEPS, self._story.cells(), strict=True):
            for worker, cell in enumerate(row):
                if cell.plain and self._told.get((worker, step)) != cell.plain:
                    self._told[worker, step] = cell.plain
                    pid = self._story.workers[worker]
                    self._console.print(f"  worker {pid}   {title(step):<22} {cell.plain}", soft_wrap=True)

    def _table(self) -> Group:
        table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold", pad_edge=False)
        table.add_column("step")
        for pid in self._story.workers:
            table.add_column(f"worker {pid}", min_width=14)
        for step, row in zip(STEPS, self._story.cells(), strict=True):
            table.add_row(title(step), *row)
        return Group(table, Text(), *self._notes)


def title(step: str) -> str:
    return TITLES.get(step, step.replace("pack", "pack the"))


def step_named(what: str) -> str:
    """The step of the demo a line of the effects file is about."""
    name, _, rest = what.partition(" ")
    return f"{name} {rest}" if name == "pack" else name


def step_of(event: RunEvent) -> str | None:
    """The step of the demo an event is about."""
    match event.kind:
        case "ActivityCompleted":
            arguments = event.body["arguments"]
            item = arguments.get("item") if isinstance(arguments, dict) else None
            return f"{event.body['name']} {item}" if item else str(event.body["name"])
        case "TimerFired":
            return "sleep"
        case "SignalReceived":
            return "address"
    return None


class Demo:
    """The order, the processes that work it, and the proof at the end."""

    def __init__(self, folder: Path, console: Console) -> None:
        self._url = f"sqlite:///{folder / 'orders.db'}"
        self._log = folder / "worker.log"
        self._effects = folder / "effects.log"
        self._console = console
        self._story = Story(self._effects)
        self._workers: list[subprocess.Popen[bytes]] = []
        self._began = time.monotonic()

    @property
    def log(self) -> str:
        """What the workers printed."""
        return self._log.read_text(encoding="utf-8") if self._log.exists() else ""

    async def play(self) -> bool:
        """Tell the story; answers whether the proof holds."""
        try:
            async with Perdure(self._url, worker=False) as app:
                with Display(self._console, self._story) as display:
                    run = await self._tell(app, display)
                return self._prove(await run.result())
        finally:
            for worker in self._workers:
                worker.kill()
                worker.wait()

    async def _tell(self, app: Perdure, display: Display) -> Run[Delivery]:
        run = await app.start(fulfil.options(id=ORDER), ORDER, ITEMS)
        display.say(f"order {ORDER} is on disk; worker {self._start_worker()} starts on it")
        await self._until(run, display, lambda: len(self._story.recorded) >= KILL_AFTER)

        await self._kill_worker(run, display)
        display.say(f"worker {self._start_worker()} starts: it has never seen this order")
        await self._until(run, display, lambda: "sleep" in self._story.recorded)

        display.say("the order waits for an address: sending the signal")
        await run.signal(address, ADDRESS)
        while not (await run.describe()).status.is_closed:
            await self._look(run, display)
        await self._look(run, display)
        return run

    def _start_worker(self) -> int:
        here = Path(__file__).parent
        command = [sys.executable, "-m", "perdure.cli", "worker", str(here / "orders.py"), "--url", self._url]
        with self._log.open("ab") as log:
            worker = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | {"DEMO_EFFECTS": str(self._effects)}
            )
        self._workers.append(worker)
        self._story.workers.append(worker.pid)
        return worker.pid

    async def _kill_worker(self, run: Run[Delivery], display: Display) -> None:
        worker = self._workers[-1]
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        # Only now is it certain what the dead process has put on disk.
        await self._look(run, display)
        self._story.recorded_before_the_kill = set(self._story.recorded)
        self._story.is_first_dead = True
        display.say(
            f"kill -9 {worker.pid}: {len(self._story.recorded)} steps are on disk, the rest was in its memory",
            "bold red",
        )
        display.refresh()

    async def _until(self, run: Run[Delivery], display: Display, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._look(run, display)

    async def _look(self, run: Run[Delivery], display: Display) -> None:
        """Read what is on disk, show it, wait a little."""
        if time.monotonic() - self._began > GIVE_UP_AFTER:
            raise TimeoutError(f"the demo takes longer than {GIVE_UP_AFTER:g} s")
        if self._workers[-1].poll() not in {None, -signal.SIGKILL}:
            raise ChildProcessError("the worker ended by itself")
        self._story.recorded = {step async for event in run.events() if (step := step_of(event)) is not None}
        display.refresh()
        await asyncio.sleep(LOOK_EVERY)

    def _prove(self, delivery: Delivery) -> bool:
        """Compare what ran with what was recorded, and print it."""
        story = self._story
        kept = [step for step in STEPS if step in story.recorded_before_the_kill]
        lost = story.under_way_at_the_kill
        fresh = [step for step in STEPS if step not in {*kept, *lost, "sleep", "address"}]
        wrong = [step for step in [*kept, *fresh] if story.runs_of(step) != 1]
        wrong += [step for step in lost if story.runs_of(step) > ONCE_MORE]
        if delivery != EXPECTED:
            wrong.append("the result")
        self._print_counts(kept, lost, fresh)
        self._print_result(delivery)
        if wrong:
            self._console.print(f"✗ The proof does not hold for: {names(wrong)}", style="bold red")
            return False
        seconds = time.monotonic() - self._began
        self._console.print(f"✓ No recorded step ran twice.  ({seconds:.1f} s, one kill -9)", style="bold green")
        return True

    def _print_counts(self, kept: list[str], lost: list[str], fresh: list[str]) -> None:
        grid = Table.grid(padding=(0, 3, 0, 0))
        for label, steps in (
            ("on disk at the kill", kept),
            ("under way at the kill", lost),
            ("not begun by then", fresh),
        ):
            grid.add_row(Text(label, style="dim"), times(steps, self._story), names(steps))
        self._console.print()
        self._console.print("What really ran, counted in the file that every activity writes to:")
        self._console.print()
        self._console.print(grid)
        self._console.print()
        self._console.print(
            "A step that is under way when its process dies has no outcome on disk, so it\n"
            "runs again: activities run at least once. A step whose outcome is on disk never\n"
            "runs again.",
            style="dim",
        )

    def _print_result(self, delivery: Delivery) -> None:
        self._console.print()
        self._console.print(
            f"The order's result: {len(delivery.boxes)} boxes to {delivery.sent_to}, {delivery.tracking}"
        )
        self._console.print()


def names(steps: list[str]) -> str:
    return ", ".join(steps) or "nothing"


def times(steps: list[str], story: Story) -> str:
    """How often these activities ran."""
    counts = sorted({story.runs_of(step) for step in steps})
    words = {0: "never", 1: "once", 2: "twice"}
    return "ran " + " or ".join(words.get(count, f"{count} times") for count in counts) if counts else ""


def main() -> int:
    console = Console(highlight=False)
    console.print("Perdure: an order survives kill -9", style="bold")
    console.print()
    with tempfile.TemporaryDirectory(prefix="perdure-demo-") as folder:
        demo = Demo(Path(folder), console)
        try:
            return 0 if asyncio.run(demo.play()) else 1
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the demo must say so and fail
            console.print(f"✗ The demo failed: {type(error).__name__}: {error}", style="bold red", markup=False)
            console.print(Text(demo.log), soft_wrap=True)
            return 1


if __name__ == "__main__":
    # From here on asyncio takes care of Ctrl-C: the workers are ended first.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
