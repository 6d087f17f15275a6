"""A run that this worker owns, what it is started with, and what becomes of it."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from perdure.errors import StoreError
from perdure.kernel.conflict import OnConflict
from perdure.kernel.events import Event
from perdure.kernel.failure import Failure
from perdure.kernel.run import RunState
from perdure.kernel.status import Status
from perdure.kernel.traits import PLAIN, Traits
from perdure.stores.records import CallProgress
from perdure.tokens import run_key

# A run that has so many unread messages takes no more signals, unless the app says otherwise.
MAX_UNREAD = 100_000


class StartRequest(msgspec.Struct, frozen=True, gc=False):
    """A run to be started; without a workflow_id its own id serves as one.

    `arguments` are those of `input`, restored, for a host in the same process. Children have their
    run_id and seed from their parent; `supersedes` is the closed run whose workflow_id this one takes.
    `is_plain` says that nothing is given but workflow, input and arguments, as for most.
    """

    workflow: str
    input: str
    workflow_id: str | None = None
    queue: str = "default"
    priority: int = 0
    arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    traits: Traits = PLAIN
    delay_ms: int = 0
    run_id: str | None = None
    seed: int | None = None
    supersedes: str | None = None
    is_plain: bool = False
    # What becomes of it when its id is taken; over a server that is decided there.
    on_conflict: OnConflict = OnConflict.RETURN


class Ending(msgspec.Struct, frozen=True, gc=False):
    """How a run ended: its status, and its result as JSON, its failure, a reason, or the run that continues it.

    `notes` go with a reason: what could not be undone.
    """

    status: Status
    result: bytes | msgspec.Raw | None = None
    failure: Failure | None = None
    reason: str | None = None
    next_run_id: str | None = None
    notes: tuple[str, ...] = ()


class Tenure:
    """What owned runs are given under: void once the engine has another; `secret` is what tokens are made from."""

    def __init__(self, url: str = "", secret: bytes | None = None) -> None:
        self._url = url
        self._secret = secret

    def key_of(self, run_id: str) -> bytes:
        """The key that the tokens of a run are made with."""
        return run_key(secret_there(self._url, self._secret), run_id)


def secret_there(url: str, secret: bytes | None) -> bytes:
    """The secret of a database; StoreError when it has lost it: tokens made from nothing could be made by anyone."""
    if not secret:
        raise StoreError(url, "it has lost the secret that tokens are made from; restore perdure_schema from a backup")
    return secret


NO_TENURE = Tenure()


class OwnedRun:
    """A run that this worker owns: what its row says, and the state the rules go on from.

    `tenure` is what the engine gave it with; it is void once the engine has another.
    """

    messages = 0
    # Whether it was started for whoever claims it: what was written is then all there is to say of it.
    is_unclaimed = False
    namespace = "main"
    queue = "default"
    priority = 0
    traits: Traits = PLAIN
    has_children = False
    # When its code was first called, if that was later than its start; and whether it was before this worker had it.
    begun_at: int | None = None
    has_begun_before = False
    # What the worker hands to activities.
    resources: Sequence[object] = ()
    tenure: Tenure = NO_TENURE
    arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    ending: Ending | None = None
    # What is known of its calls, by place: that they have begun, and the details of heartbeats.
    progress: dict[str, CallProgress] | None = None
    # The only attempts that this owner is about to begin, by place, and whether that is on disk.
    begins: dict[str, bool] | None = None
    # How many values its own code has published by stream, as far as that is on disk or on its way there; and how many
    # attempts of an activity were lost that had published, by place.
    published: dict[str, int] | None = None
    lost_attempts: dict[str, int] | None = None
    # What its activities publish by, and what of that is not on disk yet.
    publishing: "Publisher | None" = None
    outlet: "Outlet | None" = None

    def __init__(self, run_id: str, workflow_id: str, workflow: str, input: str, seed: int, created_at: int) -> None:
        self.run_id = run_id
        self.workflow_id = workflow_id
        self.workflow = workflow
        self.input = input
        self.seed = seed
        self.created_at = created_at
        self.state = RunState(Status.RUNNING, 1, created_at)

    def know(self, said: CallProgress) -> None:
        """Remember what is known of a call by now; what is not said anew stays."""
        known = (self.progress or {}).get(said.place, said)
        both = CallProgress(said.place, said.begun_at or known.begun_at, said.details or known.details, said.beat_at)
        self.progress = {**(self.progress or {}), said.place: both}


class Published:
    """Values that code has published in a stream of a run, in their order, as JSON.

    Of an activity, `source` is its place; what has no time was published now. `settled` gets how many of them were
    written, or dropped.
    """

    __slots__ = ("at", "attempt", "bodies", "name", "run_id", "settled", "source")

    def __init__(
        self,
        run_id: str,
        name: str,
        bodies: tuple[str, ...],
        *,
        source: str = "",
        attempt: int = 1,
        at: int | None = None,
        settled: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.run_id = run_id
        self.name = name
        self.bodies = bodies
        self.source = source
        self.attempt = attempt
        self.at = at
        self.settled = settled


class Publisher(Protocol):
    """What the activities of a worker publish by."""

    def publish(self, owned: OwnedRun, source: str, attempt: int, name: str, body: str) -> None:
        """A value of an activity at a place of a run. Any thread may call."""


class Outlet(Protocol):
    """The values of one run's activities that are not on disk yet."""

    def add(self, key: tuple[str, str, int], body: str) -> None:
        """Take a value in, by its stream, the place of its activity and the attempt."""

    def flush(self) -> None:
        """Give what was published so far to the engine."""


class Advance:
    """An event on its way to disk."""

    __slots__ = ()

    event: Event

    def then(self, effect: Callable[..., None], *args: Any) -> None:
        """Do this once it is there."""
        raise NotImplementedError


class Park(msgspec.Struct, frozen=True):
    """The run waits; wake it at this time, or only by a message."""

    wake_at: int | None
    waiting: str


class HandBack(msgspec.Struct, frozen=True):
    """Some worker shall go on with the run at once."""


class Hold(msgspec.Struct, frozen=True):
    """The run stops until a person acts."""

    reason: str
    report: str


class Pause(msgspec.Struct, frozen=True):
    """The run is held since a person wants that, unless a message came; `taken` are the numbers of what asked for it.

    `tasks` is the report of its activities on queues that no worker has begun, which are held with it.
    """

    report: str
    tasks: str
    taken: tuple[int, ...]


Release: TypeAlias = Park | HandBack | Hold | Pause
