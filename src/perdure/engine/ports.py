"""The Engine port: one protocol per noun, and an engine that has them as attributes.

client        what people ask for: start, post, cancel, terminate, resume, wait
reader        what everybody may read: runs, their events, attempts and messages
claimer       what a worker asks for: ripe runs, and what other workers have code for
owner         what only the owner of a run may ask for: advance, release, children, notes
outputs       what runs show and publish: snapshots, streams
transactor    code of an activity, run inside a transaction and committed with its outcome

Commands go in, not events: the rules of the kernel are behind this port. What goes in and comes out are values,
so that an engine over HTTP can have the same nouns. A further noun is a protocol with its own file, and an attribute.
A verb that is about a namespace takes it as its first argument; an engine serves all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from perdure.clock import Clock
from perdure.engine.hindrances import Served
from perdure.errors import RunUnreadable, StoreError
from perdure.kernel.commands import Command, RecordOutcome
from perdure.kernel.events import ChildFailed, Event
from perdure.kernel.failure import Failure
from perdure.kernel.messages import Message, RequestSent, Sent
from perdure.kernel.requests import RequestAnswer
from perdure.kernel.run import Refusal, RunState
from perdure.kernel.status import Status
from perdure.kernel.traits import PLAIN, Traits
from perdure.stores.answers import Undone
from perdure.stores.records import (
    AttemptRow,
    CallProgress,
    LoadedRun,
    RunFilter,
    RunRow,
    SnapshotRow,
    StreamHead,
    StreamValue,
    UnreadPage,
)
from perdure.tokens import Meant, run_key

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


Release: TypeAlias = Park | HandBack | Hold


class Host(Protocol):
    """A worker in this process, as the engine sees it."""

    def names(self) -> tuple[str, ...]:
        """The workflows, and the activities on queues, that it has code for."""

    def makes_room_for(self, request: StartRequest) -> bool:
        """Whether it will run this at once; if so, it is adopted, or forgone."""

    def forgo(self) -> None:
        """A run that room was made for does not come."""

    def adopt(self, owned: OwnedRun, loaded: LoadedRun | None) -> None:
        """Bring a run to life that is now this worker's; `loaded` is its past, if it has one."""

    def is_live(self, run_id: str) -> bool:
        """Whether the run lives in this process."""

    def notice(self, run_id: str, message: Message, count: int | None) -> bool:
        """A message has come, the count-th of its run if that is known; False when the run does not live here."""

    def notice_unread(self, run_id: str, messages: Sequence[Message], had: int | None) -> None:
        """What is unread of a run, in order, after what it knows; `had` with the last of it, the count with all."""

    def look_around(self) -> None:
        """Something changed: there may be runs to claim."""

    def ended(self, run_id: str) -> None:
        """The end of a run is on disk."""

    def broken(self, run_id: str, trouble: str) -> None:
        """The database will never take a run's last event."""

    def unreadable(self, error: RunUnreadable) -> None:
        """What came for a run that lives here cannot be read."""

    def evict_all(self) -> None:
        """Everything this worker owned is not its own any more, or must be loaded again."""


class Client(Protocol):
    """What people ask of runs, owned or not; `id` is the workflow_id that errors name."""

    async def start(self, namespace: str, request: StartRequest) -> RunRow | OwnedRun:
        """Start a run; when its workflow_id is taken, the run that has it."""

    async def start_within(self, namespace: str, request: StartRequest, connection: object) -> RunRow | OwnedRun:
        """The same inside the transaction a connection of the caller's is in: there when that is committed."""

    async def post(
        self,
        namespace: str,
        run_id: str,
        id: str,
        sent: Sent,
        message_id: str | None = None,
        *,
        within: object = None,
    ) -> None:
        """Send a signal, or resolve a deferred; RunNotFound or RunClosed when no run can ever receive it; InboxFull.

        `within` a connection of the caller's it is sent when the transaction it is in is committed.
        Sent twice under one message_id it counts once. A run that continues as another one gets it there.
        """

    async def ask(self, namespace: str, run_id: str, id: str, sent: RequestSent, message_id: str) -> RequestAnswer:
        """Send a request, and wait for its answer, on disk; the same message_id again gets the same answer."""

    async def read_token(self, namespace: str, token: str) -> Meant:
        """The run and the deferred that a token is for; BadToken."""

    async def cancel(self, namespace: str, run_id: str, id: str, reason: str | None, deadline_ms: int | None) -> None:
        """Ask a run to stop; after the deadline, 0 being at once, it is closed whatever its code does."""

    async def terminate(self, namespace: str, run_id: str, id: str, reason: str | None) -> None:
        """End a run at once, without clean-up."""

    async def resume(self, namespace: str, run_id: str, id: str) -> None:
        """Let a held run go on; RunNotHeld or RunClosed for any other."""

    async def wait(self, namespace: str, run_id: str, owned: OwnedRun | None = None) -> Ending:
        """Until the run has ended; `owned` is its handle, if it was started here."""


