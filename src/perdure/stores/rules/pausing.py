"""Pausing: how runs are held on purpose, with their activities on queues, and let go on.

In:   operations on runs that somebody owns or nobody does.
Out:  questions to the database; whether a message was posted to the owner instead.
"""

from perdure.kernel.messages import PauseRequest, ResumeRequest
from perdure.stores.answers import Answer, Answers, Applied, Closed, Missing, Moved, answer_group
from perdure.stores.operations import HoldTasks, PauseRun, PostMessage, ResumeRun
from perdure.stores.rules.changes import log_changes
from perdure.stores.rules.inbox import post_messages
from perdure.stores.rules.questions import Query, Steps

PAUSE, RESUME = PauseRequest.__name__, ResumeRequest.__name__


def hold_tasks(hold: HoldTasks) -> Steps[None]:
    """Hold what a run has called on queues and no worker has begun."""
    held = (yield Query("hold_tasks", hold._asdict())).rows
    yield from log_changes([run_id for (run_id,) in held], hold.at)


def pause_runs(pauses: list[tuple[int, PauseRun]], answers: Answers) -> Steps[None]:
    """Pause runs, with the messages of a batch: what is posted to a run that is continued in it goes on with it."""
    for index, pause in pauses:
        if (answer := (yield from _pause_run(pause))) is not None:
            answer_group(answers, index, answer)


def _pause_run(pause: PauseRun) -> Steps[Answer | None]:
    """Hold a run that nobody owns; else its owner is told to."""
    if (yield from _is_held(pause)):
        return None
    # Its row is taken before it is looked at once more: no owner lets go of it, or takes it, between look and message.
    found = (yield Query("touch_run", {"run_id": pause.run_id})).first
    if found is None:
        return Missing()
    _, status, has_ended = found
    if has_ended:
        return Closed(status)
    if (yield from _is_held(pause)):
        return None
    return (yield from _posted(pause.run_id, pause.message_id, PAUSE, pause.body, pause.at))


def _is_held(pause: PauseRun) -> Steps[bool]:
    held = yield Query("hold_free_run", {"run_id": pause.run_id, "report": pause.report, "at": pause.at})
    if held.count:
        yield from hold_tasks(HoldTasks(pause.run_id, pause.tasks, pause.at))
    return held.count > 0


def resume_runs(resumes: list[tuple[int, ResumeRun]], answers: Answers) -> Steps[None]:
    """Let runs go on, with the messages of a batch, as above."""
    for index, resume in resumes:
        if (answer := (yield from _resume_run(resume))) is not None:
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
