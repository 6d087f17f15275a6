"""Many at once: what was asked of all runs that match a filter, and what became of it.

In:   an action, the text of a filter and its parameters.
Out:  how many runs matched, were done, skipped or refused; BadFilter, before anything is written.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from perdure.engine.ports import Broadcast, BulkAction, Engine, Tally, Verb
from perdure.errors import BadOption
from perdure.kernel.filters import Filter, all_of, any_of, parse, required_values
from perdure.kernel.filters.syntax import Compare, Field, In, IsNull, Like, Not, TextValue
from perdure.kernel.status import OPEN, Status
from perdure.kernel.traits import TASK_PREFIX
from perdure.stores.records import RunQuery
from perdure.views.run import View

ENDED_BADLY = (Status.FAILED, Status.TIMED_OUT, Status.CANCELLED, Status.TERMINATED)


@dataclass(frozen=True, slots=True)
class BulkError(View):
    """How many runs were refused with an error of one type, and the ids of up to ten of them."""

    count: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bulk(View):
    """What became of the runs that matched: done, skipped, for they were not what is meant any more, or refused.

    `errors` has them by the type of the error.
    """

    matched: int
    done: int
    skipped: int
    errors: dict[str, BulkError]


class BulkByText(Protocol):
    """What is done to all runs that match the text of a filter, where the server reads that."""

    async def act(
        self, namespace: str, action: BulkAction, where: str, params: Mapping[str, object] | None, *, dry_run: bool
    ) -> Bulk: ...


@runtime_checkable
class HasBulkByText(Protocol):
    """An engine over a server."""

    @property
    def bulk_by_text(self) -> BulkByText: ...


def bulk_view(tally: Tally) -> Bulk:
    errors = {name: BulkError(found.count, found.ids) for name, found in tally.errors.items()}
    return Bulk(tally.matched, tally.done, tally.skipped, errors)


async def act_on_all(
    engine: Engine,
    namespace: str,
    action: BulkAction,
    where: str,
    params: Mapping[str, object] | None,
    progress: Callable[[Bulk], object] | None,
    *,
    dry_run: bool,
    entity_id: str | None = None,
) -> Bulk:
    """Ask this of all runs that match, of one entity if that is given; with `dry_run` they are only counted."""
    if progress is not None and not callable(progress):
        raise BadOption(f"progress is {progress!r}; give a function that takes a Bulk")
    if not isinstance(action, Broadcast) and action.verb is Verb.RESUME and action.reason is not None:
        # It was taken and kept nowhere: that of a pause is shown while the run is held, and goes with it.
        raise BadOption(
            "a run that goes on keeps no reason, and loses that of its pause; leave it out, or keep it as an attribute "
            "of the runs (set_attributes)"
        )
    if isinstance(engine, HasBulkByText):
        found = await engine.bulk_by_text.act(namespace, action, _text(where), params, dry_run=dry_run)
        if progress is not None and not dry_run:
            progress(found)
        return found
    meant = meant_by(action, where, params, engine.clock.now())
    if entity_id is not None:
        meant = all_of([Compare(Field("entity_id"), "=", TextValue(entity_id)), meant])
    if dry_run:
        return Bulk((await engine.reader.count_runs(RunQuery(namespace, meant))).get(None, 0), 0, 0, {})

    def told(tally: Tally) -> None:
        if progress is not None:
            progress(bulk_view(tally))

    if engine.once is not None:
        # The filter has the time of now in it.
        engine = engine.once.about(_once(action), where, params)
    return bulk_view(await engine.bulk.act(namespace, action, meant, told))


def _once(action: BulkAction) -> object:
    """What two calls have in common that ask for the same: without an id of its own, a signal is given another one."""
    if not isinstance(action, Broadcast):
        return action
    return (action.sent, action.delay_ms) if action.delay_ms else action.sent


def meant_by(action: BulkAction, where: object, params: Mapping[str, object] | None, now: int) -> Filter:
    """The filter of a text, for runs that this can be asked of.

    Activities on a queue are left out, unless they are asked for by the name of their workflow.
    """
    asked = parse(_text(where), params, now=now)
    parts = [asked, _possible(action)]
    named = required_values(asked).get(Field("workflow"), ())
    if not named or not all(isinstance(name, TextValue) and name.text.startswith(TASK_PREFIX) for name in named):
        parts.append(Not(Like(Field("workflow"), f"{TASK_PREFIX}%")))
    return all_of(parts)


def _text(where: object) -> str:
    if not isinstance(where, str):
        raise BadOption(f"where is {where!r}; say which runs are meant, where='true' means all of them")
    return where


def _possible(action: BulkAction) -> Filter:
    """The runs that this can be asked of."""
    if isinstance(action, Broadcast) or action.verb in {Verb.CANCEL, Verb.TERMINATE, Verb.PAUSE}:
        return _has_status(*sorted(OPEN))
    if action.verb is Verb.RETRY:
        return _has_status(*ENDED_BADLY)
    # One that is to be paused, and is not held yet, is to go on as well.
    is_moving = _has_status(Status.PENDING, Status.RUNNING)
    return any_of([all_of([_has_status(Status.SUSPENDED), Not(IsNull(Field("held")))]), is_moving])


def _has_status(*statuses: Status) -> Filter:
    return In(Field("status"), tuple(TextValue(status.value) for status in statuses))
