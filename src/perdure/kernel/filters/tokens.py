"""The words, signs and literals of a filter, and how far they are read.

In:   the text.
Out:  one token after the other, and BadFilter with the position of a token.
"""

import re

import msgspec

from perdure.errors import BadFilter
from perdure.kernel.filters.values import Misfit, shortened

WORD = r"[^\W\d]\w*"
# Each alternative is told from the others by its first characters, and none has two ways to match. A quote that is
# not closed is found at its beginning, for what was read of it is not given back (`*+`).
TOKEN = re.compile(
    rf"""
      (?P<space>\s+)
    | (?P<word>{WORD})
    | (?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
    | (?P<text>'[^']*+(?:''[^']*+)*+')
    | (?P<quoted>"[^"]*+(?:""[^"]*+)*+")
    | (?P<parameter>:{WORD})
    | (?P<sign>[<>!=]=|<>|[=<>(),.])
    """,
    re.VERBOSE,
)
PLAIN_WORD = re.compile(WORD)
KEYWORDS = frozenset({"and", "or", "not", "in", "like", "contains", "is", "null", "true", "false"})


class Token(msgspec.Struct, frozen=True, gc=False):
    """A word, sign or literal; `kind` is that of TOKEN, "keyword", or "end". A keyword is in lower case."""

    kind: str
    text: str
    at: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else shortened(self.text)


class Tokens:
    """The tokens of a text; `next` is the first that was not taken."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [*_tokens(text), Token("end", "", len(text))]
        self._at = 0

    @property
    def next(self) -> Token:
        return self._tokens[self._at]

    def take(self) -> Token:
        token = self.next
        self._at += token.kind != "end"
        return token

    def accept(self, *words: str) -> Token | None:
        """The next token, taken, when it is one of these keywords or signs."""
        return self.take() if self.next.kind in {"keyword", "sign"} and self.next.text in words else None

    def expect(self, word: str, wanted: str) -> None:
        """Take this keyword or sign; BadFilter says what was wanted when it is not there."""
        if self.accept(word) is None:
            raise self.bad(self.next, f"{wanted} would fit here, not {self.next}")

    def as_written(self, token: Token) -> str:
        """The token's text in its own case."""
        return self._text[token.at : token.at + len(token.text)]

    def bad(self, token: Token, trouble: str | Misfit) -> BadFilter:
        """The error that shows the token, and says what is wrong, perhaps with its value."""
        if isinstance(trouble, Misfit):
            about = f"the parameter {token}: " if token.kind == "parameter" else ""
            return BadFilter(self._text, token.at, about + trouble.text)
        return BadFilter(self._text, token.at, trouble)


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        found = TOKEN.match(text, at)
        if found is None:
            raise BadFilter(text, at, _unreadable(text[at]))
        tokens.append(_token(str(found.lastgroup), found.group(), at))
        at = found.end()
    return [token for token in tokens if token.kind != "space"]


def _token(kind: str, text: str, at: int) -> Token:
    is_keyword = kind == "word" and text.lower() in KEYWORDS
    return Token("keyword", text.lower(), at) if is_keyword else Token(kind, text, at)


def _unreadable(character: str) -> str:
    match character:
        case "'" | '"':
            return f"the text that begins here has no closing {character}"
        case ":":
            return "a parameter has a name, such as :tenant"
        case "!":
            return "write != for unequal, or `not` before a condition"
        case _:
            return f"{character!r} means nothing here; text stands in 'quotes', and odd names in attributes.\"quotes\""
