"""Refusals: workflow code that reads clocks, chance, files, sockets and the like, found before it runs.

In:   a decorated workflow.
Out:  NotAllowedInWorkflow with file, line, call and remedy, when `@workflow` decorates it.

Looks at the function, the code nested in it, and the functions and classes of its own
module that it reaches; not into activities, not into what is given to `side_effect`,
and not at lines that end in `# perdure: ok`. It sees calls by name: what an instance
of another module's class or another module's function does goes unnoticed here. None
of the user's code is run to find out.
"""

import builtins
import functools
import inspect
import linecache
import platform
import re
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, Protocol, TypeAlias

from perdure.authoring.lint.bytecode import Imported, Nested, Reading, Span, Use, raised_in_groups, read
from perdure.authoring.lint.rules import LintRule, loaded, path_of, rule_of
from perdure.errors import NotAllowedInWorkflow

SIDE_EFFECTS = frozenset({"perdure.side_effect", "perdure.authoring.calls.side_effect"})
_ACCEPTED = re.compile(r"#\s*perdure:\s*ok\b")

# It calls a factory only when no value is given, which its code does not tell; and it has no line to put a mark on.
_DATACLASS_CODE = "__create_fn__"


def _wraps_what_groups_raise() -> bool:
    """Whether this Python puts an error that a block of `except*` raises into a group; so it was up to 3.11.3."""
    try:
        try:
            raise ExceptionGroup("", [ValueError()])
        except* ValueError:
            raise KeyError from None
    except KeyError:
        return False
    except ExceptionGroup:
        return True


_WRAPS_WHAT_GROUPS_RAISE = _wraps_what_groups_raise()
_IN_A_GROUP = "`raise` or `await` in a block of `except*`"
_OTHER_PYTHONS = f"Python {platform.python_version()} puts its error into a group, 3.11.4 and later ones do not"
_OUT_OF_IT = "do it after the block, catch `ExceptionGroup` instead, or use a later Python"

_CACHED = type(functools.cache(lambda: None))
_UNKNOWN = object()
_MISSING = object()


class CheckedWorkflow(Protocol):
    """A decorated workflow."""

    name: str
    fn: Callable[..., Any]


class Seen(NamedTuple):
    """What a look at a workflow gave: refusals, the code it reaches, and whether all of it was there.

    With each code object come the offsets of the calls that may call something else each time.
    """

    refusals: tuple[NotAllowedInWorkflow, ...]
    codes: dict[CodeType, frozenset[int]]
    is_complete: bool


# Workflows no worker has looked at yet.
unseen: "list[tuple[weakref.ref[CheckedWorkflow], Seen]]" = []


def refuse_unrepeatable(workflow: CheckedWorkflow) -> None:
    """Raise NotAllowedInWorkflow if the workflow does what a replay would not repeat."""
    seen = look(workflow)
    if seen.refusals:
        raise as_one(seen.refusals)
    unseen.append((weakref.ref(workflow), seen))


def look(workflow: CheckedWorkflow) -> Seen:
    """Walk through the workflow's code, and what it reaches in its module."""
    walk = _Walk(workflow)
    return Seen(tuple(walk.refusals), walk.codes, not walk.misses_something)


def as_one(refusals: tuple[NotAllowedInWorkflow, ...]) -> NotAllowedInWorkflow:
    """The first refusal, with the others and the way out as notes."""
    first, *others = refusals
    for other in others:
        first.add_note(f"also: {other}")
    first.add_note("Where a replay may repeat it all the same, end the line in `# perdure: ok`.")
    return first


def is_accepted(filename: str, lines: Iterable[int], module: dict[str, Any]) -> bool:
    """Whether one of these lines says `# perdure: ok`."""
    return any(_ACCEPTED.search(linecache.getline(filename, line, module)) for line in lines)


# What names stand for: an object, an import that may not be loaded, the code of an inner function.
_Names: TypeAlias = dict[str, object]


