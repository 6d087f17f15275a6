"""Every exception Perdure raises on purpose.

    PerdureError
    ├── BadInput                  refused before anything was written
    │   ├── BadId                 an id that is empty, too long or unprintable
    │   ├── BadArguments          arguments that do not fit the function
    │   ├── BadValue              a value that could not be restored from disk
    │   │   └── ValueTooLarge
    │   ├── BadOption             an option, name or URL that makes no sense
    │   ├── BadToken              a token that was changed, or is of another database or namespace
    │   ├── BadForkPoint          a run has no such event or place, or no code can wait there
    │   ├── BadFilter             a filter that cannot be read, or compares what does not fit
    │   ├── BadSchedule           a time, zone or interval that makes no sense, or that never comes
    │   ├── BadSink               a sink, its events or its secret make no sense
    │   ├── BadField              a field of a request that is unknown, missing or of another type
    │   └── UnknownWorkflow       no such workflow is known here
    ├── DuplicateName             two functions under one registered name
    ├── NotInWorkflow             only workflow code may call this
    ├── NotInActivity             only the code of a running activity may call this
    ├── ResourceNotFound          the worker was given no resource of this type
    ├── TransactionEnded          a transactional activity ended its transaction itself, or was about to
    ├── NotAllowedInWorkflow      workflow code must not do this directly
    ├── NeverAwaited              a workflow made a durable call and ended without awaiting it
    ├── NotOpen                   the Perdure object is not open
    │   ├── OpenElsewhere         it was opened by the process this one was forked from
    │   └── AnotherLoop           it was opened on another event loop
    ├── WouldDeadlock             a blocking call on the very thread that would have to answer it
    ├── RunNotFound
    ├── NamespaceNotFound         no namespace of this name
    ├── NamespaceExists           there is a namespace of this name already
    ├── NamespaceNotEmpty         something is left in it; it cannot be deleted
    ├── RunClosed                 the run has ended; it cannot be signalled or stopped
    ├── RunOpen                   the run has not ended; it cannot be retried, nor forked under its own id
    ├── InboxFull                 the run has too many unread messages; it takes no more signals
    ├── AlreadyResolved           the deferred has another value, or the request an answer
    ├── DeferredFailed            how wait() reports a deferred that got an error instead of a value
    ├── RequestRefused            the workflow refused what it was asked
    ├── NotAnswered               the run took the request, and ended or continued without an answer
    ├── QueryNotFound             the run shows nothing under this name
    ├── CursorExpired             what came after the cursor of a subscription is not kept any more
    ├── StreamFull                too many values of a stream are not on disk yet
    ├── RunNotHeld                the run is not held; there is nothing to resume
    ├── ScheduleNotFound
    ├── ScheduleExists            another schedule has this name
    ├── SinkNotFound
    ├── SinkExists                another sink has this name
    ├── SinkNotReady              transactions that began before the sink may not tell it what they change
    ├── SinkFailed                how test() reports that a sink did not take an event
    ├── IdConflict                the id is taken by another workflow or other arguments
    ├── KeyConflict               the idempotency key was used with other arguments
    ├── KeyInProgress             the command is under way under this idempotency key
    ├── KeyAlreadyMade            an access key was made under this idempotency key, and is not shown again
    ├── LeaseLost                 a worker over a server is taken for gone; its runs continue elsewhere
    ├── RunNotOwned               a run or task is not that of the worker which writes to it, or not that attempt
    ├── OutOfStep                 a run has other events than its worker knows of
    ├── RunEnded                  how result() reports an end that is not a success
    │   ├── RunFailed, RunCancelled, RunTerminated, RunTimedOut
    ├── ActivityFailed            an activity's error whose own type is not at hand
    ├── AttemptLost               the only attempt of an activity was lost with its process
    ├── ChildFailed               a child run's error whose own type is not at hand
    ├── KeyNotFound               no key has this id, or it was revoked before
    ├── LastAdminKey              nobody could make another key if this one were revoked
    ├── RequestRejected           how the server answers a request that reaches no route, or may not
    │   ├── NotAuthenticated, NotAllowed, RouteNotFound, MethodNotAllowed
    │   ├── BadJson, BadContentType, BodyTooLarge, HeadersTooLarge, TooManyRequests, IssuerUnavailable
    └── StoreError
        ├── NotADatabase          the file is not ours, or not a database at all
        ├── NewerSchema           a newer Perdure wrote this database
        ├── RunUnreadable         what the database holds of one run cannot be read
        └── StoreUnavailable      the database cannot be written or read right now

An error says what happened, to which thing, and what to do. Its fields go to
Exception.__init__, so that errors pickle; the text is made in __str__.
"""

