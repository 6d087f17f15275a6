"""Traits: what a run was started with besides its workflow and input."""

from enum import StrEnum

import msgspec


class OnParentClose(StrEnum):
    """What becomes of an open child when its parent ends."""

    CANCEL = "cancel"
    TERMINATE = "terminate"
    ABANDON = "abandon"


class Traits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Most runs have none of these. `attributes` is JSON, as it was at the start."""

    parent_id: str | None = None
    parent_place: str | None = None
    on_parent_close: str = OnParentClose.CANCEL.value
    entity_id: str | None = None
    correlation_id: str | None = None
    attributes: str | None = None
    timeout_ms: int | None = None
    delayed_until: int | None = None
    close_at: int | None = None
    continued_from: str | None = None
    forked_from: str | None = None
    schedule: str | None = None
    scheduled_for: int | None = None


PLAIN = Traits()
# What the names of runs begin with that are activities on a queue; no workflow's may.
TASK_PREFIX = "task:"
