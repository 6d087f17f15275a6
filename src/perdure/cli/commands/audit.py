"""`perdure audit`: whether everything in a database fits together.

In:   the URL of a database, at rest or with workers at work on it.
Out:  every run that is not as it must be, how, and what to do; JSON for programs; exit code 1 when there is one.
It changes nothing, and keeps nobody from writing.
"""

import sys
from datetime import timedelta
from typing import Annotated, TypeAlias

import msgspec
import typer
from rich.console import Console
from rich.text import Text

import perdure
from perdure.app.database import is_postgres
from perdure.cli.input.database import existing
from perdure.cli.input.options import DEFAULT_URL, AsJson, Url
from perdure.cli.output.errors import FAILED, OK, Trouble
from perdure.cli.output.suggestions import hint
from perdure.cli.output.tables import grid, is_for_people, print_json, print_lines, screen
from perdure.diagnostics.audit import Audit, Checked, Inconsistency, audit_of, inconsistencies
from perdure.errors import NotADatabase
from perdure.views.words import counted, span, visible

EXAMPLES = {"audit": "perdure audit --url sqlite:///shop.db\nperdure audit --url postgresql://db/shop --verbose"}

Verbose: TypeAlias = Annotated[bool, typer.Option("--verbose", "-v", help="Show every check, and how long it took.")]


def audit(*, url: Url = DEFAULT_URL, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Check that everything in the database is consistent; changes nothing."""
    perdure.Perdure(url, worker=False)  # refuses a URL that names no database
    seen = _seen(url)
    findings = inconsistencies(seen, hint)
    if is_for_people(as_json=as_json):
        _print(screen(), seen, findings, verbose=verbose)
    else:
        print_json(_shown(seen, findings))
    raise typer.Exit(FAILED if findings else OK)


def _seen(url: str) -> Audit:
    try:
        if not is_postgres(url):
            existing(url)
        return audit_of(url)
    except NotADatabase as error:
        what = "schema" if is_postgres(url) else "file"
        raise Trouble(f"{error}; name another {what} with --url, or bring back a backup") from None


def _shown(seen: Audit, findings: list[Inconsistency]) -> dict[str, object]:
    return {
        "ok": not findings,
        "runs": seen.runs,
        "events": seen.events,
        "findings": findings,
        "checks": [msgspec.structs.replace(check, ms=round(check.ms, 1)) for check in seen.checks],
    }


def _print(console: Console, seen: Audit, findings: list[Inconsistency], *, verbose: bool) -> None:
    if verbose:
        _print_checks(console, seen.checks)
    for finding in findings:
        _print_finding(console, finding)
    took = span(timedelta(milliseconds=sum(check.ms for check in seen.checks)))
    looked = f"{counted(seen.runs, 'run')} and {counted(seen.events, 'event')} looked at"
    console.print(f"{looked}, {counted(len(seen.checks), 'check')} in {took}", style="dim", soft_wrap=True)
    if findings:
        more = " and more" if any(check.has_more for check in seen.checks) else ""
        console.print(f"{counted(len(findings), 'finding')}{more}", style="bold red", soft_wrap=True)
    else:
        console.print("everything fits together", style="green", soft_wrap=True)
    sys.stdout.flush()


def _print_checks(console: Console, checks: tuple[Checked, ...]) -> None:
    table = grid(4)
    for check in checks:
        state = Text("ok", style="green") if not check.violations else Text(str(check.violations), style="bold red")
        table.add_row(state, check.check, span(timedelta(milliseconds=check.ms)), check.invariant)
    print_lines(console, table)
    console.print()


def _print_finding(console: Console, finding: Inconsistency) -> None:
    who = visible(finding.workflow_id or "the database")
    which = f" ({finding.run_id})" if finding.run_id is not None else ""
    console.print(Text.assemble((who, "bold"), which, ": ", visible(finding.found)), soft_wrap=True)
    console.print(f"  must be  {finding.invariant}", style="dim", soft_wrap=True)
    console.print(f"  → {finding.remedy}", soft_wrap=True)
    console.print()
