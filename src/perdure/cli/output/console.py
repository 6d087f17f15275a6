"""The standard streams, made fit for whatever they lead to: no terminal, an old one, a pipe that was closed.

In:   the streams of this process.
Out:  the same; nothing that is printed can fail for its characters, and colours go only where they are seen.
"""

import codecs
import contextlib
import os
import sys
from typing import IO

# How our marks look where there is only ASCII.
PLAIN = {
    "▶": ">",
    "✓": "+",
    "✗": "x",
    "◷": "@",
    "✉": "*",
    "✎": "=",
    "•": "*",
    "→": "->",
    "←": "<-",
    "↳": "`-",
    "…": "...",
    "⚠": "!",
}
FALLBACK = "perdure-plain"


def prepare() -> None:
    """Give the process streams that take every text."""
    codecs.register_error(FALLBACK, _plain)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # The process that started us has closed it; what is printed goes nowhere.
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - open as long as the process
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=FALLBACK)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that the stream cannot take."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(PLAIN.get(each, "?") for each in text), error.end


def is_coloured(stream: IO[str]) -> bool:
    """Whether colours are welcome there, and bold and dim letters with them."""
    return stream.isatty() and not forbids_colours() and os.environ.get("TERM") != "dumb"


def forbids_colours() -> bool:
    """Whether the user wants plain letters everywhere."""
    return bool(os.environ.get("NO_COLOR"))


def takes_unicode(stream: IO[str]) -> bool:
    """Whether every character arrives as it is."""
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "").startswith("utf")


def stop_writing() -> None:
    """Write no more: the reader has closed the output, and Python must not complain about it while it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
            continue
        with contextlib.suppress(OSError, ValueError):
            os.dup2(nowhere, stream.fileno())