class Reader(Protocol):
    """What everybody may read."""

    async def read(self, namespace: str, run_id: str) -> RunRow:
        """A run's row; RunNotFound."""

    async def find(self, namespace: str, workflow_id: str) -> RunRow:
        """The newest run of a workflow_id; RunNotFound."""

    async def first(self, row: RunRow) -> RunRow:
        """The run itself, or the first of those that it continues."""

    async def list_runs(self, wanted: RunFilter) -> list[RunRow | RunUnreadable]:
        """Runs, newest first; those that cannot be read are in their places."""

    async def held_counts(self, namespace: str) -> dict[str, int]:
        """How many runs are held, by reason."""

    async def serving(self, namespace: str) -> Served:
        """What living workers have code for, by queue."""

    async def events(self, namespace: str, run_id: str, after: int, limit: int) -> list[Event]:
        """A run's history after an event's number."""

    async def last_event_at(self, run_id: str) -> int | None:
        """When a run's last event was."""

    async def attempts(self, run_id: str) -> Sequence[AttemptRow]:
        """A run's failed attempts."""

    async def progress(self, run_ids: Sequence[str]) -> dict[str, list[CallProgress]]:
        """What is known of the calls of these runs, by run: that they have begun, and the details of heartbeats."""

    async def unread(self, run_id: str) -> Sequence[Message]:
        """The messages a run has not taken yet."""

    async def unread_page(self, run_id: str, after: int, limit: int) -> UnreadPage:
        """The first of these after a number."""

    async def count_unread(self, run_id: str, most: int) -> int:
        """How many of these there are, counted up to a number."""

    async def deferreds(self, run_id: str) -> Sequence[Message]:
        """What the deferreds of a run were resolved with, waited for or not, in the order that it came."""

    async def misfits(self, run_id: str) -> Sequence[Message]:
        """The signals that were set aside, for they are not what a run's code waits for."""


class Claimer(Protocol):
    """What a worker asks for."""

    async def claim(
        self, namespace: str, queues: tuple[str, ...], workflows: tuple[str, ...], limit: int, suspects: int
    ) -> int:
        """Take ripe runs, at most so many suspects among them, and hand them to the host; answers how many."""

    async def next_wake(
        self, namespace: str, queues: tuple[str, ...], workflows: tuple[str, ...], *, suspects: bool = False
    ) -> int | None:
        """When the next free run becomes ripe, suspects among them or not."""

    def is_worked(self, namespace: str, queue: str) -> bool:
        """Whether a worker that was alive a moment ago works this queue."""

    def has_code(self, namespace: str, queue: str, workflow: str) -> bool:
        """Whether a worker that was alive a moment ago has this workflow on this queue."""

    async def tell_missing(self, namespace: str, queues: tuple[str, ...]) -> None:
        """Warn of what free runs of these queues wait for and no living worker has, as far as that is quickly seen."""

    async def free_mismatches(self, namespace: str, workflows: tuple[str, ...]) -> None:
        """Give runs held for a mismatch another try; the code may be back."""

    async def read_messages_of(self, run_id: str, after: int = 0) -> None:
        """Tell the host what is unread in one run's inbox after a number."""


class Owner(Protocol):
    """What only the owner of a run may ask for; of a run that is lost, nothing comes of it."""

    def advance(self, owned: OwnedRun, command: Command) -> Advance | Refusal:
        """Let the rules decide; the event is in the next batch."""

    def continue_run(self, owned: OwnedRun, request: StartRequest) -> Advance | Refusal:
        """Close a run, and start the one that goes on in its place."""

    def start_child(self, owned: OwnedRun, request: StartRequest, then: Callable[[RunRow | None], None]) -> None:
        """Start a child of an owned run; `then` gets the run that has its id, if another one does."""

    def cancel_child(self, owned: OwnedRun, place: str, reason: str) -> None:
        """Ask the child that an owned run started at this place to stop; one that has ended does not mind."""

    def close_unbegun(self, owned: OwnedRun, place: str, failed: ChildFailed) -> None:
        """End the child at this place with a failure, unless some worker has begun it."""

    def set_aside(self, owned: OwnedRun, message: Message) -> None:
        """A message that the code of an owned run cannot take is not to be offered again."""

    def answer(self, owned: OwnedRun, answers: Mapping[str, RequestAnswer], *refused: Message) -> None:
        """Answer requests, by the ids of their messages; what the code cannot take is not to be offered again."""

    def annotate(self, owned: OwnedRun, attributes: str, step: str | None) -> None:
        """Show what a workflow says of itself."""

    def note_undo(self, owned: OwnedRun, undo: str | None) -> None:
        """Show what a run would have to undo, and what it has undone."""

    def record_attempt(self, owned: OwnedRun, attempt: AttemptRow, then: Callable[[], None]) -> None:
        """Write down a failed attempt, then go on."""

    def begin_attempt(self, owned: OwnedRun, place: str, then: Callable[[], None]) -> None:
        """Write down that the only attempt of a call begins, then begin it."""

    def record_beats(
        self, owned: OwnedRun, said: Sequence[CallProgress], then: Callable[[], None] = lambda: None
    ) -> None:
        """Write down the newest details of activities under way, then go on."""

    def note_waiting(self, owned: OwnedRun, waiting: str, then: Callable[[], None] = lambda: None) -> None:
        """Show what a live run waits for, then go on."""

    def note_losses(self, owned: OwnedRun, losses: int, outlived: int) -> None:
        """Put down what is held against a run from now on."""

    def release(self, owned: OwnedRun, how: Release, done: Callable[[bool], None]) -> None:
        """Let go of a run; `done(False)` when a message came first and it must go on."""


