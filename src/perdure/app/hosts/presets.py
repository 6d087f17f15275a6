"""Presets: options of a worker that go together, under one name. What is given besides wins."""

from typing import NamedTuple

from perdure.authoring.durations import Duration
from perdure.errors import BadOption


class Preset(NamedTuple):
    """How many runs live at once, how long a quiet one stays, how long a lease is, and how long a stop waits."""

    max_live: int
    park_after: Duration
    lease: Duration
    grace: Duration


PRESETS = {
    # Little memory, quick to stop and to be taken over: for a laptop, where processes come and go.
    "dev": Preset(max_live=500, park_after=2.0, lease=10.0, grace=1.0),
    "standard": Preset(max_live=10_000, park_after=10.0, lease=30.0, grace=10.0),
    # Runs stay in memory for longer, so that fewer are replayed; what is under way has time to end.
    "throughput": Preset(max_live=50_000, park_after=60.0, lease=30.0, grace=30.0),
}


def preset(
    name: object,
    max_live: int | None,
    park_after: Duration | None,
    lease: Duration | None,
    grace: Duration | None,
) -> Preset:
    """The preset of this name, with what was given besides; BadOption."""
    if not isinstance(name, str) or name not in PRESETS:
        raise BadOption(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
    usual = PRESETS[name]
    return Preset(
        usual.max_live if max_live is None else max_live,
        usual.park_after if park_after is None else park_after,
        usual.lease if lease is None else lease,
        usual.grace if grace is None else grace,
    )
