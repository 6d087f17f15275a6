"""What drawn programs can do, one function for each ability.

A further ability is a further function with `@ability` in one of
these modules, or in a new one that is imported here. If it makes durable calls of a new
kind, `ANSWERS` in `tests.programs.world` says how the world answers them, and `shown` there
what of them is compared. What the world does of its own accord, as cancelling the run,
stands in `World.next_event`; how a run can end, in `Incarnation.end`. Nothing else changes,
and histories that were recorded before still replay, since they keep their programs.
"""

from tests.programs.abilities import (  # noqa: F401 - importing them makes them known
    activities,
    background,
    channels,
    durable,
    errors,
    generators,
    limits,
    many,
    shared,
    stopping,
)
