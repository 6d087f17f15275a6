"""Progress: what is written of calls under way, whatever the database.

In:   the begins of only attempts, and the details of heartbeats.
Out:  questions to the database, with one row for each call: no statement may change one row twice.
"""

from perdure.stores.answers import Answers
from perdure.stores.operations import BeginAttempt, RecordBeat
from perdure.stores.rules.questions import ManyRows, Steps


def begin_attempts(begins: list[BeginAttempt], _: Answers) -> Steps[None]:
    """Write that attempts begin which are the only ones of their calls."""
    newest = {(begin.run_id, begin.place): begin for begin in begins}
    yield ManyRows("begin_attempts", list(newest.values()))


def record_beats(beats: list[RecordBeat], _: Answers) -> Steps[None]:
    """Write the newest details of each call."""
    newest = {(beat.run_id, beat.place): beat for beat in beats}
    yield ManyRows("record_beats", list(newest.values()))
