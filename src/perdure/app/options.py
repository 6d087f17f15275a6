"""Checks of what callers give, before anything is done with it."""

from collections.abc import Sequence
from typing import Any

from perdure.authoring.workflow import Workflow
from perdure.errors import BadOption
from perdure.ids import checked_id
from perdure.views.timeline import WantedEvents


def queues(given: object) -> tuple[str, ...]:
    """The names of queues."""
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise BadOption(f"queues is {given!r}; give a tuple of names, such as queues=('default',)")
    return tuple(checked_id("queue", queue) for queue in given)


def known(given: object) -> dict[str, Workflow[..., Any]] | None:
    """The workflows a worker is given, by name."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise BadOption(f"workflows is {given!r}; give a list of workflows")
    for workflow in given:
        if not isinstance(workflow, Workflow):
            raise BadOption(f"workflows holds {workflow!r}, which is not a workflow; decorate it with @workflow")
    return {workflow.name: workflow for workflow in given}


def resources(given: object) -> tuple[object, ...]:
    """What activities are handed."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise BadOption(f"resources is {given!r}; give a list of them: resources=[pool]")
    return tuple(given)


def count(what: str, given: object, least: int) -> int:
    """A whole number of at least so many."""
    if type(given) is not int or given < least:
        raise BadOption(f"{what} is {given!r}; give a whole number from {least} on")
    return given


def wanted_events(
    after: object, before: object, limit: object, *, newest_first: object, follow: object
) -> WantedEvents:
    """Which events of a run are meant."""
    if flag("follow", follow) and (newest_first or before is not None):
        raise BadOption("follow goes on with what is new; leave newest_first and before away, or follow")
    return WantedEvents(
        count("after", after, 0),
        None if before is None else count("before", before, 1),
        None if limit is None else count("limit", limit, 1),
        flag("newest_first", newest_first),
        flag("follow", follow),
    )


def flag(what: str, given: object) -> bool:
    """True or False."""
    if type(given) is not bool:
        raise BadOption(f"{what} is {given!r}; give True or False")
    return given


def text(what: str, given: object) -> str | None:
    """Something to look for; None for anything."""
    return None if given is None else checked_id(what, given)