import re
import reprlib
import shlex
from typing import ClassVar

_UP_TO_IT = r"\s*(?:postgres\w*:/{2,}|[a-z][a-z0-9+.-]*://(?!/))[^/?#:@\[]*:"
# Up to the last @ there is: a password that was not encoded may have anything in it. What has no :// may have it right
# after the first colon, be that the one of a scheme or the one of an account.
_IN_ACCOUNT = re.compile(rf"^({_UP_TO_IT}|(?!\s*[a-z][a-z0-9+.-]*://)[^:@]*:).*(@)", re.DOTALL | re.IGNORECASE)
# Where the host was forgotten the password stands in its place, or in that of a port.
_WITHOUT_HOST = re.compile(
    rf"^({_UP_TO_IT}(?!\d{{0,5}}(?:[,/?#]|$))|\s*postgres\w*:(?!//))[^@]*$", re.DOTALL | re.IGNORECASE
)
# Also as libpq takes it, without a URL: `host=db password=...`.
_IN_OPTIONS = re.compile(r"([^=&?\s]*password[^=&?]*=)[^&]*", re.DOTALL | re.IGNORECASE)


def without_password(url: str) -> str:
    """What may be shown of a URL, be it one that can be read or not."""
    shown = _WITHOUT_HOST.sub(r"\1***", _IN_ACCOUNT.sub(r"\1***\2", url))
    return _IN_OPTIONS.sub(r"\1***", shown)


class PerdureError(Exception):
    """The root: catch it to catch everything Perdure raises on purpose."""


class BadInput(PerdureError, ValueError):
    """Refused before anything was written."""


class BadId(BadInput):
    """An id that is empty, too long or unprintable."""

    def __init__(self, what: str, value: object, trouble: str) -> None:
        super().__init__(what, value, trouble)
        self.what = what
        self.value = value
        self.trouble = trouble

    def __str__(self) -> str:
        shown = reprlib.repr(self.value)
        most = 150 if self.what == "schedule name" else 200
        return f"{self.what} {shown} {self.trouble}; use 1 to {most} printable characters"


class BadArguments(BadInput, TypeError):
    """Arguments that do not fit the function's parameters."""

    def __init__(self, function: str, trouble: str) -> None:
        super().__init__(function, trouble)
        self.function = function
        self.trouble = trouble

    def __str__(self) -> str:
        return f"{self.function}: {self.trouble}"


class BadValue(BadInput):
    """A value that could not be written and restored as it was."""

    def __init__(self, where: str, trouble: str) -> None:
        super().__init__(where, trouble)
        self.where = where
        self.trouble = trouble

    def __str__(self) -> str:
        return f"{self.where}: {self.trouble}"


class ValueTooLarge(BadValue):
    """A value above the limit; store it elsewhere and pass a reference."""

    def __init__(self, where: str, size: int, limit: int) -> None:
        Exception.__init__(self, where, size, limit)
        self.where = where
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"{self.where}: the value takes {self.size:,} bytes, the limit is {self.limit:,}; "
            "store it elsewhere and pass a reference to it"
        )


class BadOption(BadInput):
    """An option, name or URL that makes no sense."""


class BadSchedule(BadInput):
    """A time, zone or interval that makes no sense, or that never comes."""


class BadSink(BadInput):
    """A sink, its events or its secret make no sense."""


class BadToken(BadInput):
    """A token that is not one of this database and namespace; whether the run exists it does not say."""

    def __str__(self) -> str:
        return "the token is not one of this database and namespace, or was changed; use it as token() gave it"


class BadFilter(BadInput):
    """A filter that cannot be read, or compares what does not fit; `position` counts characters from 0."""

    _SHOWN_BEFORE, _SHOWN_AFTER = 60, 40

    def __init__(self, text: str, position: int, trouble: str) -> None:
        super().__init__(text, position, trouble)
        self.text = text
        self.position = position
        self.trouble = trouble

    def __str__(self) -> str:
        begin, end = max(0, self.position - self._SHOWN_BEFORE), self.position + self._SHOWN_AFTER
        # A line break or a tab would move the caret to another place.
        shown = "".join(each if each.isprintable() else " " for each in self.text[begin:end])
        before, after = "…" if begin else "", "…" if end < len(self.text) else ""
        caret = " " * (len(before) + self.position - begin) + "^"
        return f"bad filter, at character {self.position + 1}: {self.trouble}\n  {before}{shown}{after}\n  {caret}"


