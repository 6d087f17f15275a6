"""Many runs at once: `--where` instead of the name of a run.

In:   a filter, and what is to be asked of all runs that match.
Out:  how many there are, with a few of their ids, and a question; then a progress bar, and what became of them.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypedDict

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

import perdure
from perdure.cli.input.database import client, under
from perdure.cli.input.filters import warn_of_near_fields
from perdure.cli.output.errors import FAILED, Mistake, warn
from perdure.cli.output.tables import errors, is_for_people, print_json, screen
from perdure.kernel.status import HELD
from perdure.kernel.traits import TASK_PREFIX
from perdure.views.bulk import Bulk

FEW_IDS = 5
# So many runs are read for them: activities on a queue may be among those that are held.
MOST_READ = 50
OPEN = ("pending", "running", "suspended")
# Of which runs it can be asked, for the ids that are shown.
POSSIBLE = {
    "retry": ("failed", "timed_out", "cancelled", "terminated"),
    "resume": (HELD, "pending", "running"),
}


class Asking(Protocol):
    """How it is asked of an app."""

    def __call__(
        self,
        app: "perdure.Perdure",
        *,
        where: str,
        params: dict[str, object] | None,
        dry_run: bool,
        progress: Callable[[Bulk], object] | None,
    ) -> Coroutine[Any, Any, Bulk]: ...


class Which(TypedDict):
    """The filter, and the values in it."""

    where: str
    params: dict[str, object] | None


class Many:
    """What all commands with `--where` share: which runs, where, and whether the user is asked."""

    def __init__(
        self,
        url: str,
        namespace: str,
        where: str,
        params: dict[str, object] | None,
        *,
        yes: bool,
        as_json: bool,
        key: str | None = None,
    ) -> None:
        self._at = (url, namespace)
        self._which = Which(where=where, params=params)
        self._yes = yes
        self._as_json = as_json
        self._key = key

    def ask(self, verb: str, asked: Asking) -> None:
        """Show what matches, ask the user, do it, and show what became of it."""
        count, ids = asyncio.run(self._look(verb, asked))
        warn_of_near_fields(**self._which)
        if count and not self._yes:
            _confirm(verb, count, ids)
        # Under a key the first answer is told, also when nothing matches any more.
        found = asyncio.run(self._act(asked, count)) if count or self._key else Bulk(0, 0, 0, {})
        self._print(verb, found)
        if found.errors:
            raise typer.Exit(FAILED)

    def ask_all(self, verb: str, *, reason: str | None) -> None:
        """The same for what an app has a method for: `pause` is `pause_all`."""
        self.ask(verb, lambda app, **how: getattr(app, f"{verb}_all")(reason=reason, **how))

    async def _look(self, verb: str, asked: Asking) -> tuple[int, list[str]]:
        async with client(*self._at) as app:
            counted = await asked(app, **self._which, dry_run=True, progress=None)
            if not counted.matched or self._yes:
                return counted.matched, []
            # Beside the filter: one that is as long as a filter may be has no room for more.
            page = await app.list(**self._which, status=POSSIBLE.get(verb, OPEN), limit=MOST_READ)
            started = [run.id for run in page if not run.workflow.startswith(TASK_PREFIX)]
            return counted.matched, (started or [run.id for run in page])[:FEW_IDS]

    async def _act(self, asked: Asking, count: int) -> Bulk:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=errors(), transient=True, disable=not errors().is_terminal) as bar:
            task = bar.add_task("runs", total=count)
            async with client(*self._at) as app:
                return await asked(
                    under(app, self._key),
                    **self._which,
                    dry_run=False,
                    progress=lambda found: bar.update(task, completed=_seen(found)),
                )

    def _print(self, verb: str, found: Bulk) -> None:
        for kind, failed in found.errors.items():
            more = ", ..." if failed.count > len(failed.ids) else ""
            warn(f"{failed.count:,} of them: {kind} ({', '.join(failed.ids)}{more})")
        if is_for_people(as_json=self._as_json):
            text = f"{found.matched:,} matched, {found.done:,} done, {found.skipped:,} skipped"
            screen().print(Text.assemble((verb, "bold"), f": {text}"), soft_wrap=True)
        else:
            print_json(found)


def _seen(found: Bulk) -> int:
    return found.done + found.skipped + sum(failed.count for failed in found.errors.values())


def _confirm(verb: str, count: int, ids: list[str]) -> None:
    more = ", ..." if count > len(ids) else ""
    what = f"{count:,} run{'s' * (count != 1)} match{'es' * (count == 1)} ({', '.join(ids)}{more})"
    if not sys.stdin.isatty():
        raise Mistake(f"{what}; say --yes to {verb} {'it' if count == 1 else 'them'}")
    if not typer.confirm(f"{what}; {verb} {'it' if count == 1 else 'them'}?", err=True):
        raise typer.Exit(FAILED)


def one_or_many(name: str | None, where: str | None, what: str) -> None:
    """Mistake unless a run is named or a filter is given, and not both."""
    if (name is None) == (where is None):
        raise Mistake(f"name the run to {what}, or say which ones with --where; one of them")
