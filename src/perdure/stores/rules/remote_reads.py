"""What can be read of remote workers, whatever the database.

In:   a database that answers questions.
Out:  the row of one worker, what it has, what of that is to stop; the deadlines of the attempts that it makes.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from perdure.kernel.messages import Message
from perdure.stores.records import DeadlineRow, Standing, WorkerRow
from perdure.stores.rows import Garbled, message_of
from perdure.stores.rules.questions import Ask, Query, Question, Steps
from perdure.stores.unreadable import worker_row


class RemoteReads:
    """What can be read of remote workers."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def worker(self, worker_id: str) -> WorkerRow | None:
        return await self._ask(lambda: _worker(worker_id))

    async def owned(self, worker_id: str) -> dict[str, str]:
        # One whose id is no text could not be asked for.
        found = await self._ask(lambda: _found(Query("owned_workflows", {"worker_id": worker_id})))
        return {run_id: str(workflow) for run_id, workflow in found if type(run_id) is str}

    async def stops(self, worker_id: str) -> list[tuple[str, Message]]:
        stops: list[tuple[str, Message]] = []
        for *message, run_id in await self._ask(lambda: _found(Query("stops", {"worker_id": worker_id}))):
            # One that cannot be read is found when its run is loaded, and told there.
            with suppress(Garbled):
                stops.append((run_id, message_of(*message)))
        return stops

    async def due(self, now: int, limit: int) -> list[DeadlineRow]:
        return await self._deadlines(Query("due_deadlines", {"now": now, "limit": limit}))

    async def deadline(self, run_id: str) -> DeadlineRow | None:
        return next(iter(await self._deadlines(Query("deadline_of", {"run_id": run_id}))), None)

    async def next_due(self) -> int | None:
        ((at,),) = await self._ask(lambda: _found(Query("next_deadline", {})))
        return at if isinstance(at, int) else None

    async def standings(self, run_ids: Sequence[str]) -> dict[str, Standing]:
        found = await self._ask(lambda: _found(Query("standings", {"run_ids": run_ids})))
        return {
            run_id: Standing((seq, at) if type(seq) is type(at) is int else None, had, bool(has_unread))
            for run_id, had, seq, at, has_unread in found
        }

    async def children_at(self, run_ids: Sequence[str], places: Sequence[str]) -> dict[str, dict[str, tuple[str, str]]]:
        found: dict[str, dict[str, tuple[str, str]]] = {}
        asked = Query("children_at", {"run_ids": run_ids, "places": places})
        for parent_id, place, *child in await self._ask(lambda: _found(asked)):
            found.setdefault(parent_id, {})[place] = (str(child[0]), str(child[1]))
        return found

    async def _deadlines(self, question: Question) -> list[DeadlineRow]:
        return [DeadlineRow(*row) for row in await self._ask(lambda: _found(question))]


def _found(question: Question) -> Steps[Sequence[Any]]:
    return (yield question).rows


def _worker(worker_id: str) -> Steps[WorkerRow | None]:
    found = (yield Query("worker", {"worker_id": worker_id})).dicts()
    return worker_row(found[0]) if found else None
