"""The soak: mixed load on one file by two workers and a client, for as long as it is told to; nothing may grow.

Out:  curves of every process's memory, open files and threads, of the log and the database, of visits and starts;
      whether memory, files, threads and log were flat in the second half. The database grows, for runs are kept.

Ctrl-C ends it early and judges what there is.

usage: python -m bench.soak [--minutes N] [--per-second N] [--picture FILE]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from bench.curves import Line, Panel, picture
from bench.database import DATABASE, rows
from bench.findings import RESULTS, Finding, conclude
from bench.flatness import growth
from bench.soaked import Said
from bench.vitals import Vitals, vitals

NAMES = ("worker 1", "worker 2", "client")
SAMPLE_SECONDS = 5.0
# Of the memory of each process: growth over the second half, beyond how far it goes up and down.
MOST_GROWTH_MB, MOST_LOG_MB = 1.0, 64.0
OPEN = "select count(*) from runs where closed_at is null"


class Sample(msgspec.Struct, frozen=True):
    """Everything at one moment."""

    at_s: float
    vitals: dict[str, Vitals]
    log_mb: float
    database_mb: float
    said: Said


class Soak:
    """The processes, and what they were seen to do."""

    def __init__(self, folder: Path, per_second: float) -> None:
        self._folder = folder
        self._began = time.monotonic()
        self._said = Said(0, 0, 0, 0.0)
        self.samples: list[Sample] = []
        self._processes = {
            "worker 1": _begun("worker", folder),
            "worker 2": _begun("worker", folder),
            "client": _begun("client", folder, per_second, 1),
        }
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        stdout = self._processes["client"].stdout
        assert stdout is not None
        for line in stdout:
            self._said = msgspec.json.decode(line, type=Said)

    def sample(self) -> Sample:
        """Look at everything once; ProcessLookupError when somebody is gone."""
        seen = {name: vitals(process.pid) for name, process in self._processes.items()}
        path = self._folder / DATABASE
        log_mb = _size_mb(path.with_name(f"{path.name}-wal"))
        self.samples.append(Sample(time.monotonic() - self._began, seen, log_mb, _size_mb(path), self._said))
        return self.samples[-1]

    def end(self) -> list[int]:
        """Let the client finish its visits, then the workers leave; how each of them ended."""
        ended = []
        for name in ("client", "worker 1", "worker 2"):
            process = self._processes[name]
            assert process.stdin is not None
            process.stdin.close()
            ended.append(process.wait())
        return ended

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


def _begun(role: str, *arguments: object) -> "subprocess.Popen[str]":
    """A process of its own group: Ctrl-C is for the one that watches."""
    command = [sys.executable, "-m", "bench.soaked", role, *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0, env=os.environ
    )


def _size_mb(path: Path) -> float:
    return path.stat().st_size / 2**20 if path.exists() else 0.0


def watched(soak: Soak, seconds: float, notes: Console) -> bool:
    """Sample until the time is over; False when it was interrupted."""
    end_at = time.monotonic() + seconds
    noted_at = 0.0
    try:
        while time.monotonic() < end_at:
            time.sleep(min(SAMPLE_SECONDS, max(0.1, end_at - time.monotonic())))
            seen = soak.sample()
            if seen.at_s - noted_at >= 12 * SAMPLE_SECONDS:
                noted_at = seen.at_s
                memory = ", ".join(f"{name} {v.rss_mb:.1f} MB" for name, v in seen.vitals.items())
                notes.print(f"{seen.at_s / 60:.0f} min: {seen.said.visits:,} visits, {memory}", style="dim")
    except KeyboardInterrupt:
        notes.print("interrupted: this is what there is", style="dim")
        return False
    return True


def judged(samples: Sequence[Sample]) -> Iterator[Finding]:
    """What must be flat, over the second half."""
    half = samples[len(samples) // 2 :]
    for name in NAMES:
        points = [(sample.at_s, sample.vitals[name].rss_mb) for sample in half]
        grown, noise = growth(points)
        yield Finding(f"memory of {name}: grown in the second half", grown, " MB", MOST_GROWTH_MB + noise)
        yield Finding("  at its end", points[-1][1], " MB")
    for what, count in (("open files", _files), ("threads", _threads)):
        yield Finding(f"{what}: more in the last quarter than in the one before", _more(half, count), "", 0)
        yield Finding("  at the end, all processes", count(samples[-1]))
    yield Finding("write-ahead log at its largest", max(sample.log_mb for sample in samples), " MB", MOST_LOG_MB)
    yield Finding("database at the end", samples[-1].database_mb, " MB")
    yield Finding("visits", samples[-1].said.visits)
    yield Finding("visits a second, second half", _per_second(half), "/s")
    yield Finding("start, p99 of a sample, the middle one of the second half", _middle_start_ms(half), " ms")
    yield Finding("turned away, because too many were there", samples[-1].said.turned_away)


def _files(sample: Sample) -> int:
    return sum(seen.files for seen in sample.vitals.values())


def _threads(sample: Sample) -> int:
    return sum(seen.threads for seen in sample.vitals.values())


def _more(half: Sequence[Sample], count: Callable[[Sample], int]) -> int:
    """Of the highest: how many are open at one moment goes up and down."""
    middle = len(half) // 2
    return max(0, max(map(count, half[middle:])) - max(map(count, half[:middle])))


def _per_second(half: Sequence[Sample]) -> float:
    return (half[-1].said.visits - half[0].said.visits) / (half[-1].at_s - half[0].at_s)


def _middle_start_ms(half: Sequence[Sample]) -> float:
    return statistics.median(sample.said.start_p99_ms for sample in half)


def drawn(samples: Sequence[Sample], subtitle: str) -> str:
    def of(name: str, value: Callable[[Sample], float]) -> Line:
        return Line(name, [(sample.at_s, value(sample)) for sample in samples])

    def of_each(value: Callable[[Vitals], float]) -> list[Line]:
        return [of(name, lambda sample, name=name: value(sample.vitals[name])) for name in NAMES]  # type: ignore[misc]  # as it is now

    rates = [
        (b.at_s, (b.said.visits - a.said.visits) / (b.at_s - a.at_s))
        for a, b in zip(samples, samples[6:], strict=False)
    ]
    return picture(
        "Mixed load on one file: two workers, one client",
        subtitle,
        [
            Panel("memory (RSS), MB", of_each(lambda seen: seen.rss_mb)),
            Panel("open files", of_each(lambda seen: seen.files)),
            Panel("threads", of_each(lambda seen: seen.threads)),
            Panel("write-ahead log, MB", [of("log", lambda sample: sample.log_mb)]),
            Panel("database, MB (runs are kept)", [of("database", lambda sample: sample.database_mb)]),
            Panel("visits a second, over half a minute", [Line("visits", rates)]),
            Panel("start p99, ms", [of("start", lambda sample: sample.said.start_p99_ms)]),
        ],
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description="Mixed load; nothing may grow.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--per-second", type=float, default=20.0, help="visits that begin each second")
    parser.add_argument("--picture", type=Path, default=Path("docs/soak.svg"), metavar="FILE")
    options = parser.parse_args()
    notes = Console(stderr=True)
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as scratch:
        folder = Path(scratch)
        soak = Soak(folder, options.per_second)
        try:
            watched(soak, options.minutes * 60, notes)
            ended = soak.end()
        finally:
            soak.kill()
        found = list(judged(soak.samples))
        ((left_open,),) = rows(folder, OPEN)
        sound = rows(folder, "pragma integrity_check") == [("ok",)]
        found.append(Finding("visits that went wrong", soak._said.wrong, "", 0))
        found.append(Finding("runs left open", left_open, "", 0))
        found.append(
            Finding("processes that ended badly, or a damaged file", sum(map(bool, ended)) + (not sound), "", 0)
        )
    command = f"python -m bench.soak --minutes {options.minutes:g} --per-second {options.per_second:g}"
    minutes = soak.samples[-1].at_s / 60
    subtitle = f"{minutes:.3g} minutes, {soak.samples[-1].said.visits:,} visits; {command}"
    options.picture.write_text(drawn(soak.samples, subtitle))
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "soak-samples.json").write_bytes(msgspec.json.encode(soak.samples))
    return conclude("soak", command, found, options.picture.with_suffix(".json"))


if __name__ == "__main__":
    sys.exit(main())
