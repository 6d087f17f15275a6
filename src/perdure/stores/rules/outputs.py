"""Outputs: what runs show and publish, whatever the database.

In:   snapshots, and values for streams.
Out:  questions to the database. A stream is numbered by its head, which whoever appends to it moves first: so the
      numbers have no gap, whichever processes publish at the same time.
"""

from collections import Counter

from perdure.stores.answers import Answer, Answers
from perdure.stores.operations import MoveStreams, PublishValues, WriteSnapshot
from perdure.stores.rules.questions import ManyRows, Query, Steps


def write_snapshots(snapshots: list[WriteSnapshot], _: Answers) -> Steps[None]:
    """Write what runs show of themselves; no statement may change one row twice."""
    newest = {snapshot.run_id: snapshot for snapshot in snapshots}
    yield ManyRows("write_snapshots", list(newest.values()))


def publish_values(published: list[PublishValues], _: Answers) -> Steps[None]:
    """Append values to streams; those of activities whose caller has ended are dropped."""
    foreign = sorted({each.run_id for each in published if each.run_id != each.source_run_id})
    if foreign:
        found = (yield ManyRows("open_runs", [(run_id,) for run_id in foreign])).rows
        gone = {*foreign} - {run_id for (run_id,) in found}
        published = [each for each in published if each.run_id not in gone]
    if published:
        yield ManyRows("move_heads", _heads(published))
        yield ManyRows("append_values", _values(published))


def _heads(published: list[PublishValues]) -> list[tuple[object, ...]]:
    """By how much each stream grows, and which attempts have published, in the order in which rows are locked."""
    grown: Counter[tuple[str, str, str, str]] = Counter()
    own: Counter[tuple[str, str, str, str]] = Counter()
    attempts: dict[tuple[str, str, str, str], int] = {}
    for each in published:
        stream = (each.run_id, each.namespace, each.name, "")
        grown[stream] += len(each.bodies)
        if each.source:
            source = (each.source_run_id, each.namespace, each.name, each.source)
            attempts[source] = max(each.attempt, attempts.get(source, 0))
        else:
            own[stream] += len(each.bodies)
    heads = [(*stream, count, own[stream], 0) for stream, count in grown.items()]
    return sorted([*heads, *((*source, 0, 0, attempt) for source, attempt in attempts.items())])


def _values(published: list[PublishValues]) -> list[tuple[object, ...]]:
    """The rows of values, each with how many of its stream come after it."""
    rows: list[tuple[object, ...]] = []
    after: Counter[tuple[str, str]] = Counter()
    for each in reversed(published):
        first = after[each.run_id, each.name]
        after[each.run_id, each.name] += len(each.bodies)
        of_stream = (each.run_id, each.namespace, each.name)
        for back, body in enumerate(reversed(each.bodies), start=first):
            rows.append((*of_stream, back, each.attempt, each.at, body))
    return rows[::-1]


def move_streams(move: MoveStreams) -> Steps[Answer | None]:
    """Let the streams of a run go on in the run that continues it."""
    yield Query("copy_heads", move._asdict())
    return None
