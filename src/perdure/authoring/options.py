"""Options: how activities are tried and how runs are started, checked before anything is written."""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from perdure.authoring.durations import Duration, seconds
from perdure.authoring.registry import checked_name
from perdure.codec import ValueType
from perdure.errors import BadOption, BadValue
from perdure.ids import checked_id
from perdure.kernel.conflict import OnConflict
from perdure.kernel.retry import Retry
from perdure.kernel.traits import PLAIN, OnParentClose, Traits

E = TypeVar("E", bound=StrEnum)

# As people write them; the enums are what the rules know.
ConflictPolicy: TypeAlias = Literal["return", "reject", "replace", "terminate"]
ParentClosePolicy: TypeAlias = Literal["cancel", "terminate", "abandon"]

DEFAULT_TIMEOUT = 300.0
LARGEST_ATTRIBUTES = 16 * 1024
HIGHEST_PRIORITY = 1_000_000
LONGEST_REASON = 1000


class ActivityOptions(msgspec.Struct, frozen=True):
    """How an activity is tried: how often, for how many seconds each time, and where; and what it is known by.

    `heartbeat` is how long it may be silent, `queue_timeout` how long it may wait to be begun, in seconds.
    """

    retry: Retry = Retry()
    timeout: float = DEFAULT_TIMEOUT
    key: str | None = None
    queue: str | None = None
    heartbeat: float | None = None
    queue_timeout: float | None = None
    at_most_once: bool = False
    transaction: bool = False
    # Whether the timeout is not the default.
    has_timeout: bool = False


class WorkflowOptions(msgspec.Struct, frozen=True):
    """How a run is started; times are milliseconds."""

    id: str | None = None
    queue: str | None = None
    priority: int | None = None
    delay_ms: int = 0
    on_conflict: OnConflict = OnConflict.RETURN
    traits: Traits = PLAIN


# What most runs are started with; compared by identity.
DEFAULTS = WorkflowOptions()


def workflow_options(
    base: WorkflowOptions,
    id: str | None = None,
    queue: str | None = None,
    timeout: Duration | None = None,
    priority: int | None = None,
    entity_id: str | None = None,
    correlation_id: str | None = None,
    attributes: Mapping[str, object] | None = None,
    delay: Duration | None = None,
    on_conflict: ConflictPolicy | OnConflict | None = None,
    on_parent_close: ParentClosePolicy | OnParentClose | None = None,
) -> WorkflowOptions:
    """The options of a workflow with those that are given, checked."""
    traits = msgspec.structs.replace(
        base.traits,
        on_parent_close=base.traits.on_parent_close
        if on_parent_close is None
        else member_of(OnParentClose, on_parent_close, "on_parent_close").value,
        entity_id=base.traits.entity_id if entity_id is None else checked_id("entity id", entity_id),
        correlation_id=base.traits.correlation_id
        if correlation_id is None
        else checked_id("correlation id", correlation_id),
        attributes=base.traits.attributes if attributes is None else recorded_attributes(attributes),
        timeout_ms=base.traits.timeout_ms if timeout is None else milliseconds(timeout, "timeout", least=1),
    )
    return WorkflowOptions(
        id=base.id if id is None else checked_id("workflow id", id),
        queue=base.queue if queue is None else checked_id("queue", queue),
        priority=base.priority if priority is None else checked_priority(priority),
        delay_ms=base.delay_ms if delay is None else milliseconds(delay, "delay"),
        on_conflict=base.on_conflict if on_conflict is None else member_of(OnConflict, on_conflict, "on_conflict"),
        traits=PLAIN if traits == PLAIN else traits,
    )


