"""Recordings in files: one JSON document a line, each with the program it belongs to."""

import platform
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from perdure.kernel.events import FACTS, Event
from tests.programs.drawing import Part
from tests.programs.world import Digest, Recording


class History(msgspec.Struct):
    """A recording as it is kept; an event is its time, place, kind and fact."""

    python: str
    seed: int
    program: Part
    events: list[tuple[int, str, str, msgspec.Raw]]
    drains: list[str]
    end: str


def write(path: Path, recordings: Iterable[Recording]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(_kept(recording)) + b"\n" for recording in recordings))


def read(path: Path) -> Iterator[Recording]:
    for line in path.read_bytes().splitlines():
        yield _restored(msgspec.json.decode(line, type=History))


def _kept(recording: Recording) -> History:
    events = [
        (event.at, event.place, event.kind, msgspec.Raw(msgspec.json.encode(event.fact))) for event in recording.events
    ]
    drains = [Digest.of(drain).text for drain in recording.drains]
    end = Digest.of(recording.end).text
    return History(platform.python_version(), recording.seed, recording.program, events, drains, end)


def _restored(history: History) -> Recording:
    # Number 1 is the start of the run.
    events = [
        Event(seq, at, place, msgspec.json.decode(fact, type=FACTS[kind]))
        for seq, (at, place, kind, fact) in enumerate(history.events, start=2)
    ]
    drains = [Digest(text) for text in history.drains]
    return Recording(history.program, history.seed, events, [*drains], Digest(history.end))