class BadForkPoint(BadInput):
    """A run has no such event or place, or its code cannot wait there; `places` are those there are."""

    _MOST_SHOWN = 20

    def __init__(self, id: str, trouble: str, places: tuple[str, ...] = ()) -> None:
        super().__init__(id, trouble, places)
        self.id = id
        self.trouble = trouble
        self.places = places

    def __str__(self) -> str:
        shown = ", ".join(map(repr, self.places[: self._MOST_SHOWN])) or "none"
        more = len(self.places) - self._MOST_SHOWN
        return f"run {self.id!r} cannot be forked so: {self.trouble}; places there are: {shown}" + (
            f" and {more} more" if more > 0 else ""
        )


class BadField(BadInput):
    """A field of a request that is unknown, missing or of another type."""

    def __init__(self, where: str, trouble: str, instead: str = "/docs tells what the route takes") -> None:
        super().__init__(where, trouble, instead)
        self.where = where
        self.trouble = trouble
        self.instead = instead

    def __str__(self) -> str:
        return f"{self.where}: {self.trouble}; {self.instead}"


class CursorExpired(PerdureError):
    """What has changed since the cursor of a subscription is not known any more."""

    def __init__(self, cursor: str, minutes: int) -> None:
        super().__init__(cursor, minutes)
        self.cursor = cursor
        self.minutes = minutes

    def __str__(self) -> str:
        return (
            f"the cursor {self.cursor!r} is too old: changes are kept for {self.minutes} minutes, and while somebody "
            "subscribes; begin anew without a cursor"
        )


class UnknownWorkflow(BadInput, LookupError):
    """No workflow of that name is known here."""

    IN_PROCESS = (
        "import the module that has it with @workflow, or start a worker that has it, which tells every server of the "
        "database"
    )
    ON_SERVER = (
        "no module of this server has it, and no worker has announced it: start a worker that has it, or the server "
        "with its module"
    )

    def __init__(self, name: str, known: tuple[str, ...], instead: str = IN_PROCESS) -> None:
        super().__init__(name, known, instead)
        self.name = name
        self.known = known
        self.instead = instead

    def __str__(self) -> str:
        from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it

        near = get_close_matches(self.name, self.known, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        known = ", ".join(self.known) or "none"
        return f"no workflow named {self.name!r} is known here ({meant}known: {known}); {self.instead}"


class DuplicateName(PerdureError):
    """Two different functions want the same registered name."""

    def __init__(self, kind: str, name: str, first: str, second: str) -> None:
        super().__init__(kind, name, first, second)
        self.kind = kind
        self.name = name
        self.first = first
        self.second = second

    def __str__(self) -> str:
        return (
            f"the {self.kind} name {self.name!r} is taken by {self.first}, {self.second} cannot have it too; "
            f"give one of them another name: @{self.kind}(name=...)"
        )


class NotInWorkflow(PerdureError):
    """Only code that runs inside a workflow may call this."""

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(what, instead)
        self.what = what
        self.instead = instead

    def __str__(self) -> str:
        return f"{self.what} works only inside a workflow; {self.instead}"


class NotInActivity(PerdureError):
    """Only the code of an activity that a worker runs may call this."""

    def __init__(
        self, what: str, instead: str = "pass the value as an argument elsewhere", where: str = "an activity"
    ) -> None:
        super().__init__(what, instead, where)
        self.what = what
        self.instead = instead
        self.where = where

    def __str__(self) -> str:
        return f"{self.what} works only inside {self.where} that a worker runs; {self.instead}"


class ResourceNotFound(PerdureError, LookupError):
    """The worker was given no resource of this type."""

    def __init__(self, wanted: str, there: tuple[str, ...], instead: str | None = None) -> None:
        super().__init__(wanted, there, instead)
        self.wanted = wanted
        self.there = there
        self.instead = instead

    def __str__(self) -> str:
        there = ", ".join(self.there) or "none"
        instead = self.instead or "give it as Perdure(url, resources=[...])"
        return f"no resource of type {self.wanted} (there are: {there}); {instead}"


class TransactionEnded(PerdureError):
    """A transactional activity ended its transaction itself, or was about to; its outcome is not recorded as done."""

    def __init__(self, activity: str, how: str) -> None:
        super().__init__(activity, how)
        self.activity = activity
        self.how = how

    def __str__(self) -> str:
        return (
            f"the activity {self.activity!r} must not end its transaction itself ({self.how}); return, and what it did "
            "is committed together with its result, or raise, and nothing of it is left"
        )


class NotAllowedInWorkflow(PerdureError):
    """Workflow code must not do this directly, since a replay would do it again; `where` is its file and line."""

    def __init__(
        self, what: str, instead: str, where: str | None = None, why: str = "a replay would repeat it"
    ) -> None:
        super().__init__(what, instead, where, why)
        self.what = what
        self.instead = instead
        self.where = where
        self.why = why

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.what} is not possible inside a workflow, {self.why}; {self.instead}"


