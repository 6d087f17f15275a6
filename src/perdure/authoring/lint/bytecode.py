"""Uses: which names and attributes a piece of code mentions and calls, read from its bytecode.

In:   a code object, and nothing else: no source, nothing is run or imported.
Out:  chains such as `dt.datetime.now`, called or merely mentioned, and where they stand;
      what is imported or defined inside; the code nested in it.

Bytecode tells what source would leave open: which names are local. It is there in
consoles and archives, too. Knows nothing of what is refused.
"""

import dis
import inspect
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Literal, NamedTuple, TypeAlias

Scope: TypeAlias = Literal["global", "local", "free", "value"]

# Where the NULL that belongs to a call stands: before what is called, or after it.
_NULL_COMES_FIRST = sys.version_info < (3, 13)
_ATTRIBUTES_TELL_CALLS = sys.version_info >= (3, 12)
_CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})
_KEEP_THE_TOP = frozenset({"MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE", "SWAP", "POP_TOP"})
_SCOPES: dict[str, Scope] = {
    "LOAD_GLOBAL": "global",
    "LOAD_NAME": "global",
    "LOAD_FROM_DICT_OR_GLOBALS": "global",
    "LOAD_DEREF": "free",
    "LOAD_CLASSDEREF": "free",
    "LOAD_FROM_DICT_OR_DEREF": "free",
}


class Span(NamedTuple):
    """A piece of source; columns are -1 where Python was told not to keep them."""

    line: int
    column: int
    end_line: int
    end_column: int

    def covers(self, other: "Span") -> bool:
        if self.column < 0 or other.column < 0:
            return self.line <= other.line <= self.end_line
        return self[:2] <= other[:2] and other[2:] <= self[2:]


class CallExpression(NamedTuple):
    """A call: the whole expression with its arguments, and whether there are any."""

    offset: int
    span: Span
    has_arguments: bool


class Use(NamedTuple):
    """A name with the attributes taken of it; of scope `value` when it begins with something else than a name."""

    scope: Scope
    name: str
    attributes: tuple[str, ...]
    span: Span
    is_called: bool
    call: CallExpression | None

    @property
    def whole(self) -> Span:
        return self.span if self.call is None else self.call.span


class Imported(NamedTuple):
    """What an import inside the code binds a name to."""

    path: str


class Nested(NamedTuple):
    """A function, lambda, comprehension or class inside the code, and the name it is given, if any."""

    code: CodeType
    span: Span
    name: str | None


class Reading(NamedTuple):
    """What was read in one code object, nested code not included."""

    uses: list[Use]
    nested: list[Nested]
    # What local names are bound to; None for what cannot be told.
    bound: dict[str, Imported | CodeType | None]
    # Calls of which each time could be another: of a parameter, an element, a result.
    changing_calls: frozenset[int]


def read(code: CodeType) -> Reading:
    """Read one code object."""
    reader = _Reader(code)
    for instruction in dis.get_instructions(code):
        if instruction.opname != "EXTENDED_ARG":
            reader.step(instruction)
    return reader.reading()


def raised_in_groups(code: CodeType) -> Iterator[Span]:
    """Where blocks of `except*` raise an error of their own, or await what may; only as Python 3.11 compiles them."""
    blocks = 0
    for instruction in dis.get_instructions(code):
        match instruction.opname, instruction.arg:
            case "CHECK_EG_MATCH", _:
                blocks += 1
            # No other code of 3.11 appends so deep: this puts what the block raised beside what the others did.
            case "LIST_APPEND", 3:
                blocks -= 1
            case ("SEND", _) | ("RAISE_VARARGS", 1 | 2) if blocks:
                yield _span(instruction.positions, code.co_firstlineno)


def span_of(code: CodeType, offset: int) -> Span:
    """Where an instruction stands."""
    for number, position in enumerate(code.co_positions()):
        if number * 2 == offset:
            return _span(dis.Positions(*position), code.co_firstlineno)
    return Span(code.co_firstlineno, -1, code.co_firstlineno, -1)


def _span(found: "dis.Positions | None", line: int) -> Span:
    if found is None or found.lineno is None:
        return Span(line, -1, line, -1)
    if found.col_offset is None or found.end_lineno is None or found.end_col_offset is None:
        return Span(found.lineno, -1, found.end_lineno or found.lineno, -1)
    return Span(found.lineno, found.col_offset, found.end_lineno, found.end_col_offset)


class _Chain:
    """A use that is being read."""

    def __init__(self, scope: Scope, name: str, start: Span | None, span: Span, is_called: bool) -> None:
        self.scope = scope
        self.name = name
        self.start = start
        self.span = span
        self.attributes: tuple[str, ...] = ()
        self.is_called = is_called


