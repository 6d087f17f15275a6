"""JSON given on the command line: literal, `@file`, or `-` for standard input.

In:   one word of the command line.
Out:  JSON bytes that are known to be well-formed.
"""

import sys
from pathlib import Path

import msgspec

from perdure.cli.exits import Mistake


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
        return f" ({text})", text.encode()
    path = Path(text[1:])
    try:
        return f" (read from {path})", path.read_bytes()
    except OSError as error:
        raise Mistake(f"{what} cannot be read from the file {str(path)!r}: {error.strerror}") from None


def _trouble(data: bytes, error: Exception) -> str:
    if not data.strip():
        return "it is empty"
    return str(error).removeprefix("JSON is malformed: ")
