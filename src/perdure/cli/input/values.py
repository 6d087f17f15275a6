"""Words of the command line, made values: JSON, durations, attributes.

In:   one word: JSON is literal, `@file`, or `-` for standard input; a duration is 30, 30s, 5m, 2h or 1d.
Out:  JSON bytes that are known to be well-formed; seconds; attributes by name.
"""

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
import typer

from perdure.cli.output.errors import Mistake
from perdure.kernel.retry import LONGEST_SECONDS

UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
PART = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join(UNITS)})")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
LONGEST_QUOTED = 40
BYTE = re.compile(r" ?\(byte (\d+)\)$")
TIPS = {
    "'": "JSON writes texts in double quotes",
    "True": "JSON writes true",
    "False": "JSON writes false",
    "None": "JSON writes null",
}


# JSON


def json_given(text: str, what: str, example: str) -> bytes:
    """The JSON behind a word; Mistake, with an example, when there is none."""
    source, data = _read(text, what)
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Mistake(f"{what} is not JSON{source}: {_trouble(data, error)}; for example: {example}") from None
    return data


def _read(text: str, what: str) -> tuple[str, bytes]:
    """Where the JSON was found, in words, and the JSON itself."""
    if text == "-":
        return " (read from standard input)", sys.stdin.buffer.read()
    if not text.startswith("@"):
        return f" ({_cut(text)})", os.fsencode(text)
    path = Path(text[1:])
    try:
        return f" (read from {path})", path.read_bytes()
    except OSError as error:
        raise Mistake(f"{what} cannot be read from the file {str(path)!r}: {error.strerror}") from None


def _trouble(data: bytes, error: Exception) -> str:
    if not data.strip():
        return "it is empty"
    reason = str(error).removeprefix("JSON is malformed: ")
    position = BYTE.search(reason)
    if position is None:
        return "it ends too early" if "truncated" in reason else reason
    at = int(position[1])
    there = data[at:].decode(errors="replace")
    tip = next((f"; {tip}" for start, tip in TIPS.items() if there.startswith(start)), "")
    return f"{BYTE.sub('', reason)} at {_place(data, at)}{tip}"


def _place(data: bytes, at: int) -> str:
    """Where a byte is, for a reader of the text."""
    before = data[:at].decode(errors="replace")
    column = len(before) - before.rfind("\n")
    is_one_line = b"\n" not in data.strip()
    return f"character {column}" if is_one_line else f"line {before.count(chr(10)) + 1}, character {column}"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_QUOTED else f"{text[:LONGEST_QUOTED]}…"


# Durations and attributes


def duration(text: str) -> float:
    """Seconds; `1h30m` is a sum."""
    word = text.replace(" ", "").lower()
    parts = PART.findall(word)
    if parts and "".join(number + unit for number, unit in parts) == word:
        seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
    elif NUMBER.fullmatch(word):
        seconds = float(word)
    else:
        raise typer.BadParameter(f"{text!r} is not a duration; write 30, 30s, 5m, 2h or 1d")
    if seconds > LONGEST_SECONDS:
        raise typer.BadParameter(f"{text!r} is more than 1000 years; leave it out to have no limit")
    return seconds


def attributes(words: Iterable[str], example: str = "--attribute tenant=acme") -> dict[str, object]:
    """The attributes behind words such as `cents=900` and `tenant=acme`: JSON values, or else texts."""
    return dict(_named(word, "attribute", example) for word in words)


def parameters(words: Iterable[str] | None) -> dict[str, object] | None:
    """The parameters of a filter behind such words; None when there are none."""
    return dict(_named(word, "parameter", "--param tenant=acme") for word in words) if words else None


def _named(word: str, what: str, example: str) -> tuple[str, object]:
    name, is_there, value = word.partition("=")
    if not is_there or not name.strip():
        raise Mistake(f"the {what} {word!r} has no name and value; write {example}")
    try:
        return name.strip(), msgspec.json.decode(os.fsencode(value))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return name.strip(), value
