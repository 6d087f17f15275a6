"""Errors of the API in the words of the command line, where a keyword is a flag."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from perdure.cli.output.errors import Mistake
from perdure.errors import BadInput


@contextmanager
def in_flags(words: Mapping[str, str]) -> Iterator[None]:
    """Bad input is told as a mistake in what was typed; `words` has what stands for what."""
    try:
        yield
    except BadInput as error:
        text = str(error)
        for keyword, flag in words.items():
            text = text.replace(keyword, flag)
        raise Mistake(text) from None