class _Walk:
    """One walk; every code object is visited once."""

    def __init__(self, workflow: CheckedWorkflow) -> None:
        self._workflow = workflow
        # A decorator below ours may be of another module.
        self._module: dict[str, Any] = inspect.unwrap(workflow.fn).__globals__
        self.refusals: list[NotAllowedInWorkflow] = []
        self.codes: dict[CodeType, frozenset[int]] = {}
        self.misses_something = False
        self._classes: dict[type, None] = {}
        self._attributes: set[str] = set()
        for annotation in workflow.fn.__annotations__.values():
            self._reach(self._module.get(annotation) if isinstance(annotation, str) else annotation)
        self._reach(workflow.fn)
        self._reach_methods()

    def _code(self, code: CodeType, outer: _Names, title: str) -> None:
        reading = read(code)
        self.codes[code] = reading.changing_calls
        if _DATACLASS_CODE in code.co_qualname:
            return
        names = {**outer, **reading.bound}
        exempt = [use.whole for use in reading.uses if use.is_called and self._is_side_effect(use, names)]
        uses = [use for use in reading.uses if not any(span.covers(use.whole) for span in exempt)]
        for use in uses:
            self._attributes.update(use.attributes)
            self._judge(use, names, code, title)
        if _WRAPS_WHAT_GROUPS_RAISE:
            self._judge_groups(code, title)
        for nested in _reached(code, reading, uses, exempt):
            self._code(nested.code, names, title)

    def _judge(self, use: Use, names: _Names, code: CodeType, title: str) -> None:
        base = self._value(use, names)
        _, value, rule = self._resolve(use, names)
        if base is _MISSING:
            self.misses_something = True
        ours = [found for found in (base, value) if self._is_ours(found)]
        if (rule is None and not ours) or self._is_accepted(use, code):
            return
        if rule is not None:
            self.refusals.append(NotAllowedInWorkflow(rule.what, rule.instead, self._where(use.span, code, title)))
        for found in ours:
            self._reach(found)

    def _judge_groups(self, code: CodeType, title: str) -> None:
        for span in {span.line: span for span in raised_in_groups(code)}.values():
            if not is_accepted(code.co_filename, {span.line, span.end_line}, self._module):
                where = self._where(span, code, title)
                self.refusals.append(NotAllowedInWorkflow(_IN_A_GROUP, _OUT_OF_IT, where, _OTHER_PYTHONS))

    def _is_accepted(self, use: Use, code: CodeType) -> bool:
        return is_accepted(code.co_filename, {use.span.line, use.span.end_line, use.whole.end_line}, self._module)

    def _where(self, span: Span, code: CodeType, title: str) -> str:
        is_own = title == self._workflow.fn.__qualname__
        reached = "" if is_own else f", reached by the workflow {self._workflow.name!r}"
        return f"{code.co_filename}:{span.line} in {title}{reached}"

    # What a use stands for

    def _is_side_effect(self, use: Use, names: _Names) -> bool:
        path, value, _ = self._resolve(use, names)
        return path in SIDE_EFFECTS or path_of(value) in SIDE_EFFECTS

    def _resolve(self, use: Use, names: _Names) -> tuple[str, object, LintRule | None]:
        """The full name as far as modules and classes tell it, the object if it is there, and the rule it breaks."""
        value = self._value(use, names)
        path = ""
        if type(value) is Imported:
            path, value = value.path, loaded(value.path) or _UNKNOWN
        rule = rule_of(path, value)
        for name in use.attributes:
            if rule is not None and rule.when == "named":
                break
            path = f"{path_of(value) or path}.{name}"
            value = _attribute(value, name)
            rule = rule_of(path, value)
        return path, value, rule if rule is not None and _breaks(use, rule) else None

    def _value(self, use: Use, names: _Names) -> object:
        if use.scope == "global":
            known = self._module.get(use.name, _MISSING)
            return vars(builtins).get(use.name, _MISSING) if known is _MISSING else known
        return names.get(use.name, _UNKNOWN)

    # What else it reaches

    def _is_ours(self, value: object) -> bool:
        return self._class_of(value) is not None or any(fn.__globals__ is self._module for fn in _functions(value))

    def _class_of(self, value: object) -> type | None:
        """The class, or the class of the object, if it is of the workflow's module."""
        kind: Any = value if issubclass(type(value), type) else type(value)
        return kind if kind.__module__ == self._module.get("__name__") else None

    def _reach(self, value: object) -> None:
        """Go on in functions and classes of the same module; an activity or a workflow is neither."""
        for fn in _functions(value):
            if fn.__globals__ is self._module and fn.__code__ not in self.codes:
                self._code(fn.__code__, dict(_captured(fn)), fn.__qualname__)
        if (kind := self._class_of(value)) is not None:
            self._classes[kind] = None

    def _reach_methods(self) -> None:
        """The methods of reached classes whose names are used somewhere, and those that need no name to be called."""
        size = -1
        while size != (size := len(self.codes) + len(self._classes) + len(self._attributes)):
            members = [item for kind in self._classes for owner in kind.__mro__ for item in vars(owner).items()]
            for name, member in members:
                if name in self._attributes or (name.startswith("__") and name.endswith("__")):
                    self._reach(member)


def _reached(code: CodeType, reading: Reading, uses: list[Use], exempt: list[Span]) -> Iterator[Nested]:
    """The nested code that may run as part of the workflow: not what only `side_effect` gets."""
    is_class_body = not code.co_flags & inspect.CO_OPTIMIZED
    used = {use.name for use in uses}
    for nested in reading.nested:
        if nested.name in used or (
            (nested.name is None or is_class_body) and not any(span.covers(nested.span) for span in exempt)
        ):
            yield nested


def _breaks(use: Use, rule: LintRule) -> bool:
    if rule.when == "called without arguments":
        return use.call is not None and not use.call.has_arguments
    return use.is_called or rule.when == "named"


# Looking at objects without asking them: what a user's object does when asked is not ours to start.


def _attribute(owner: object, name: str) -> object:
    if issubclass(type(owner), ModuleType):
        return vars(owner).get(name, _UNKNOWN)
    if issubclass(type(owner), type):
        return inspect.getattr_static(owner, name, _UNKNOWN)
    return _UNKNOWN


def _captured(fn: FunctionType) -> Iterator[tuple[str, object]]:
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            yield name, _MISSING


def _functions(value: Any) -> Iterator[FunctionType]:
    """The functions behind a function, a method, a property or a wrapper of the standard library."""
    kind = type(value)
    if kind is FunctionType:
        yield value
        yield from _functions(vars(value).get("__wrapped__"))
    elif kind in {staticmethod, classmethod, MethodType}:
        yield from _functions(value.__func__)
    elif kind in {functools.partial, functools.partialmethod, functools.cached_property}:
        yield from _functions(value.func)
    elif kind is _CACHED:
        yield from _functions(value.__wrapped__)
    elif kind is property:
        yield from _functions(value.fget)
