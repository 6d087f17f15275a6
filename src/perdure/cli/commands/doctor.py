"""`perdure doctor`: whether Perdure can work well here, and what to do if not.

In:   the URL of a database.
Out:  a line for each check, JSON for programs; exit code 1 when something is in trouble.
It changes nothing in the database.
"""

import sys
from collections.abc import Iterator

import typer
from rich.text import Text

import perdure
from perdure.cli.database_checks import check_database
from perdure.cli.findings import Finding, State
from perdure.cli.input.database import file_of, is_postgres, refuse_memory
from perdure.cli.input.options import DEFAULT_URL, AsJson, Url
from perdure.cli.machine_checks import check_disk, check_python, check_sqlite, is_full
from perdure.cli.output.errors import FAILED, OK
from perdure.cli.output.tables import grid, is_for_people, print_json, print_lines, screen

STYLES = {State.OK: "green", State.WARNING: "bold yellow", State.TROUBLE: "bold red"}
EXAMPLES = {"doctor": "perdure doctor --url sqlite:///shop.db\nperdure doctor --url postgresql://db/shop --json"}


def doctor(*, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Check that Perdure can work well here; changes nothing."""
    refuse_memory(url)
    findings = list(_findings(url))
    is_well = not any(finding.state == State.TROUBLE for finding in findings)
    if is_for_people(as_json=as_json):
        _print(findings)
    else:
        print_json({"ok": is_well, "checks": findings})
    raise typer.Exit(OK if is_well else FAILED)


def _findings(url: str) -> Iterator[Finding]:
    perdure.Perdure(url, worker=False)  # refuses a URL that names no database
    yield check_python()
    if is_postgres(url):
        from perdure.cli.postgres_checks import check_postgres  # noqa: PLC0415 - its driver is an extra

        yield from check_postgres(url)
        return
    yield check_sqlite()
    path = file_of(url)
    if path is not None:
        path = path.absolute()
        yield from check_disk(path.parent, path.stat().st_size if path.is_file() else 0)
        yield from check_database(path, is_full=is_full(path.parent))


def _print(findings: list[Finding]) -> None:
    table = grid(3)
    for finding in findings:
        text = Text(finding.found)
        if finding.remedy is not None:
            text.append(f"\n→ {finding.remedy}", style="bold")
        table.add_row(Text(finding.state, style=STYLES[finding.state]), finding.check, text)
    print_lines(screen(), table)
    sys.stdout.flush()
