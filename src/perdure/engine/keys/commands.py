"""The commands that can be asked under a key: what each is called, what it is asked with, what it answers.

A verb of the engine's nouns that is not in this table is no command, and a key changes nothing about it.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from perdure.engine.ports import Backfilled, Broadcast, KeptRun, MadeKey, Tally
from perdure.kernel.messages import SignalSent
from perdure.stores.operations import (
    CreateNamespace,
    DeleteSchedule,
    InsertAccessKey,
    InsertRichRun,
    InsertRun,
    Operation,
)
from perdure.stores.records import NamespaceRow


class Command(NamedTuple):
    """A command: `name` and `given` are made of the arguments of its verb, the namespace left out.

    `is_run` says that the transaction that counts is the one that inserts a run; of others it is the first one.
    One of several transactions is `is_long`.
    """

    name: Callable[..., str]
    given: Callable[..., Any]
    answer: Any = None
    is_run: bool = False
    is_long: bool = False
    has_namespace: bool = True


def digest_of(*given: object) -> str:
    """The same for equal arguments, in whatever order their fields are."""
    plain = msgspec.json.decode(msgspec.json.encode(given, enc_hook=_kind_of))
    return blake2b(msgspec.json.encode(plain, order="sorted"), digest_size=16).hexdigest()


def _kind_of(value: object) -> str:
    """What cannot be written down; it will be refused, or is no argument."""
    return type(value).__name__


def answer_in(operations: Sequence[Operation]) -> bytes:
    """What the command will be answered when this group is on disk."""
    for operation in operations:
        match operation:
            case InsertRun() | InsertRichRun():
                return msgspec.json.encode(KeptRun(operation.run_id, operation.workflow_id, operation.workflow))
            case CreateNamespace(namespace, at):
                return msgspec.json.encode(NamespaceRow(namespace, at))
            case InsertAccessKey():
                # Of the key itself nothing is kept.
                return msgspec.json.encode(MadeKey(operation.key_id, ""))
            case DeleteSchedule():
                return b"true"
            case _:
                pass
    return b"null"


def is_insert(operations: Sequence[Operation]) -> bool:
    """Whether this group inserts a run."""
    return any(isinstance(operation, InsertRun | InsertRichRun) for operation in operations)


def answer_of(found: object) -> bytes:
    """What a command was answered, where no group of it was written."""
    if hasattr(found, "workflow_id"):
        known: Any = found
        return msgspec.json.encode(KeptRun(known.run_id, known.workflow_id, known.workflow, is_new=False))
    return msgspec.json.encode(found)


def _named(name: str) -> Callable[..., str]:
    return lambda *_: name


def _all(*given: object) -> object:
    return given


def _command(name: str, **rest: Any) -> Command:
    return Command(_named(name), _all, **rest)


def _of_message(*given: Any) -> str:
    return "signal" if isinstance(given[2], SignalSent) else "resolve"


def _of_bulk(action: Any, *_: object) -> str:
    return "broadcast" if isinstance(action, Broadcast) else f"{action.verb}_all"


def _of_sink(_: str, changes: Any) -> str:
    if "paused" not in changes:
        return "outbox.update"
    return "outbox.pause" if changes["paused"] else "outbox.resume"


START = Command(_named("start"), lambda request: msgspec.structs.replace(request, arguments=None), KeptRun, is_run=True)
_RUN: dict[str, Any] = {"answer": KeptRun, "is_run": True}
_GLOBAL: dict[str, Any] = {"has_namespace": False}

COMMANDS: dict[tuple[str, str], Command] = {
    ("client", "start"): START,
    ("client", "post"): Command(_of_message, lambda run_id, _, *sent: (run_id, *sent)),
    ("client", "resolve_token"): Command(_named("resolve"), lambda token, resolve, _: (token, resolve(""))),
    ("client", "cancel"): _command("cancel"),
    ("client", "terminate"): _command("terminate"),
    ("client", "pause"): _command("pause"),
    ("client", "resume"): _command("resume"),
    ("client", "set_attributes"): Command(_named("set_attributes"), lambda run_id, change: (run_id, change(None))),
    # By the id of the run, under which the new run is found when it is asked for again.
    ("forker", "retry"): Command(_named("retry"), lambda _, workflow_id, reason: (workflow_id, reason), **_RUN),
    ("forker", "fork"): Command(_named("fork"), lambda _, workflow_id, request, *__: (workflow_id, request), **_RUN),
    ("bulk", "act"): Command(_of_bulk, lambda action, where, _: (action, repr(where)), Tally, is_long=True),
    ("schedules", "create"): _command("schedules.create"),
    ("schedules", "put"): _command("schedules.put"),
    ("schedules", "update"): _command("schedules.update"),
    ("schedules", "pause"): _command("schedules.pause"),
    ("schedules", "resume"): _command("schedules.resume"),
    ("schedules", "trigger"): _command("schedules.trigger", **_RUN),
    ("schedules", "backfill"): _command("schedules.backfill", answer=Backfilled, is_long=True),
    ("schedules", "delete"): _command("schedules.delete", answer=bool),
    # It may be refused after it was made, as not ready.
    ("outbox", "add"): _command("outbox.add", is_long=True),
    ("outbox", "update"): Command(_of_sink, _all),
    ("outbox", "remove"): _command("outbox.remove", answer=bool, is_long=True),
    ("outbox", "replay"): _command("outbox.replay", answer=int, is_long=True),
    ("outbox", "resend"): _command("outbox.resend", answer=int, is_long=True),
    ("namespaces", "create"): _command("namespaces.create", answer=NamespaceRow, **_GLOBAL),
    ("namespaces", "delete"): _command("namespaces.delete", **_GLOBAL),
    ("access_keys", "create"): _command("keys.create", answer=MadeKey, **_GLOBAL),
    ("access_keys", "revoke"): _command("keys.revoke", **_GLOBAL),
}
