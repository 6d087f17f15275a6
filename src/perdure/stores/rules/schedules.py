"""Schedules: how they move on, and what is decided of their times, whatever the database.

In:   operations on schedules, each with the number of its group.
Out:  questions to the database; the answers of groups that are not plainly applied.
"""

from operator import attrgetter

from perdure.stores.answers import Answer, Answers, Moved, answer_group
from perdure.stores.operations import DeleteSchedule, MoveSchedule, NoteDecision
from perdure.stores.rules.questions import ManyRows, Query, Steps


def move_schedules(moves: list[tuple[int, MoveSchedule]], answers: Answers) -> Steps[None]:
    """Move schedules on; Moved where one is not as it was read, or another group of the batch moves it as well."""
    first: dict[str, MoveSchedule] = {}
    for index, move in moves:
        if first.setdefault(move.schedule_id, move) is not move:
            answer_group(answers, index, Moved())
    # In the order of their ids, so that nobody waits for each other.
    rows = sorted(first.values(), key=attrgetter("schedule_id"))
    found = (yield ManyRows("move_schedules", rows)).rows
    if len(found) < len(rows):
        moved = {schedule_id for (schedule_id,) in found}
        for index, move in moves:
            if move.schedule_id not in moved:
                answer_group(answers, index, Moved())


def note_decisions(decisions: list[NoteDecision], _: Answers) -> Steps[None]:
    """Note decisions; of two for one slot the newer one."""
    newest = {(each.schedule_id, each.slot): each for each in sorted(decisions, key=attrgetter("number"))}
    yield ManyRows("note_decisions", [newest[key] for key in sorted(newest)])


def delete_schedule(delete: DeleteSchedule) -> Steps[Answer | None]:
    """Forget a schedule and its decisions; Moved when it is not as it was read."""
    if (yield Query("delete_schedule", delete._asdict())).count != 1:
        return Moved()
    yield Query("delete_decisions", {"schedule_id": delete.schedule_id})
    return None
