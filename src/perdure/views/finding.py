"""Finding: the runs that a filter means, as pages and as numbers.

In:   the text of a filter, its parameters, and the keyword filters of a list.
Out:  a page of runs; how many match; BadFilter, before any query runs.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

from perdure.engine.ports import Engine
from perdure.errors import BadOption, RunNotFound, RunUnreadable
from perdure.kernel.filters import Filter, all_of, any_of, asks_for_activities, parse
from perdure.kernel.filters.syntax import Compare, Field, In, Like, Not, TextValue
from perdure.kernel.status import HELD, HOLDS, Status
from perdure.kernel.traits import TASK_PREFIX
from perdure.stores.records import RunFilter, RunQuery
from perdure.views.run import Page, checked_limit, shown_page

# What runs can be counted by.
COUNTED_BY = ("status", "workflow", "queue", "priority", "step", "held", "entity_id", "correlation_id", "parent_id")
RUN_ID = re.compile(r"[0-9a-f]{28}")
FIELDS = {"workflow_id": "id", "workflow": "workflow", "entity_id": "entity_id"}
FIELDS |= {"correlation_id": "correlation_id", "parent_id": "parent_id"}


def meant_by(where: str, params: Mapping[str, object] | None, now: int, beside: RunFilter | None = None) -> Filter:
    """The filter of a text, and of the keywords beside it.

    Activities on a queue are runs as well. They are left out, unless the filter asks for them by what only they are
    known by, or for what is held.
    """
    found = parse(where, params, now=now)
    found = found if beside is None else all_of([found, *_keywords(beside)])
    if asks_for_activities(found):
        return found
    return all_of([found, Not(Like(Field("workflow"), f"{TASK_PREFIX}%"))])


def _keywords(beside: RunFilter) -> list[Filter]:
    given = {column: getattr(beside, column) for column in FIELDS}
    found: list[Filter] = [
        Compare(Field(FIELDS[column]), "=", TextValue(value)) for column, value in given.items() if value is not None
    ]
    states = {"status": beside.status, "held": beside.held}
    any_state = [
        In(Field(name), tuple(TextValue(str(value)) for value in values)) for name, values in states.items() if values
    ]
    return [*found, any_of(any_state)] if any_state else found


def checked_statuses(given: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """One status or several, by name or as Status, whatever their case; and, apart, why runs are held."""
    if given is None:
        return (), ()
    names = [given] if isinstance(given, str) or not isinstance(given, Sequence) else list(given)
    for name in names:
        if not isinstance(name, str) or (name.upper() not in Status.__members__ and name.lower() not in (HELD, *HOLDS)):
            raise BadOption(f"no status is named {name!r}; there are {', '.join((*Status, HELD, *HOLDS))}")
    wanted = {str(name).lower() for name in names}
    holds = tuple(hold for hold in HOLDS if HELD in wanted or hold in wanted)
    return tuple(status for status in Status if status.lower() in wanted), holds


async def checked_cursor(engine: Engine, namespace: str, cursor: str | None) -> str | None:
    """The cursor of a page, which is the run_id of its last run; BadOption for what no page has."""
    if cursor is None or (isinstance(cursor, str) and RUN_ID.fullmatch(cursor)):
        return cursor
    try:
        await engine.reader.read(namespace, str(cursor))
    except RunNotFound:
        trouble = f"the cursor {cursor!r} is none of a page of runs; give the `cursor` of the page before, or none"
        raise BadOption(trouble) from None
    except RunUnreadable:
        # The id itself may be what is spoilt; the pages go on after it.
        pass
    return cursor


async def page_of(
    engine: Engine, beside: RunFilter, where: str | None = None, params: Mapping[str, object] | None = None
) -> Page:
    """One page of the runs that match the keywords, and the filter beside them."""
    limit = checked_limit(beside.limit)
    await checked_cursor(engine, beside.namespace, beside.before)
    if where is None:
        if params is not None:
            raise BadOption("params are the values in a filter; give where=, too")
        return await shown_page(
            engine, await engine.reader.list_runs(msgspec.structs.replace(beside, limit=limit + 1)), limit
        )
    meant = meant_by(where, params, engine.clock.now(), beside)
    found = await engine.reader.find_runs(RunQuery(beside.namespace, meant, beside.before, limit + 1))
    return await shown_page(engine, found.rows, limit, found.read)


async def count_where(
    engine: Engine, beside: RunFilter, where: str, params: Mapping[str, object] | None, by: str | None
) -> dict[object, int]:
    """How many runs match, by the values of a field; without one there is one number, under None."""
    meant = meant_by(where, params, engine.clock.now(), beside)
    if by is not None and by not in COUNTED_BY:
        raise BadOption(f"runs are not counted by {by!r}, but by {', '.join(COUNTED_BY)}")
    return await engine.reader.count_runs(RunQuery(beside.namespace, meant), by)
