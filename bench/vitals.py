"""The vitals of a process, this one or another: memory, time spent, open files, threads; from Linux's `/proc`."""

import os
from pathlib import Path

import msgspec

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
# Places of user and system time in /proc/PID/stat, counted from the field after the program's name.
USER_TIME, SYSTEM_TIME = 11, 12


class Vitals(msgspec.Struct, frozen=True):
    """How a process is at one moment."""

    rss_mb: float
    peak_mb: float
    threads: int
    files: int
    cpu_s: float


def vitals(pid: int | None = None) -> Vitals:
    """Of this process, or of another one of this user; ProcessLookupError when it is gone."""
    folder = Path("/proc") / str(os.getpid() if pid is None else pid)
    try:
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        spent = (folder / "stat").read_text().rpartition(")")[2].split()
        files = len(list((folder / "fd").iterdir()))
        return Vitals(
            _mb(status["VmRSS"]),
            # Not from getrusage: a process inherits that peak from the one that started it.
            _mb(status["VmHWM"]),
            int(status["Threads"]),
            files,
            (int(spent[USER_TIME]) + int(spent[SYSTEM_TIME])) / TICKS_PER_SECOND,
        )
    except (FileNotFoundError, KeyError):
        raise ProcessLookupError(f"process {pid} is gone") from None


def _mb(kilobytes: str) -> float:
    return int(kilobytes.split(maxsplit=1)[0]) / 1024
