"""A run that was made from another one, as the commands that make one show it."""

from rich.text import Text

from perdure.cli.output.suggestions import hint
from perdure.cli.output.tables import is_for_people, print_json, screen
from perdure.views.run import RunInfo

FIELDS = ("run_id", "workflow", "status", "forked_from", "forked_at", "fork_reason", "created_at")


def print_forked(info: RunInfo, how: str, *, as_json: bool) -> None:
    """The new run, and where its result will be."""
    if not is_for_people(as_json=as_json):
        print_json({"id": info.id} | {name: getattr(info, name) for name in FIELDS})
        return
    text = Text.assemble(("↻ ", "bold"), f"{how} ", (info.id, "bold"), f", with events up to {info.forked_at}")
    screen().print(text, soft_wrap=True)
    screen().print(f"  its result: {hint('wait', info.id)}", style="dim", soft_wrap=True)
