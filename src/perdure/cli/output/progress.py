"""Progress of a run on standard error.

In:   a run, and when this process began to look at it.
Out:  a line for each event and failed attempt as they come, and what the run waits for.
On anything but a terminal it prints nothing but warnings.
"""

from datetime import datetime
from operator import itemgetter
from typing import Any, Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from perdure.app import Perdure, Run
from perdure.cli.output.console import takes_unicode
from perdure.cli.output.suggestions import hint
from perdure.cli.output.tables import print_warning
from perdure.views.run import FailedAttempt, RunEvent, RunInfo
from perdure.views.timeline import line_of, wait_texts
from perdure.views.words import span, visible


class Progress:
    """Prints what a run does; what was done before this process looked is marked as remembered."""

    def __init__(self, console: Console, app: "Perdure", run: "Run[Any]", opened_at: datetime) -> None:
        self._console = console
        self._app = app
        self._run = run
        self._opened_at = opened_at
        self._began_at = opened_at
        self._last_seq = 0
        self._told: set[tuple[str, str, int]] = set()
        self._status: Status | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            spinner = "dots" if takes_unicode(self._console.file) else "line"
            self._status = Status("", console=self._console, spinner=spinner)
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def warn(self, text: str) -> None:
        """Print a line of warning, terminal or not."""
        print_warning(self._console, text)

    async def look(self) -> RunInfo:
        """Print what is new; answers the run as it stands, or the last of those that continue it."""
        info = await self._look()
        while info.continued_to is not None:
            self._run = await self._app.get(run_id=info.continued_to)
            self._last_seq = 0
            info = await self._look()
        return info

    async def _look(self) -> RunInfo:
        if self._console.is_terminal:
            for _, text in sorted(await self._news(), key=itemgetter(0)):
                self._console.print(text, soft_wrap=True)
        info = await self._run.describe()
        if self._status is not None:
            self._status.update(_waiting(info))
        return info

    async def _news(self) -> list[tuple[datetime, Text]]:
        """What happened since the last look, with its time.

        Failed attempts are no events; but a user who wonders why nothing happens wants to see them.
        """
        news = []
        async for event in self._run.events(after=self._last_seq):
            self._last_seq = event.seq
            news.append((event.at, self._event(event)))
        for attempt in await self._run.attempts():
            name = (self._run.run_id, attempt.place, attempt.attempt)
            if name not in self._told:
                self._told.add(name)
                news.append(self._attempt(attempt))
        return news

    def _event(self, event: RunEvent) -> Text:
        line = line_of(event)
        if event.kind == "RunStarted":
            self._began_at = event.at
            return Text.assemble(("▶ ", "bold"), (self._run.id, "bold"), f"  {line.detail}")
        # The result itself goes to standard output.
        detail = "" if event.kind == "RunCompleted" else line.detail
        return self._line(event.at, f"{line.mark} {line.title}", line.style, detail)

    def _attempt(self, attempt: FailedAttempt) -> tuple[datetime, Text]:
        at = attempt.at
        again = "" if attempt.next_at is None else f", again in {span(attempt.next_at - attempt.at)}"
        detail = f"{visible(attempt.error)}  (attempt {attempt.attempt}{again})"
        return at, self._line(at, f"! {attempt.name}", "yellow", detail)

    def _line(self, at: datetime, title: str, style: str, detail: str) -> Text:
        is_remembered = at < self._opened_at
        return Text.assemble(
            (f"{span(at - self._began_at):>8}  ", "dim"),
            (title, "dim" if is_remembered else style),
            (f"  {detail}" if detail else "", "dim" if is_remembered else ""),
            ("  remembered" if is_remembered else "", "dim italic"),
        )


def _waiting(info: RunInfo) -> Text:
    if not info.waiting_for or info.waiting_for[0].kind == "worker":
        is_free = bool(info.waiting_for) or info.status == "PENDING"
        return Text(f"waits for a worker of the queue {info.queue}" if is_free else "working", style="dim")
    waits = "; ".join(wait_texts(info.waiting_for)[:3])
    text = Text(f"waits for {waits}", style="dim")
    signal = next((wait.name for wait in info.waiting_for if wait.kind == "signal"), None)
    if signal is not None:
        text.append(f"\n  send it: {hint('signal', info.id, signal, 'PAYLOAD')}")
    return text
