"""What every store can be asked of the log of changes."""

from collections.abc import Awaitable, Callable, Sequence

from perdure.errors import RunUnreadable
from perdure.kernel.position import Position
from perdure.stores.records import ListenerRow, RunRow
from perdure.stores.rules.questions import Ask, Query, Several, Steps


class Changelog:
    """Which runs have changed, in the words of a database."""

    def __init__(self, ask: Ask, runs: Callable[[Query], Awaitable[list[RunRow | RunUnreadable]]]) -> None:
        self._ask = ask
        self._runs = runs

    async def listener(self, name: str) -> ListenerRow | None:
        def ask() -> Steps[ListenerRow | None]:
            found = (yield Query("listener", {"name": name})).first
            return None if found is None else ListenerRow(*found)

        return await self._ask(ask)

    async def position(self) -> Position:
        def ask() -> Steps[Position]:
            ((text,),) = (yield Query("changes_position", {})).rows
            return Position.parse(text)

        return await self._ask(ask)

    async def changed(self, since: Position) -> tuple[Position, list[str]]:
        def ask() -> Steps[tuple[Position, list[str]]]:
            # The position first: where the two do not see the same, what came between them is seen twice.
            asked = Several(("changes_position", "changed_runs"), {"end": since.end, "open": sorted(since.open)})
            ((text,),), changed = (yield asked).rows
            return Position.parse(text), [run_id for (run_id,) in changed]

        return await self._ask(ask)

    async def named(self, position: Position) -> list[str]:
        def ask() -> Steps[list[str]]:
            return [str(text) for (text,) in (yield Query("open_transactions", {"open": sorted(position.open)})).rows]

        return await self._ask(ask)

    async def runs(self, run_ids: Sequence[str]) -> list[RunRow | RunUnreadable]:
        return await self._runs(Query("runs_of", {"run_ids": run_ids}))
