"""Reconnecting: a command that waits for a run goes on waiting while the server cannot be reached, as workers do.

In:   looks at a run that was there when the command began, and whether they went well.
Out:  one line when trouble begins, and one when it is over.
A file has no such outages: what is wrong with it does not go away, and is an error at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from perdure.app.database import is_postgres
from perdure.cli.output.tables import print_warning
from perdure.errors import StoreUnavailable

T = TypeVar("T")

PAUSE_SECONDS = 0.1
# What errors say to those who do not try again by themselves.
ADVICE = "; nothing was changed, try again"


class OutOfReach(StoreUnavailable):
    """The time to wait is over, and the database cannot be asked how the run stands."""


class Reconnecting:
    """Bears with a server, and tells once that it has to; without a console it says nothing."""

    def __init__(self, url: str, console: Console | None) -> None:
        self._is_short = not is_postgres(url)
        self._console = console
        self._is_tried = False

    def bear(self, error: StoreUnavailable) -> None:
        """Go on in spite of it; raises it where waiting does not help."""
        if self._is_short:
            raise error
        if not self._is_tried and self._console is not None:
            trouble = str(error).removesuffix(ADVICE)
            print_warning(self._console, f"the database cannot be reached, waiting until it can: {trouble}")
        self._is_tried = True

    def rest(self) -> None:
        """The database has answered."""
        if self._is_tried and self._console is not None:
            self._console.print(Text("the database can be reached again", style="dim"), soft_wrap=True)
        self._is_tried = False

    async def until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer to a question, however long the server is gone."""
        while True:
            try:
                answer = await ask()
            except StoreUnavailable as error:
                self.bear(error)
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                self.rest()
                return answer