class NeverAwaited(PerdureError):
    """The workflow made a durable call and ended without awaiting it, so it never ran; `where` is its file and line."""

    def __init__(self, call: str, where: str) -> None:
        super().__init__(call, where)
        self.call = call
        self.where = where

    def __str__(self) -> str:
        return (
            f"{self.where}: the call of {self.call} was never awaited and never ran; "
            "put `await` before it, or close() the call if it is not wanted"
        )


class NotOpen(PerdureError):
    """The Perdure object was used outside its `async with`, or its `with`, block."""

    def __init__(self, url: str | None = None) -> None:
        self.url = None if url is None else without_password(url)
        super().__init__(self.url)

    def __str__(self) -> str:
        which = "this Perdure is not open" if self.url is None else f"no Perdure is open on {self.url!r}"
        return f"{which}; use it inside `async with Perdure(url) as app:` or `with Perdure(url).sync() as app:`"


class OpenElsewhere(NotOpen):
    """The process this one was forked from opened the Perdure; its thread did not come along."""

    def __init__(self, url: str, opened_by: int) -> None:
        self.url = without_password(url)
        Exception.__init__(self, self.url, opened_by)
        self.opened_by = opened_by

    def __str__(self) -> str:
        return (
            f"the Perdure on {self.url!r} was opened by process {self.opened_by}, from which this one was forked; "
            "open another one here, after the fork: `with Perdure(url).sync() as app:`"
        )


class AnotherLoop(NotOpen):
    """The Perdure was opened on another event loop than the one that runs here."""

    def __str__(self) -> str:
        return (
            f"the Perdure on {self.url!r} was opened on another event loop, perhaps of another thread, and works only "
            "there; from threads use the bridge, `with Perdure(url).sync() as app:`, or open another Perdure here"
        )


class WouldDeadlock(PerdureError):
    """A blocking call was made on the thread that would have to answer it."""

    def __init__(self, url: str) -> None:
        self.url = without_password(url)
        super().__init__(self.url)

    def __str__(self) -> str:
        return (
            f"this call would wait for itself for ever: it was made on the thread that works {self.url!r}; "
            "write the activity as a plain `def`, which has a thread of its own"
        )


class RunNotFound(PerdureError, LookupError):
    """There is no run with this id; `why` is what may have become of one that was started."""

    def __init__(self, id: str, namespace: str, why: str = "") -> None:
        super().__init__(id, namespace, why)
        self.id = id
        self.namespace = namespace
        self.why = why

    def __str__(self) -> str:
        text = self.why or "`perdure list` shows the runs there are"
        return f"no run {self.id!r} in namespace {self.namespace!r}; {text}"


class NamespaceNotFound(PerdureError, LookupError):
    """There is no namespace of this name; `near` is one that may be meant."""

    def __init__(self, name: str, near: str | None) -> None:
        super().__init__(name, near)
        self.name = name
        self.near = near

    def __str__(self) -> str:
        meant = "" if self.near is None else f" (did you mean {self.near!r}?)"
        return (
            f"there is no namespace {self.name!r}{meant}; "
            f"`perdure namespace create {shlex.quote(self.name)}` makes it, and so does a worker that opens on it"
        )


