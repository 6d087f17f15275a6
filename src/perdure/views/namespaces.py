"""Namespaces, as people and programs outside see them."""

from dataclasses import dataclass
from datetime import datetime

from perdure.engine.ports import NamespaceContent
from perdure.stores.records import NamespaceRow
from perdure.views.run import View, moment

# So many runs of a status are counted; a number above it says that there are more.
MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class NamespaceInfo(View):
    """A namespace, and when it was made."""

    name: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class NamespaceDetail(View):
    """What is in a namespace: how many runs of each status, the queues of open runs and of workers, living workers.

    Runs of a status are counted up to 10,000: 10,001 says that there are more. Activities on queues are not among them.
    """

    name: str
    created_at: datetime
    runs: dict[str, int]
    queues: tuple[str, ...]
    workers: int


def namespace_view(row: NamespaceRow) -> NamespaceInfo:
    return NamespaceInfo(row.name, moment(row.created_at))


def content_view(content: NamespaceContent) -> NamespaceDetail:
    row, runs, queues, workers = content
    return NamespaceDetail(row.name, moment(row.created_at), runs, queues, workers)