class _Reader:
    """Goes through the instructions once; knows only what lies on top of the stack."""

    def __init__(self, code: CodeType) -> None:
        self._line = code.co_firstlineno
        self._chains: list[_Chain] = []
        self._calls: list[CallExpression] = []
        self._nested: list[Nested] = []
        self._bound: dict[str, Imported | CodeType | None] = dict.fromkeys(_parameters(code))
        # The chain that grows, the import or function on top of the stack, and the last two constants.
        self._chain: _Chain | None = None
        self._top: Imported | CodeType | None = None
        self._constants: list[object] = [None, None]
        self._module = ""
        self._has_null = False

    def step(self, instruction: dis.Instruction) -> None:
        name, value = instruction.opname, instruction.argval
        span = _span(instruction.positions, self._line)
        self._line = span.line
        has_null, self._has_null = self._has_null, False
        if name in {"LOAD_ATTR", "LOAD_METHOD"}:
            self._attribute(value, span, name == "LOAD_METHOD" or _is_method(instruction))
            return
        if name == "PUSH_NULL":
            self._null(span)
            return
        self._chain = None
        if name in _SCOPES:
            is_called = has_null or (name == "LOAD_GLOBAL" and bool((instruction.arg or 0) & 1))
            self._begin(_SCOPES[name], value, span, is_called)
        elif name == "LOAD_SUPER_ATTR":
            self._attribute(value, span, True)
        elif name in _CALLS:
            self._calls.append(
                CallExpression(instruction.offset, span, name == "CALL_FUNCTION_EX" or bool(instruction.arg))
            )
        for local in _loaded(name, value):
            # The place of two instructions in one is that of the first of them; what follows knows better.
            self._begin("local", local, span, has_null, is_placed=isinstance(value, str))
        self._follow_the_top(name, value, span)

    def _null(self, span: Span) -> None:
        if _NULL_COMES_FIRST:
            self._has_null = True
        elif self._chain is not None:
            self._chain.is_called = True
            if self._chain.start is None:
                self._chain.start = self._chain.span = span
        self._chain = None

    def _begin(self, scope: Scope, name: str, span: Span, is_called: bool, *, is_placed: bool = True) -> None:
        self._chain = _Chain(scope, name, span if is_placed else None, span, is_called)
        self._chains.append(self._chain)

    def _attribute(self, name: str, span: Span, is_called: bool) -> None:
        self._top = None
        if self._chain is None:
            self._begin("value", "", span, False)
        assert self._chain is not None
        self._chain.attributes += (name,)
        self._chain.span = span
        self._chain.start = self._chain.start or span
        self._chain.is_called |= is_called
        if is_called:
            self._chain = None

    # What names are bound to

    def _follow_the_top(self, name: str, value: object, span: Span) -> None:
        top, self._top = self._top, None
        if name in {"LOAD_CONST", "LOAD_SMALL_INT"}:
            self._constants = [self._constants[1], value]
            if isinstance(value, CodeType):
                self._top = value
                self._nested.append(Nested(value, span, None))
        elif name == "IMPORT_NAME":
            self._module = str(value)
            level, names = self._constants
            if level == 0:
                self._top = Imported(self._module if names else self._module.split(".")[0])
        elif name == "IMPORT_FROM":
            # `import a.b as c` takes b from a; `from a import b` says so in the constant.
            level, names = self._constants
            if level == 0:
                self._top = Imported(f"{self._module}.{value}" if names else self._module)
        elif name in _KEEP_THE_TOP:
            self._top = top
        elif name.startswith("STORE_"):
            for stored in _stored(name, value):
                self._bind(stored, top)
                top = None

    def _bind(self, name: str, source: Imported | CodeType | None) -> None:
        if name in self._bound and self._bound[name] != source:
            source = None
        self._bound[name] = source
        if isinstance(source, CodeType) and self._nested[-1].code is source:
            self._nested[-1] = self._nested[-1]._replace(name=name)

    # At the end

    def reading(self) -> Reading:
        uses = [self._use(chain) for chain in self._chains]
        steady = {use.call.offset for use in uses if use.call is not None and _is_steady(use)}
        changing = frozenset(call.offset for call in self._calls if call.offset not in steady)
        return Reading(uses, self._nested, self._bound, changing)

    def _use(self, chain: _Chain) -> Use:
        call = self._call_of(chain) if chain.is_called else None
        return Use(chain.scope, chain.name, chain.attributes, chain.span, chain.is_called, call)

    def _call_of(self, chain: _Chain) -> CallExpression | None:
        """The call begins where what it calls begins; of several the shortest is the one."""
        if chain.start is None or chain.start.column < 0:
            return None
        start, end = chain.start[:2], chain.span[2:]
        calls = (call for call in self._calls if call.span[:2] == start and call.span[2:] > end)
        return min(calls, key=lambda call: call.span[2:], default=None)


def _parameters(code: CodeType) -> tuple[str, ...]:
    rest = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + rest]


def _is_method(instruction: dis.Instruction) -> bool:
    return _ATTRIBUTES_TELL_CALLS and bool((instruction.arg or 0) & 1)


def _is_steady(use: Use) -> bool:
    return use.scope == "global" or bool(use.attributes)


# Newer Pythons have instructions that work on two locals at once.


def _loaded(name: str, value: object) -> tuple[str, ...]:
    if name == "STORE_FAST_LOAD_FAST" and isinstance(value, tuple):
        return value[1:]
    if name.startswith("LOAD_FAST") or name == "LOAD_CLOSURE":
        return value if isinstance(value, tuple) else (str(value),)
    return ()


def _stored(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, tuple):
        return value[:1] if name == "STORE_FAST_LOAD_FAST" else value
    return (value,) if isinstance(value, str) else ()
