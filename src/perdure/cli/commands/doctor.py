"""`perdure doctor`: whether Perdure can work well here, and what to do if not.

In:   the URL of a database.
Out:  a line for each check, JSON for programs; exit code 1 when something is in trouble.
It changes nothing in the database.
"""

import sys

import typer
from rich.text import Text

import perdure
from perdure.cli.input.database import refuse_memory, refuse_server
from perdure.cli.input.options import DEFAULT_URL, AsJson, Url
from perdure.cli.output.errors import FAILED, OK
from perdure.cli.output.suggestions import hint
from perdure.cli.output.tables import grid, is_for_people, print_json, print_lines, screen
from perdure.diagnostics.doctor import check_all
from perdure.diagnostics.findings import Finding, State

STYLES = {State.OK: "green", State.WARNING: "bold yellow", State.TROUBLE: "bold red"}
EXAMPLES = {"doctor": "perdure doctor --url sqlite:///shop.db\nperdure doctor --url postgresql://db/shop --json"}


def doctor(*, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Check that Perdure can work well here; changes nothing."""
    refuse_memory(url)
    refuse_server(url)
    perdure.Perdure(url, worker=False)  # refuses a URL that names no database
    findings = list(check_all(url, hint))
    is_well = not any(finding.state == State.TROUBLE for finding in findings)
    if is_for_people(as_json=as_json):
        _print(findings)
    else:
        print_json({"ok": is_well, "checks": findings})
    raise typer.Exit(OK if is_well else FAILED)


def _print(findings: list[Finding]) -> None:
    table = grid(3)
    for finding in findings:
        text = Text(finding.found)
        if finding.remedy is not None:
            text.append(f"\n→ {finding.remedy}", style="bold")
        table.add_row(Text(finding.state, style=STYLES[finding.state]), finding.check, text)
    print_lines(screen(), table)
    sys.stdout.flush()