class Outputs(Protocol):
    """What runs show and publish; the first two are for the owner of a run alone."""

    def show(self, owned: OwnedRun, seq: int, body: str) -> None:
        """Show this of an owned run, as of an event that is written before."""

    def publish(self, owned: OwnedRun, published: Sequence[Published]) -> None:
        """Write values that an owned run has published, in their order."""

    async def snapshot(self, namespace: str, run_id: str) -> SnapshotRow | None:
        """What a run shows, or the one that continues it."""

    async def holder(self, namespace: str, run_id: str, name: str, after: int) -> RunRow:
        """The run in which the values of a stream after a number begin: this one, or one that it continues."""

    async def stream_page(self, run_id: str, name: str, after: int, limit: int) -> Sequence[StreamValue]:
        """The first values of a run's stream after a number."""

    async def heads(self, run_id: str) -> Sequence[StreamHead]:
        """How far the streams of a run are."""

    async def wait_for_more(self, run_id: str, name: str, after: int) -> None:
        """Until a run's stream has more than this number, or the run has ended, or may have."""


class Written(msgspec.Struct, frozen=True):
    """What the code did and the event are on disk."""

    event: Event


class Unwritten(msgspec.Struct, frozen=True):
    """Nothing of it is on disk, and the database is to blame: the same may be done again."""


class Gone(msgspec.Struct, frozen=True):
    """The run is not this worker's any more, or that is not known: its next owner looks what is on disk."""


Transacted: TypeAlias = Written | Undone | Unwritten | Gone


class ActivityCode(Protocol):
    """The code of an activity, and the command that records what it returned."""

    activity: str
    is_async: bool

    def run(self, connection: object) -> object:
        """Call the function: what it returns, or its coroutine. Any thread may call."""

    def unwanted(self) -> BaseException | None:
        """Why nobody wants it any more; None while it is wanted. Any thread may call."""

    def accept(self, value: object) -> RecordOutcome | None:
        """The command that records what the function returned; None when it is not to be recorded.

        From here on nothing else may happen to the run until it is told what became of the transaction.
        """


class Transactor(Protocol):
    """Runs the code of transactional activities; `is_alone` says that nothing else can be written meanwhile."""

    @property
    def is_alone(self) -> bool: ...

    def connection_type(self, *, is_async: bool) -> str | None:
        """The type of connection that such code gets, as people import it; None when there is none for it."""

    async def run(self, owned: OwnedRun, code: ActivityCode) -> Transacted:
        """Run the code inside a transaction, and commit that with the event that records its outcome."""

    async def calm(self) -> None:
        """Until no transaction is being committed; before that its run cannot be let go of."""


class Engine(Protocol):
    """The nouns together, and the time between opening and closing; `url` names the database to people."""

    clock: Clock

    @property
    def url(self) -> str: ...

    @property
    def client(self) -> Client: ...

    @property
    def reader(self) -> Reader: ...

    @property
    def claimer(self) -> Claimer: ...

    @property
    def owner(self) -> Owner: ...

    @property
    def outputs(self) -> Outputs: ...

    @property
    def transactor(self) -> Transactor: ...

    async def open(self, namespace: str, host: Host | None = None, queues: tuple[str, ...] = ()) -> None:
        """Begin, and see to the ends by the clock in a namespace; with a host, become a worker for its queues."""

    async def close(self) -> None:
        """Write what is left, and let go of everything."""

    async def settle(self, patience_ms: int) -> None:
        """Until everything asked for so far is on disk; while the database is unavailable, not for longer than this."""