class NamespaceExists(PerdureError):
    """There is a namespace of this name already."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"there is a namespace {self.name!r} already; use it, or give the new one another name"


class NamespaceNotEmpty(PerdureError):
    """Runs, workers, schedules or sinks are left in it, so it is not deleted. Runs are counted up to a limit."""

    MOST_COUNTED: ClassVar[int] = 10_000

    def __init__(self, name: str, runs: int, workers: int, schedules: int = 0, sinks: int = 0) -> None:
        super().__init__(name, runs, workers, schedules, sinks)
        self.name = name
        self.runs = runs
        self.workers = workers
        self.schedules = schedules
        self.sinks = sinks

    def __str__(self) -> str:
        runs = f"{min(self.runs, self.MOST_COUNTED):,}{'+' * (self.runs > self.MOST_COUNTED)} run(s)"
        return (
            f"the namespace {self.name!r} is not empty: it has {runs}, open or closed, {self.workers} worker(s), "
            f"{self.schedules} schedule(s) and {self.sinks} sink(s); stop its workers, and delete the rest first"
        )


class QueryNotFound(PerdureError, LookupError):
    """The run shows nothing under this name."""

    def __init__(self, id: str, name: str, known: tuple[str, ...], trouble: str | None = None) -> None:
        super().__init__(id, name, known, trouble)
        self.id = id
        self.name = name
        self.known = known
        self.trouble = trouble

    def __str__(self) -> str:
        there = f"there are {', '.join(map(repr, self.known))}" if self.known else "it shows nothing else"
        if self.trouble is not None:
            return f"run {self.id!r} has no value for {self.name!r} ({self.trouble}); {there}"
        if not self.known:
            return f"run {self.id!r} shows no {self.name!r}, nor anything else; its code has to expose() it"
        return f"run {self.id!r} shows no {self.name!r}; {there}"


class StreamFull(PerdureError):
    """Too many values of a stream are not on disk yet."""

    def __init__(self, id: str, name: str, limit: int) -> None:
        super().__init__(id, name, limit)
        self.id = id
        self.name = name
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"run {self.id!r} has published {self.limit:,} values that are not on disk yet, so {self.name!r} takes no "
            "more; await something between them, or publish from a plain `def`, which waits by itself"
        )


class ScheduleNotFound(PerdureError, LookupError):
    """No schedule of this name exists in the namespace."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__(name, namespace)
        self.name = name
        self.namespace = namespace

    def __str__(self) -> str:
        return (
            f"no schedule {self.name!r} exists in namespace {self.namespace!r}; "
            "`perdure schedule list` shows those there are"
        )


class ScheduleExists(PerdureError):
    """Another schedule has this name."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__(name, namespace)
        self.name = name
        self.namespace = namespace

    def __str__(self) -> str:
        return (
            f"a schedule {self.name!r} exists already in namespace {self.namespace!r}; "
            "change it with update(), replace it with put(), or give another name"
        )


class SinkNotFound(PerdureError, LookupError):
    """No sink of this name exists in the namespace."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__(name, namespace)
        self.name = name
        self.namespace = namespace

    def __str__(self) -> str:
        return (
            f"no sink {self.name!r} exists in namespace {self.namespace!r}; `perdure outbox list` shows those there are"
        )


