"""A warning on a terminal: nobody works the queue of a run."""

from perdure.cli.output.errors import warn
from perdure.cli.output.suggestions import hint
from perdure.diagnostics.unworked import UNKNOWN, unworked
from perdure.views.run import RunInfo


async def warn_if_nobody_works(url: str, info: RunInfo, module: str = UNKNOWN) -> None:
    """Say so when an open run can only wait, and name the command that helps."""
    for text in (await unworked(url, info, module, hint=hint)).values():
        warn(text)
