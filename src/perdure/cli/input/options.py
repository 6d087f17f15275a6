"""Options that several commands share."""

from typing import Annotated, TypeAlias

import typer

from perdure.cli.input.completion import run_ids
from perdure.cli.input.values import duration
from perdure.cli.output.suggestions import note
from perdure.kernel.conflict import OnConflict

DEFAULT_URL = "sqlite:///perdure.db"
DEFAULT_NAMESPACE = "main"
DEFAULT_QUEUE = "default"


# Every command

Url: TypeAlias = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="PERDURE_URL",
        help="The database: sqlite:///file.db or postgresql://user@host/database",
        callback=note,
    ),
]
Namespace: TypeAlias = Annotated[
    str,
    typer.Option(
        "--namespace", metavar="NAME", envvar="PERDURE_NAMESPACE", help="The part of it to work in.", callback=note
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, as if the output were piped.")]

# Commands about one run

RunName: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="ID", help="A run's id, or its run_id.", show_default=False, autocompletion=run_ids),
]
AnyRunName: TypeAlias = Annotated[
    str | None,
    typer.Argument(metavar="ID", help="A run's id, or its run_id.", show_default=False, autocompletion=run_ids),
]
Waiting: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--timeout", metavar="DURATION", parser=duration, help="Stop waiting after so long: 30, 30s, 5m, 2h or 1d."
    ),
]
Reason: TypeAlias = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept with the run.")]

Key: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="An idempotency key: asked again under it, this is done once and answered as at first.",
    ),
]

# Commands that start one

Target: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="MODULE:WORKFLOW", help="shop:checkout, or shop.py:checkout", show_default=False),
]
Arguments: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ARGUMENTS",
        help="JSON: an object by name or an array in order; literal, @file, or - for standard input.",
    ),
]
Id: TypeAlias = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="Your own key for the run; the same id again gives that run."),
]
Timeout: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--timeout", metavar="DURATION", parser=duration, help="End the run as timed out after so long: 30, 5m, 2h, 1d."
    ),
]
Delay: TypeAlias = Annotated[
    float | None, typer.Option("--delay", metavar="DURATION", parser=duration, help="Begin so much later.")
]
Queue: TypeAlias = Annotated[str | None, typer.Option("--queue", metavar="NAME", help="The queue of the run.")]
Priority: TypeAlias = Annotated[
    int | None, typer.Option("--priority", metavar="N", help="Runs of a higher priority go first.")
]
Entity: TypeAlias = Annotated[
    str | None, typer.Option("--entity", metavar="ID", help="The thing the run is about: an order, a player.")
]
Correlation: TypeAlias = Annotated[
    str | None, typer.Option("--correlation", metavar="ID", help="What the run has in common with others.")
]
Attributes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--attribute",
        metavar="NAME=VALUE",
        help="Something to show with the run; the value is JSON, or else a text. May be given more than once.",
    ),
]
Where: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="FILTER",
        help="Only runs that match, such as \"status = 'failed' and tenant = 'acme' and created_at > ago('2h')\".",
    ),
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Do not ask; with --where.")]
Parameters: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="NAME=VALUE",
        help="What :NAME in the filter stands for; the value is JSON, or else a text. May be given more than once.",
    ),
]
Conflict: TypeAlias = Annotated[
    OnConflict | None,
    typer.Option(
        "--on-conflict",
        metavar="POLICY",
        case_sensitive=False,
        help="When the id is taken: `return` that run, `reject`, `replace` it if it has ended, `terminate` it first.",
    ),
]
