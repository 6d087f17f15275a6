"""Pausing: how runs are held on purpose, with their activities on queues, and let go on.

In:   operations on runs that somebody owns or nobody does.
Out:  questions to the database; whether a message was posted to the owner instead.
"""

from collections.abc import Sequence

from perdure.kernel.messages import PauseRequest, ResumeRequest
from perdure.stores.answers import Answer, Answers, Applied, Closed, Missing, Moved, answer_group, is_refused
from perdure.stores.operations import HoldTasks, PauseRun, PostMessage, ResumeRun
from perdure.stores.rules.changes import log_changes
from perdure.stores.rules.inbox import post_messages
from perdure.stores.rules.questions import ManyRows, Query, Steps

PAUSE, RESUME = PauseRequest.__name__, ResumeRequest.__name__


def hold_tasks(holds: Sequence[HoldTasks]) -> Steps[None]:
    """Hold what runs have called on queues and no worker has begun."""
    held = (yield ManyRows("hold_tasks", sorted(holds))).rows
    yield from log_changes([run_id for (run_id,) in held], holds[0].at)


def hold_tasks_of_one(hold: HoldTasks) -> Steps[None]:
    """The same for one run."""
    yield from hold_tasks([hold])


def pause_runs(pauses: list[tuple[int, PauseRun]], answers: Answers) -> Steps[None]:
    """Pause runs, with the messages of a batch: what is posted to a run that is continued in it goes on with it."""
    wanted = [(index, pause) for index, pause in pauses if not is_refused(answers, index)]
    held = yield from _held([pause for _, pause in wanted])
    for index, pause in wanted:
        if pause.run_id not in held and (answer := (yield from _pause_owned(pause))) is not None:
            answer_group(answers, index, answer)


def _held(pauses: Sequence[PauseRun]) -> Steps[set[str]]:
    """Hold those of these runs that nobody owns, and what they have called."""
    if not pauses:
        return set()
    found = yield ManyRows("hold_free_runs", sorted((pause.run_id, pause.report, pause.at) for pause in pauses))
    held = {run_id for (run_id,) in found.rows}
    tasks = [HoldTasks(pause.run_id, pause.tasks, pause.at) for pause in pauses if pause.run_id in held]
    if tasks:
        yield from hold_tasks(tasks)
    return held


def _pause_owned(pause: PauseRun) -> Steps[Answer | None]:
    """Tell the owner of a run to hold it."""
    # Its row is taken before it is looked at once more: no owner lets go of it, or takes it, between look and message.
    found = (yield Query("touch_run", {"run_id": pause.run_id})).first
    if found is None:
        return Missing()
    _, status, has_ended = found
    if has_ended:
        return Closed(status)
    if (yield from _held([pause])):
        return None
    return (yield from _posted(pause.run_id, pause.message_id, PAUSE, pause.body, pause.at))


def resume_runs(resumes: list[tuple[int, ResumeRun]], answers: Answers) -> Steps[None]:
    """Let runs go on, with the messages of a batch, as above."""
    for index, resume in resumes:
        if not is_refused(answers, index) and (answer := (yield from _resume_run(resume))) is not None:
            answer_group(answers, index, answer)


def _resume_run(resume: ResumeRun) -> Steps[Answer | None]:
    """Let a held run go on; the owner of one that is still to be held is told not to."""
    if (yield from _is_freed(resume)):
        return None
    if not resume.message_id:
        return Moved()
    found = (yield Query("touch_run", {"run_id": resume.run_id})).first
    if (yield from _is_freed(resume)):
        return None
    asked = (yield Query("unread_pause", {"run_id": resume.run_id})).rows
    if found is None or found[2] or not asked:
        return Moved()
    return (yield from _posted(resume.run_id, resume.message_id, RESUME, "{}", resume.now))


def _is_freed(resume: ResumeRun) -> Steps[bool]:
    named = {"run_id": resume.run_id, "now": resume.now}
    freed = yield Query("resume_run", named)
    if freed.count and resume.tasks:
        tasks = (yield Query("free_tasks", named | {"report": resume.tasks})).rows
        yield from log_changes([run_id for (run_id,) in tasks], resume.now)
    return freed.count > 0


def _posted(run_id: str, message_id: str, kind: str, body: str, at: int) -> Steps[Answer]:
    answers: Answers = {}
    yield from post_messages([(0, PostMessage(run_id, message_id, kind, body, at))], answers)
    return answers.get(0, Applied())
