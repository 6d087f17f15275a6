"""The parser: text to a Filter, by recursive descent.

In:   the text, its parameters by name, and the time that `ago` counts from.
Out:  a Filter whose names and values fit each other, or BadFilter with the position of the trouble.

    any       = all ("or" all)*
    all       = one ("and" one)*
    one       = "not" one | "(" any ")" | "true" | "false" | condition
    condition = name ("=" | "!=" | "<" | "<=" | ">" | ">=") value
              | name ["not"] ("in" "(" value ("," value)* ")" | "like" value | "contains" value)
              | name "is" ["not"] "null"
    name      = word | "attributes" "." (word | '"' characters '"')
    value     = "'" characters "'" | number | "true" | "false" | "null" | ":" word | "ago" "(" value ")"
"""

from collections.abc import Mapping

from perdure.errors import BadFilter
from perdure.kernel.filters.operands import Operands
from perdure.kernel.filters.syntax import (
    FIELDS,
    Compare,
    Constant,
    Contains,
    Field,
    Filter,
    In,
    IsNull,
    Like,
    Name,
    Not,
    NumberValue,
    Operator,
    TextValue,
    TruthValue,
    all_of,
    any_of,
)
from perdure.kernel.filters.tokens import Token, Tokens
from perdure.kernel.filters.values import FITTING, LONGEST_TEXT, PLAIN, UNSTORABLE

MOST_TERMS = 100
MOST_LEVELS = 20
IN_ORDER: dict[str, Operator] = {"<": "<", "<=": "<=", ">": ">", ">=": ">="}
OPERATORS = "=, !=, <, <=, >, >=, in (…), like, contains or is null"


def parse(text: str, params: Mapping[str, object] | None = None, *, now: int) -> Filter:
    """The filter that the text says; BadFilter when it says none. `now` is in milliseconds."""
    if not isinstance(text, str):
        raise BadFilter(repr(text), 0, "a filter is a text; write 'true' to have all runs")
    if not isinstance(params, Mapping | None):
        raise BadFilter(text, len(text), "params is a dict of names and values")
    if len(text) > LONGEST_TEXT:
        raise BadFilter(text, LONGEST_TEXT, f"the filter has more than {LONGEST_TEXT:,} characters; use parameters")
    if found := UNSTORABLE.search(text):
        raise BadFilter(text, found.start(), "a zero character, or half of a surrogate pair, which no run has")
    tokens = Tokens(text)
    return _Parser(tokens, Operands(tokens, params or {}, now)).whole()


class _Parser:
    """Reads conditions, and what joins them; counts terms and levels."""

    def __init__(self, tokens: Tokens, operands: Operands) -> None:
        self._tokens = tokens
        self._operands = operands
        self._levels = 0
        self._terms = 0

    def whole(self) -> Filter:
        if self._tokens.next.kind == "end":
            raise self._tokens.bad(Token("end", "", 0), "the filter is empty; write `true` to have all runs")
        found = self._any()
        rest = self._tokens.next
        if rest.kind != "end":
            raise self._tokens.bad(rest, f"`and`, `or` or the end would fit here, not {rest}")
        self._operands.check_all_used()
        return found

    # What joins conditions

    def _any(self) -> Filter:
        parts = [self._all()]
        while self._tokens.accept("or"):
            parts.append(self._all())
        return any_of(parts)

    def _all(self) -> Filter:
        parts = [self._one()]
        while self._tokens.accept("and"):
            parts.append(self._one())
        return all_of(parts)

    def _one(self) -> Filter:
        opening = self._tokens.accept("not", "(")
        if opening is None:
            return self._term()
        self._levels += 1
        if self._levels > MOST_LEVELS:
            raise self._tokens.bad(opening, f"more than {MOST_LEVELS} levels of ( and not; say it in a flatter way")
        found = Not(self._one()) if opening.text == "not" else self._bracketed()
        self._levels -= 1
        return found

    def _bracketed(self) -> Filter:
        found = self._any()
        self._tokens.expect(")", "`and`, `or` or a closing )")
        return found

    def _term(self) -> Filter:
        self._terms += 1
        if self._terms > MOST_TERMS:
            trouble = f"more than {MOST_TERMS} conditions; use in (…) for many values of one name"
            raise self._tokens.bad(self._tokens.next, trouble)
        if truth := self._tokens.accept("true", "false"):
            return Constant(truth.text == "true")
        return self._condition(self._operands.name())

    # Conditions

    def _condition(self, name: Name) -> Filter:
        sign = self._tokens.take()
        match sign.text:
            case "=":
                return self._equal(name)
            case "!=":
                return Not(self._equal(name))
            case "<" | "<=" | ">" | ">=":
                return self._in_order(name, sign)
            case "is":
                return self._null(name)
            case "not":
                return Not(self._worded(name, self._tokens.take()))
            case _:
                return self._worded(name, sign)

    def _equal(self, name: Name) -> Filter:
        value = self._operands.value(name)
        return IsNull(name) if value is None else Compare(name, "=", value)

    def _in_order(self, name: Name, sign: Token) -> Compare:
        if isinstance(name, Field) and FIELDS[name.name] == "status":
            raise self._tokens.bad(sign, "statuses have no order; write =, != or in (…)")
        return Compare(name, IN_ORDER[sign.text], self._operands.value_in_order(name))

    def _null(self, name: Name) -> Filter:
        is_not = self._tokens.accept("not")
        self._tokens.expect("null", "`null`" if is_not else "`null` or `not null`")
        return Not(IsNull(name)) if is_not else IsNull(name)

    def _worded(self, name: Name, word: Token) -> Filter:
        match word.text:
            case "in":
                return self._among(name)
            case "like":
                return self._like(name, word)
            case "contains":
                return self._contains(name, word)
            case "==" | "<>":
                raise self._tokens.bad(word, "write = for equal, and != for unequal")
            case _:
                raise self._tokens.bad(word, f"after a name {OPERATORS} would fit, not {word}")

    def _among(self, name: Name) -> Filter:
        self._tokens.expect("(", "an opening ( and values")
        values = [self._operands.value(name)]
        while self._tokens.accept(","):
            values.append(self._operands.value(name))
        self._tokens.expect(")", "a comma or a closing )")
        there = tuple(value for value in values if value is not None)
        among: list[Filter] = [In(name, there)] if there else []
        return any_of([*among, IsNull(name)] if None in values else among)

    def _like(self, name: Name, word: Token) -> Like:
        if isinstance(name, Field) and FIELDS[name.name] != "text":
            fitting = FITTING[FIELDS[name.name]]
            raise self._tokens.bad(word, f"like is for text, and {name.name} is compared with {fitting}")
        token, pattern = self._operands.given()
        if not isinstance(pattern, TextValue):
            raise self._tokens.bad(token, f"like takes a text such as 'o-%', not {token}")
        return Like(name, pattern.text)

    def _contains(self, name: Name, word: Token) -> Contains:
        if isinstance(name, Field):
            raise self._tokens.bad(word, f"contains is for attributes that are lists, and {name.name} is a field")
        token, value = self._operands.given()
        if not isinstance(value, TextValue | NumberValue | TruthValue):
            raise self._tokens.bad(token, f"contains takes {PLAIN}, not {token}")
        return Contains(name, value)
