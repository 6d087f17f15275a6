"""What a check before a deploy has found, and a run replayed line by line."""

from dataclasses import dataclass

from perdure.views.run import RunEvent, View


@dataclass(frozen=True, slots=True)
class RunMisfit(View):
    """A way in which runs do not fit: what is wrong, the first event that finds nobody, and where the code waits.

    `runs` is how many there are, `ids` are those of some of them.
    """

    trouble: str
    event: str | None
    code_waits_at: tuple[str, ...]
    runs: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkflowCheck(View):
    """What became of the open runs of one workflow; `checked` is how many were looked at.

    `held` would be held for their history, `arguments` for their input, which does not fit the signature any more.
    """

    workflow: str
    checked: int
    fit: int
    held: int
    arguments: int
    no_code: int
    unreadable: int
    misfits: tuple[RunMisfit, ...]

    @property
    def is_fit(self) -> bool:
        return self.fit == self.checked


@dataclass(frozen=True, slots=True)
class Check(View):
    """What a check has found, workflow by workflow; `is_fit` when every run that was looked at would go on."""

    workflows: tuple[WorkflowCheck, ...]

    @property
    def is_fit(self) -> bool:
        return all(each.is_fit for each in self.workflows)


@dataclass(frozen=True, slots=True)
class TracedEvent(View):
    """An event, and the line of code that took it, as FILE:LINE; None for what is about the run itself."""

    event: RunEvent
    line: str | None


@dataclass(frozen=True, slots=True)
class TracedWait(View):
    """Something that the code waits for at the end of its history, and the line that waits."""

    kind: str
    place: str
    line: str | None


@dataclass(frozen=True, slots=True)
class Trace(View):
    """A run replayed: its events and their lines, where the code waits then, and why it does not fit, if so."""

    id: str
    run_id: str
    workflow: str
    events: tuple[TracedEvent, ...]
    waits: tuple[TracedWait, ...]
    has_ended: bool
    trouble: str | None = None
