"""Remedies: what to do about what an audit has found.

In:   a violation.
Out:  one sentence.
"""

from perdure.cli.hints import hint
from perdure.cli.options import DEFAULT_NAMESPACE
from perdure.stores.sqlite_audit import Violation

BACKUP = "bring back a backup; no command can tell what stood there"
HISTORY = "do not trust its history: bring back a backup, or, if it is open, end it (`{terminate}`) and start another"
ASLEEP = "it would sleep for ever: send it a signal, or end it (`{terminate}`) and start another"
OWNED = "start a worker, which takes over what nobody works; if that does not help, bring back a backup"
INBOX = "compare `{show}` with what it was sent; bring back a backup, or, if it is open, end it (`{terminate}`)"
FAMILY = "`{show}` tells of its parent and children; bring back a backup, or, if it is open, end it (`{terminate}`)"
ENDING = "ask it once more to stop (`{cancel}`), or end it (`{terminate}`)"

_BY_CHECK = {
    "file": BACKUP,
    "schema": "bring back a backup, or the Perdure that wrote it; do not change its tables by hand",
    "homeless": BACKUP,
    "workers": "stop all workers, and start them again",
} | {
    check: remedy
    for remedy, checks in {
        HISTORY: "columns namespaces event_numbers event_order event_times event_bodies places last_seq timers attempts"
        " counted_attempts payloads kept_values values outcomes statuses begun",
        ASLEEP: "ripe woken_by_messages woken_by_time",
        OWNED: "final owners running held latest one_open",
        INBOX: "taken_messages taken_once received_signals message_counts message_bodies",
        FAMILY: "parents children_once told_parents told_ends successors predecessors",
        ENDING: "orphans ends_by_the_clock cancels",
    }.items()
    for check in checks.split()
}


def remedy(violation: Violation) -> str:
    """What to do about it."""
    where = ("--namespace", violation.namespace) if violation.namespace not in {None, DEFAULT_NAMESPACE} else ()
    words = {word: hint(word, violation.run_id or "ID", *map(str, where)) for word in ("terminate", "show", "cancel")}
    return _BY_CHECK[violation.check].format(**words)
