"""Mutants: the rules with one of them switched off, and what becomes of the world then."""

from tests.small_world.model import Fence, OnUnknown, Rules

MUTANTS: dict[str, Rules] = {
    "no fence": Rules(fence=Fence.NEVER),
    "the fence is read before the transaction": Rules(fence=Fence.BEFORE),
    "effects before the commit": Rules(effects_wait_for_the_commit=False),
    "answers before the commit": Rules(answers_wait_for_the_commit=False),
    "an unknown outcome is a success": Rules(on_unknown=OnUnknown.SUCCESS),
    "an unknown outcome is a failure": Rules(on_unknown=OnUnknown.FAILURE),
    "parking without the counter": Rules(parking_compares_the_counter=False),
    "takeover without a new epoch": Rules(takeover_raises_the_epoch=False),
    "takeover whatever the epoch is by now": Rules(takeover_compares_the_epoch=False),
    "memory is kept after a loss": Rules(loss_drops_what_was_owned=False),
    "recovery does not look at what it owns": Rules(recovery_loads_what_is_owned=False),
    "a message sent again is written again": Rules(messages_are_written_once=False),
    "replay leaves out the last event": Rules(replay_reads_the_whole_history=False),
}
