"""The two sides of a condition: a name, and the value it is compared with.

In:   tokens; the parameters by name, and the time that `ago` counts from.
Out:  a field or an attribute; a value that fits it.
"""

from collections.abc import Mapping

from perdure.errors import BadFilter
from perdure.kernel.filters.syntax import FIELDS, Attribute, Field, Name, TextValue, TruthValue, Value
from perdure.kernel.filters.tokens import KEYWORDS, PLAIN_WORD, Token, Tokens
from perdure.kernel.filters.values import (
    Given,
    Misfit,
    fitting,
    fitting_in_order,
    moment_ago,
    number_of,
    parameter_value,
)

# Names of a run elsewhere that are no fields here. As attributes they would be missing, and `!=` would mean all runs.
OTHER_NAMES = {"workflow_id": "id"}


def is_plain_name(name: str) -> bool:
    """Whether an attribute can be written as it is, without `attributes.` before it."""
    is_taken = name.lower() in {*KEYWORDS, *FIELDS, *OTHER_NAMES}
    return PLAIN_WORD.fullmatch(name) is not None and not is_taken


class Operands:
    """Reads names and values from the tokens; knows which parameters were used."""

    def __init__(self, tokens: Tokens, params: Mapping[str, object], now: int) -> None:
        self._tokens = tokens
        self._params = params
        self._now = now
        self._used: set[str] = set()

    # Names

    def name(self) -> Name:
        token = self._tokens.take()
        if token.kind != "word":
            raise self._tokens.bad(token, f"the name of a field or an attribute would fit here, not {token}")
        if self._tokens.next.text == "(":
            raise self._unknown_function(token)
        return self._attribute(token) if self._tokens.accept(".") else self._plain_name(token)

    def _attribute(self, before: Token) -> Attribute:
        if before.text != "attributes":
            raise self._tokens.bad(before, f'only `attributes` has a dot after it; write attributes."{before}.…"')
        token = self._tokens.take()
        if token.kind == "quoted" and token.text != '""':
            return Attribute(token.text[1:-1].replace('""', '"'))
        if token.kind not in {"word", "keyword"}:
            raise self._tokens.bad(token, f"the name of an attribute would fit here, not {token}")
        return Attribute(self._tokens.as_written(token))

    def _plain_name(self, token: Token) -> Name:
        name = token.text
        meant = OTHER_NAMES.get(name.lower(), name.lower())
        if name in FIELDS:
            return Field(name)
        if meant in FIELDS:
            raise self._tokens.bad(token, f"the field is called {meant}; the attribute is attributes.{token}")
        return Attribute(name)

    # Values

    def value(self, name: Name) -> Value | None:
        """A value that fits the name; None is null."""
        token, given = self.given()
        found = fitting(name, given)
        if isinstance(found, Misfit):
            raise self._tokens.bad(token, found)
        return found

    def value_in_order(self, name: Name) -> Value:
        """A value that the name can be less or greater than."""
        token, given = self.given()
        found = fitting_in_order(name, given)
        if isinstance(found, Misfit):
            raise self._tokens.bad(token, found)
        return found

    def given(self) -> tuple[Token, Given]:
        """The next value, whatever it is compared with, and where it stands."""
        token = self._tokens.take()
        match token.kind, token.text:
            case "text" | "number" | "parameter", _:
                return token, self._literal(token)
            case "keyword", "true" | "false":
                return token, TruthValue(token.text == "true")
            case "keyword", "null":
                return token, None
            case "word", _ if self._tokens.next.text == "(":
                return token, self._ago(token)
            case _:
                raise self._tokens.bad(token, f"a value would fit here, not {token}{_hint(token)}")

    def _literal(self, token: Token) -> Given:
        match token.kind:
            case "text":
                return TextValue(token.text[1:-1].replace("''", "'"))
            case "number":
                found: Given | Misfit = number_of(token.text)
            case _:
                found = self._parameter(token)
        if isinstance(found, Misfit):
            raise self._tokens.bad(token, found)
        return found

    def _parameter(self, token: Token) -> Given | Misfit:
        name = token.text[1:]
        if name not in self._params:
            given = ", ".join(map(str, self._params)) or "none"
            raise self._tokens.bad(token, f"the parameter {name!r} is missing (given: {given}); add it to params")
        self._used.add(name)
        return parameter_value(self._params[name])

    def _ago(self, function: Token) -> Value:
        if function.text.lower() != "ago":
            raise self._unknown_function(function)
        self._tokens.expect("(", "an opening (")
        token = self._tokens.take()
        if token.kind not in {"text", "number", "parameter"}:
            raise self._tokens.bad(token, f"a duration such as '1h30m' would fit here, not {token}")
        found = moment_ago(self._literal(token), self._now)
        if isinstance(found, Misfit):
            raise self._tokens.bad(token, found)
        if token.kind == "number" and self._tokens.next.kind == "word":
            raise self._tokens.bad(
                token, f"a duration stands in single quotes: ago('{token.text}{self._tokens.next.text}')"
            )
        self._tokens.expect(")", "a closing )")
        return found

    def _unknown_function(self, token: Token) -> BadFilter:
        if token.text.lower() == "ago":
            return self._tokens.bad(token, "a name comes first: write created_at > ago('2h')")
        trouble = f"there is no function {token}(); the only one is ago(), as in created_at > ago('2h')"
        return self._tokens.bad(token, trouble)

    def check_all_used(self) -> None:
        """BadFilter when a parameter was given that stands nowhere in the filter."""
        if unused := [name for name in self._params if name not in self._used]:
            trouble = f"the parameter {unused[0]!r} is given and stands nowhere in the filter; leave it out"
            raise self._tokens.bad(self._tokens.next, trouble)


def _hint(token: Token) -> str:
    match token.kind:
        case "word":
            return f"; text stands in single quotes: '{token}'"
        case "quoted":
            return "; text stands in single quotes, not in double ones"
        case _:
            return ""
