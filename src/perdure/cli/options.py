"""Options that several commands share."""

from typing import Annotated, TypeAlias

import typer

from perdure.cli.hints import note_url

DEFAULT_URL = "sqlite:///perdure.db"

Url: TypeAlias = Annotated[
    str,
    typer.Option(
        "--url", envvar="PERDURE_URL", help="The database: sqlite:///file.db", show_default=True, callback=note_url
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, as if the output were piped.")]
RunName: TypeAlias = Annotated[str, typer.Argument(metavar="ID", help="A run's id, or its run_id.", show_default=False)]