def activity_options(
    base: ActivityOptions,
    retry: Retry | None,
    timeout: Duration | None,
    key: str | None = None,
    queue: str | None = None,
    heartbeat: Duration | None = None,
    queue_timeout: Duration | None = None,
    at_most_once: bool | None = None,
    transaction: bool | None = None,
) -> ActivityOptions:
    """Options with what is given in place of what was; BadOption when they do not go together."""
    if retry is not None and not isinstance(retry, Retry):
        raise BadOption(f"retry is {retry!r}; give a Retry(...)")
    options = ActivityOptions(
        base.retry if retry is None else retry,
        base.timeout if timeout is None else seconds(timeout, "timeout"),
        base.key if key is None else checked_name("activity key", key),
        base.queue if queue is None else checked_id("queue", queue),
        base.heartbeat if heartbeat is None else _more_than_nothing(heartbeat, "heartbeat"),
        base.queue_timeout if queue_timeout is None else seconds(queue_timeout, "queue_timeout"),
        base.at_most_once if at_most_once is None else _checked_flag(at_most_once, "at_most_once"),
        base.transaction if transaction is None else _checked_flag(transaction, "transaction"),
        base.has_timeout or timeout is not None,
    )
    if options.transaction and options.at_most_once:
        raise BadOption("a transactional activity is recorded together with what it did; leave at_most_once away")
    if options.queue_timeout is not None and options.queue is None:
        raise BadOption("queue_timeout is how long an activity may wait on its queue; give a queue, too")
    return _tried_once(options, is_chosen=retry is not None) if options.at_most_once else options


def _tried_once(options: ActivityOptions, *, is_chosen: bool) -> ActivityOptions:
    """The same, tried at most once; BadOption when somebody chose to try it more often."""
    most = options.retry.max_attempts
    if most > 1 and (is_chosen or options.retry != Retry()):
        raise BadOption(f"at_most_once=True and a retry of {most} attempts contradict each other; give one of them")
    return msgspec.structs.replace(options, retry=msgspec.structs.replace(options.retry, max_attempts=1))


def _more_than_nothing(duration: Duration, what: str) -> float:
    number = seconds(duration, what)
    if number <= 0:
        raise BadOption(f"{what} is {duration!r}; give a duration above 0")
    return number


def _checked_flag(flag: object, what: str) -> bool:
    if not isinstance(flag, bool):
        raise BadOption(f"{what} is {flag!r}; give True or False")
    return flag


def recorded_attributes(attributes: Mapping[str, object]) -> str:
    """Attributes as JSON; BadInput when they are not names with plain values."""
    if not isinstance(attributes, Mapping):
        raise BadOption(f"attributes are {attributes!r}; give a dict of names and plain values")
    for name in attributes:
        checked_id("attribute name", name)
    given = {name: value for name, value in attributes.items() if value is not None}
    try:
        data, _ = ValueType(Any).record(given, "the attributes")
    except BadValue as error:
        hold = "attributes hold text, numbers, truth values and lists or dicts of them; write a date as text"
        raise BadOption(f"{error}; {hold}") from None
    if len(data) > LARGEST_ATTRIBUTES:
        raise BadOption(
            f"the attributes take {len(data):,} bytes, the limit is {LARGEST_ATTRIBUTES:,}; keep them short"
        )
    return data.decode()


class AttributesPatch:
    """A change to attributes: what is None in it is taken away."""

    def __init__(self, patch: Mapping[str, object]) -> None:
        self.patch = patch

    def __call__(self, attributes: str | None) -> str:
        """Attributes with the change made to them, as JSON."""
        return recorded_attributes(msgspec.json.decode(attributes or "{}", type=dict[str, Any]) | dict(self.patch))


def milliseconds(duration: Duration, what: str, least: int = 0) -> int:
    return max(math.ceil(seconds(duration, what) * 1000), least)


def checked_priority(priority: object) -> int:
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > HIGHEST_PRIORITY:
        most = f"{HIGHEST_PRIORITY:,}"
        raise BadOption(f"priority is {priority!r}; give a whole number from -{most} to {most}, higher comes first")
    return priority


def member_of(kind: type[E], given: str, what: str) -> E:
    try:
        return kind(given)
    except ValueError:
        raise BadOption(f"{what} is {given!r}; give one of {', '.join(repr(str(m)) for m in kind)}") from None


def checked_reason(reason: object) -> str | None:
    return None if reason is None else checked_text("reason", reason)


def checked_text(what: str, text: object) -> str:
    if not isinstance(text, str):
        raise BadOption(f"{what} is {text!r}; give a text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadOption(f"the {what} holds half a surrogate pair, which is not text") from None
    if "\0" in text:
        raise BadOption(f"the {what} holds a NUL character, which not every database can keep")
    if len(text) > LONGEST_REASON:
        raise BadOption(f"the {what} has {len(text):,} characters; at most {LONGEST_REASON:,} are kept")
    return text