class SinkExists(PerdureError):
    """Another sink has this name."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__(name, namespace)
        self.name = name
        self.namespace = namespace

    def __str__(self) -> str:
        return (
            f"a sink {self.name!r} exists already in namespace {self.namespace!r}; "
            "change it with `perdure outbox update`, or give another name"
        )


class SinkNotReady(PerdureError):
    """Transactions are open that began before the sink was there; what they change it may not be told."""

    def __init__(self, name: str, transactions: tuple[str, ...]) -> None:
        super().__init__(name, transactions)
        self.name = name
        self.transactions = transactions

    def __str__(self) -> str:
        return (
            f"the sink {self.name!r} is there, but these transactions began before it and are still open: "
            f"{'; '.join(self.transactions)}; end them, or send what they change with resend()"
        )


class SinkFailed(PerdureError):
    """A sink did not take the event that it was tried with."""

    def __init__(self, name: str, trouble: str) -> None:
        super().__init__(name, trouble)
        self.name = name
        self.trouble = trouble

    def __str__(self) -> str:
        return f"the sink {self.name!r} did not take the event: {self.trouble}"


class RunNotHeld(PerdureError):
    """The run is not held; there is nothing to resume."""

    def __init__(self, id: str, status: str) -> None:
        super().__init__(id, status)
        self.id = id
        self.status = status

    def __str__(self) -> str:
        return (
            f"run {self.id!r} is not held ({self.status}) and goes on by itself; "
            "resume() is for runs that are held as 'paused', 'quarantine' or 'mismatch'"
        )


class RunClosed(PerdureError):
    """The run has ended; it cannot be signalled, stopped or resumed any more."""

    def __init__(
        self,
        id: str,
        status: str,
        what_now: str = "there is nobody to signal and nothing to stop or resume any more",
    ) -> None:
        super().__init__(id, status, what_now)
        self.id = id
        self.status = status
        self.what_now = what_now

    def __str__(self) -> str:
        return f"run {self.id!r} has ended ({self.status}); {self.what_now}"


class RunOpen(PerdureError):
    """The run has not ended; it cannot be retried, nor forked under its own id."""

    def __init__(self, id: str, status: str) -> None:
        super().__init__(id, status)
        self.id = id
        self.status = status

    def __str__(self) -> str:
        return (
            f"run {self.id!r} is open ({self.status}) and keeps its id; end it first, or fork it under another id: "
            "fork(at=..., id=...)"
        )


class InboxFull(PerdureError):
    """The run has as many unread messages as it may; the signal was not sent."""

    def __init__(self, id: str, limit: int) -> None:
        super().__init__(id, limit)
        self.id = id
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"run {self.id!r} has {self.limit:,} unread messages and takes no more signals; this one was not sent, "
            f"send it when the run has read some (`perdure show {shlex.quote(self.id)}` tells what it waits for); "
            "one that waits for none of those that are there never reads them, and can only be cancelled or terminated"
        )


class AlreadyResolved(PerdureError):
    """The deferred has another value, or the request has an answer; that is not changed any more."""

    def __init__(self, id: str, what: str) -> None:
        super().__init__(id, what)
        self.id = id
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} of run {self.id!r} has its value already, and keeps it; nothing was changed"


class DeferredFailed(PerdureError):
    """A deferred that the workflow waits for was given an error instead of a value."""

    def __init__(self, error: str, name: str = "") -> None:
        super().__init__(error, name)
        self.error = error
        self.name = name

    def __str__(self) -> str:
        return self.error


class RequestRefused(PerdureError):
    """The workflow refused the request; `reason` is what it said."""

    def __init__(self, reason: str, name: str = "") -> None:
        super().__init__(reason, name)
        self.reason = reason
        self.name = name

    def __str__(self) -> str:
        return self.reason


class NotAnswered(PerdureError):
    """The run ended, or continued as another one, and left the request without an answer."""

    def __init__(self, id: str, name: str) -> None:
        super().__init__(id, name)
        self.id = id
        self.name = name

    def __str__(self) -> str:
        return (
            f"run {self.id!r} ended or continued without an answer to the request {self.name!r}; "
            "ask once more, under an id that was not used yet if you give one, if the workflow goes on"
        )


class IdConflict(PerdureError):
    """The id is taken by a run of another workflow or with other arguments, or by a request that asks something else.

    `allowed` are the values of `on_conflict` with which the same start would not be refused now.
    """

    _MEANINGS: ClassVar[dict[str, str]] = {
        "return": "gives that run",
        "replace": "starts a new one, for it has ended",
        "terminate": "ends it and starts a new one",
    }
    # The run that has it, where a worker asks.
    run_id: str | None = None

    def __init__(self, id: str, existing: str, wanted: str, why: str, allowed: tuple[str, ...] = ()) -> None:
        super().__init__(id, existing, wanted, why, allowed)
        self.id = id
        self.existing = existing
        self.wanted = wanted
        self.why = why
        self.allowed = allowed

    def __str__(self) -> str:
        ways = [f"on_conflict={each!r}, which {self._MEANINGS.get(each, 'is allowed')}" for each in self.allowed]
        return (
            f"id {self.id!r} is taken by {self.existing}, wanted for {self.wanted}: {self.why}; "
            f"use {', or '.join(['another id', *ways])}"
        )


class KeyConflict(PerdureError):
    """The idempotency key was used for the same command with other arguments; `kept` and `given` are their digests."""

    def __init__(self, key: str, command: str, kept: str, given: str) -> None:
        super().__init__(key, command, kept, given)
        self.key = key
        self.command = command
        self.kept = kept
        self.given = given

    def __str__(self) -> str:
        return (
            f"the key {self.key!r} was used for {self.command} with other arguments (their digest is {self.kept}, that "
            f"of these {self.given}), and nothing was done; use another key for another command"
        )


class KeyInProgress(PerdureError):
    """The command is under way under this idempotency key, or its caller died not long ago."""

    def __init__(self, key: str, command: str, since_ms: int) -> None:
        super().__init__(key, command, since_ms)
        self.key = key
        self.command = command
        self.since_ms = since_ms

    def __str__(self) -> str:
        return (
            f"{self.command} under the key {self.key!r} was begun {self.since_ms / 1000:g} s ago and is under way; ask "
            "again later for its answer. If its caller has died, one of those who ask takes it over after stale_after"
        )


class KeyAlreadyMade(PerdureError):
    """An access key was made under this idempotency key; what callers show is not kept, and was told that once."""

    def __init__(self, key: str, key_id: str) -> None:
        super().__init__(key, key_id)
        self.key = key
        self.key_id = key_id

    def __str__(self) -> str:
        return (
            f"the access key {self.key_id!r} was made under the idempotency key {self.key!r}, and is shown once only; "
            "if it was lost, revoke it, and make another one under another idempotency key"
        )


class LeaseLost(PerdureError):
    """Another worker owns these runs now. Drop them and write nothing more."""

    def __init__(self, worker_id: str, epoch: int) -> None:
        super().__init__(worker_id, epoch)
        self.worker_id = worker_id
        self.epoch = epoch

    def __str__(self) -> str:
        return (
            f"worker {self.worker_id!r} lost its lease (epoch {self.epoch}); its runs continue elsewhere, register "
            "again to take new ones"
        )


class RunNotOwned(PerdureError):
    """A run or task is not that of the worker which writes to it, or not the attempt that it means."""

    def __init__(self, run_id: str, worker_id: str) -> None:
        super().__init__(run_id, worker_id)
        self.run_id = run_id
        self.worker_id = worker_id

    def __str__(self) -> str:
        return (
            f"{self.run_id!r} is not worker {self.worker_id!r}'s to write to any more: it has ended, waits, or another "
            "attempt is under way; drop it, nothing was written"
        )


class OutOfStep(PerdureError):
    """A run has other events than its worker knows of; nothing was written."""

    def __init__(self, run_id: str, after_seq: int, seq: int) -> None:
        super().__init__(run_id, after_seq, seq)
        self.run_id = run_id
        self.after_seq = after_seq
        self.seq = seq

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r} has {self.seq} events, and not {self.after_seq}; claim with `holding` that leaves it "
            "out, and replay it from what is there"
        )


class RunEnded(PerdureError):
    """The run ended without a result. `id` names it, `reason` says why."""

    end = "ended without a result"

    def __init__(self, id: str, reason: str | None = None) -> None:
        super().__init__(id, reason)
        self.id = id
        self.reason = reason

    def __str__(self) -> str:
        return f"run {self.id!r} {self.end}" + (f": {self.reason}" if self.reason else "")


class RunFailed(RunEnded):
    """The workflow raised; the original error is the `__cause__` when its type is at hand."""

    end = "failed"


class RunCancelled(RunEnded):
    """The run was cancelled."""

    end = "was cancelled"


class RunTerminated(RunEnded):
    """The run was terminated from outside, without clean-up."""

    end = "was terminated"


class RunTimedOut(RunEnded):
    """The run took longer than its timeout."""

    end = "timed out"


class ActivityFailed(PerdureError):
    """An activity failed with an error whose own type is not imported in this process."""

    def __init__(self, activity: str, error_type: str, message: str) -> None:
        super().__init__(activity, error_type, message)
        self.activity = activity
        self.error_type = error_type
        self.message = message

    def __str__(self) -> str:
        return f"activity {self.activity!r} failed: {self.error_type}: {self.message}"


class AttemptLost(PerdureError):
    """The only attempt of an activity was lost with its process; nobody knows what it has done."""

    def __init__(self, activity: str, place: str) -> None:
        super().__init__(activity, place)
        self.activity = activity
        self.place = place

    def __str__(self) -> str:
        return (
            f"activity {self.activity!r} at {self.place!r} was begun once and lost with its process; it may have done "
            "its work or not, and at_most_once forbids to begin it again: look what it has done, and go on from there"
        )


class ChildFailed(PerdureError):
    """A child run failed with an error whose own type is not imported in this process."""

    def __init__(self, id: str, workflow: str, error_type: str, message: str) -> None:
        super().__init__(id, workflow, error_type, message)
        self.id = id
        self.workflow = workflow
        self.error_type = error_type
        self.message = message

    def __str__(self) -> str:
        return f"child run {self.id!r} of {self.workflow!r} failed: {self.error_type}: {self.message}"


class KeyNotFound(PerdureError, LookupError):
    """No key has this id, or it was revoked before."""

    def __init__(self, key_id: str) -> None:
        super().__init__(key_id)
        self.key_id = key_id

    def __str__(self) -> str:
        return f"no key {self.key_id!r} is good; `perdure key list` shows the keys there are"


class LastAdminKey(PerdureError):
    """The key is the last one that could make another one."""

    def __init__(self, key_id: str) -> None:
        super().__init__(key_id)
        self.key_id = key_id

    def __str__(self) -> str:
        return f"the key {self.key_id!r} is the last one of an admin; make another one first, with `POST /v1/keys`"


class RequestRejected(PerdureError):
    """The server did not let a request reach its route."""


class NotAuthenticated(RequestRejected):
    """The request has no key or token, or one that is not known, has expired or was revoked."""

    def __init__(self, why: str | None = None) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        if self.why is not None:
            return self.why
        return (
            "the request has no key that is good here; send `Authorization: Bearer pdk_...`, or open with key=...; "
            "an admin makes keys with `POST /v1/keys`"
        )


class NotAllowed(RequestRejected):
    """The server does not allow this: not to this key, under this name, or to this page."""

    def __init__(self, why: str, instead: str) -> None:
        super().__init__(why, instead)
        self.why = why
        self.instead = instead

    def __str__(self) -> str:
        return f"{self.why}; {self.instead}"


class RouteNotFound(RequestRejected):
    """The server has nothing under this path."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"there is nothing at {self.path!r}; /docs lists the routes"


