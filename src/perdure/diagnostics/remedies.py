"""Remedies: what to do about what an audit has found.

In:   a violation.
Out:  one sentence.
"""

from typing import NamedTuple

from perdure.diagnostics.findings import Hint, command
from perdure.diagnostics.runs import DEFAULT_NAMESPACE
from perdure.stores.audit import Violation


class Remedy(NamedTuple):
    """What to do while the run is open, and what once it has ended, when nothing waits for it any more."""

    while_open: str
    once_ended: str


def always(remedy: str) -> Remedy:
    """What to do whether or not the run has ended."""
    return Remedy(remedy, remedy)


BACKUP = always("bring back a backup; no command can tell what stood there")
UNREADABLE = Remedy(
    "bring back a backup or correct it by hand, then, if the run is held, `{resume}`; or give it up: `{terminate}`",
    "the run has ended, and no other is concerned; bring back a backup or correct it by hand if it is still needed",
)
UNKNOWN = Remedy(
    "if a newer Perdure wrote it, the run is sound: go back to that one, then, if the run is held, `{resume}`; "
    "if none did, bring back a backup or correct it by hand",
    "if a newer Perdure wrote it, that one can read it; if none did, bring back a backup or correct it by hand",
)
HISTORY = Remedy(
    "do not trust its history: bring back a backup, or end it (`{terminate}`) and start another",
    "do not trust its history: the run has ended, bring back a backup if it is still needed",
)
ASLEEP = always("it would sleep for ever: send it a signal, or end it (`{terminate}`) and start another")
OWNED = always("start a worker, which takes over what nobody works; if that does not help, bring back a backup")
INBOX = Remedy(
    "compare `{show}` with what it was sent; bring back a backup, or end it (`{terminate}`)",
    "compare `{show}` with what it was sent; the run has ended, bring back a backup if it is still needed",
)
FAMILY = Remedy(
    "`{show}` tells of its parent and children; bring back a backup, or end it (`{terminate}`)",
    "`{show}` tells of its parent and children; the run has ended, bring back a backup if it is still needed",
)
ENDING = always("ask it once more to stop (`{cancel}`), or end it (`{terminate}`)")

_BY_CHECK = {
    "file": BACKUP,
    "schema": always("bring back a backup, or the Perdure that wrote it; do not change its tables by hand"),
    "homeless": BACKUP,
    "workers": always("stop all workers, and start them again"),
} | {
    check: remedy
    for remedy, checks in {
        UNREADABLE: "columns event_bodies message_bodies values outcomes statuses kept_values",
        UNKNOWN: "event_kinds message_kinds",
        HISTORY: "namespaces event_numbers event_order event_times places last_seq timers attempts counted_attempts"
        " payloads begun stream_numbers snapshots",
        ASLEEP: "ripe woken_by_messages woken_by_time",
        OWNED: "final owners running held latest one_open",
        INBOX: "taken_messages taken_once received_signals message_counts",
        FAMILY: "parents children_once told_parents told_ends successors predecessors",
        ENDING: "orphans ends_by_the_clock cancels",
    }.items()
    for check in checks.split()
}


def remedy(violation: Violation, hint: Hint = command) -> str:
    """What to do about it."""
    where = ("--namespace", violation.namespace) if violation.namespace not in {None, DEFAULT_NAMESPACE} else ()
    commands = ("terminate", "show", "cancel", "resume")
    words = {word: hint(word, violation.run_id or "ID", *map(str, where)) for word in commands}
    found = _BY_CHECK[violation.check]
    return (found.once_ended if violation.has_ended else found.while_open).format(**words)
