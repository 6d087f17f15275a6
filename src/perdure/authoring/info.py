"""What workflow and activity code can know of itself."""

from datetime import datetime

import msgspec


class Info(msgspec.Struct, frozen=True):
    """The run this workflow code runs in, as of the event it is handling; the same on every replay.

    `history_length` grows with every step: a workflow that loops for ever should
    `continue_as_new` before it is long. A run of a schedule has its name, and the nominal time it was started for.
    """

    id: str
    run_id: str
    workflow: str
    namespace: str
    queue: str
    started_at: datetime
    history_length: int
    attributes: dict[str, object]
    parent_id: str | None
    entity_id: str | None
    correlation_id: str | None
    continued_from: str | None
    cancel_requested: bool
    schedule: str | None = None
    scheduled_for: datetime | None = None