class MethodNotAllowed(RequestRejected):
    """The path is there, and takes other methods."""

    def __init__(self, path: str, allowed: tuple[str, ...]) -> None:
        super().__init__(path, allowed)
        self.path = path
        self.allowed = allowed

    def __str__(self) -> str:
        return f"{self.path!r} takes {' and '.join(self.allowed)} alone"


class BadJson(RequestRejected):
    """The body of a request is not JSON."""

    def __init__(self, trouble: str) -> None:
        super().__init__(trouble)
        self.trouble = trouble

    def __str__(self) -> str:
        return f"the body is not JSON: {self.trouble}"


class BadContentType(RequestRejected):
    """A body that does not say that it is JSON."""

    def __init__(self, given: str) -> None:
        super().__init__(given)
        self.given = given

    def __str__(self) -> str:
        return f"the body is said to be {self.given or 'nothing'!r}; send JSON with `Content-Type: application/json`"


class BodyTooLarge(RequestRejected):
    """The body of a request is above the limit of the server."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit

    def __str__(self) -> str:
        return f"the body has more than {self.limit:,} bytes; send less, or start the server with a larger --max-body"


class HeadersTooLarge(RequestRejected):
    """The headers of a request are above the limit of the server."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit

    def __str__(self) -> str:
        return f"the headers have more than {self.limit:,} bytes; send less"


