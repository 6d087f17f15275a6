"""The audit: whether everything in a database fits together.

In:   the URL of a database, at rest or with workers at work on it.
Out:  every run that is not as it must be, how, and what to do. Nothing is changed, and nobody is kept from writing.
"""

import asyncio

import msgspec

from perdure.diagnostics.findings import Hint, command
from perdure.diagnostics.remedies import remedy
from perdure.stores.audit import Audit, Checked
from perdure.stores.sqlite.checks import audit
from perdure.stores.urls import file_of, is_postgres

__all__ = ["Audit", "Checked", "Inconsistency", "audit_of", "inconsistencies"]


class Inconsistency(msgspec.Struct, frozen=True):
    """A run that is not as it must be, and what to do."""

    check: str
    invariant: str
    namespace: str | None
    workflow_id: str | None
    run_id: str | None
    found: str
    has_ended: bool
    remedy: str


def audit_of(url: str) -> Audit:
    """What every check has found; NotADatabase."""
    if is_postgres(url):
        from perdure.stores.postgres.checks import audit as postgres_audit  # noqa: PLC0415 - its driver is an extra

        return asyncio.run(postgres_audit.audit_of(url))
    path = file_of(url)
    assert path is not None
    return audit.audit_of(path.absolute())


def inconsistencies(seen: Audit, hint: Hint = command) -> list[Inconsistency]:
    """What an audit has found, each with what to do."""
    return [Inconsistency(**msgspec.structs.asdict(each), remedy=remedy(each, hint)) for each in seen.violations]