class TooManyRequests(RequestRejected):
    """The caller asks too much at once."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"{self.why}; try again in a moment"


class IssuerUnavailable(RequestRejected):
    """The issuer of a token could not be asked for its keys, so nobody knows whether the token is good."""

    def __init__(self, issuer: str) -> None:
        super().__init__(issuer)
        self.issuer = issuer

    def __str__(self) -> str:
        return f"the keys of {self.issuer} could not be fetched; try again in a moment, or show a key of the database"


class StoreError(PerdureError):
    """The database cannot be used."""

    def __init__(self, url: str, trouble: str) -> None:
        super().__init__(url, trouble)
        self.url = url
        self.trouble = trouble

    def __str__(self) -> str:
        return f"{self.url}: {self.trouble}"


class NotADatabase(StoreError):
    """The file is not a SQLite database, or its tables are not ours."""


class NewerSchema(StoreError):
    """A newer Perdure wrote this database."""

    def __init__(self, url: str, found: int, known: int) -> None:
        Exception.__init__(self, url, found, known)
        self.url = url
        self.found = found
        self.known = known

    def __str__(self) -> str:
        return (
            f"{self.url}: the database has schema {self.found}, this Perdure knows up to {self.known}; "
            "upgrade perdure, nothing was changed"
        )


class RunUnreadable(StoreError):
    """What the database holds of a run cannot be read; nothing was changed, and other runs are not concerned.

    When that is its row, `rest` is what can be read of it, as far as the run can be ended by it.
    """

    rest: object = None

    def __init__(self, url: str, run_id: str, id: str, trouble: str) -> None:
        Exception.__init__(self, url, run_id, id, trouble)
        self.url = url
        self.run_id = run_id
        self.id = id
        self.trouble = trouble

    def __str__(self) -> str:
        return (
            f"{self.url}: run {self.id!r} cannot be read: {self.trouble}; "
            "`perdure audit` tells what is wrong, restore a backup or correct it"
        )


class StoreUnavailable(StoreError):
    """The database cannot be read or written right now; nothing was changed, try again."""
