"""A function's signature, compiled: binds, writes and restores the arguments of its calls.

In:   a function; calls of it, or arguments as JSON.
Out:  one JSON object of arguments by name, and the arguments as they will be restored.

Arguments that a call leaves out are written as well, with the defaults of that moment, and every reader
gets copies of its own. Calls that were written without them get the defaults of the code that reads them.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from inspect import Parameter
from typing import Any, TypeAlias, cast

import msgspec

from perdure.codec.annotations import Hints
from perdure.codec.values import ValueType
from perdure.codec.wire import LARGEST_VALUE, encode, encoded
from perdure.errors import BadArguments, BadValue

# A call's arguments: as written, and by position and keyword as they will be restored.
Arguments: TypeAlias = tuple[bytes, tuple[Any, ...], dict[str, Any]]

Raw = msgspec.Raw
_by_name = msgspec.json.Decoder(dict[str, Raw])
_in_order = msgspec.json.Decoder(list[Raw])


class Signature:
    """A function's parameters and result, compiled once: binds, writes and restores arguments."""

    def __init__(self, fn: Callable[..., object], name: str) -> None:
        self.name = name
        self._signature = inspect.signature(fn)
        self._hints = Hints(fn)
        kinds = [p.kind for p in self._signature.parameters.values()]
        self._is_simple = all(k is Parameter.POSITIONAL_OR_KEYWORD for k in kinds)

    @cached_property
    def parameters(self) -> dict[str, ValueType]:
        """The parameters' types by name, in order; `*args` is a tuple, `**kwargs` a dict."""
        types = {}
        for name, parameter in self._signature.parameters.items():
            kind, unresolved = self._hints.of(name)
            if parameter.kind is Parameter.VAR_POSITIONAL:
                kind = tuple[kind, ...]  # type: ignore[valid-type]  # built at run time
            elif parameter.kind is Parameter.VAR_KEYWORD:
                kind = dict[str, kind]  # type: ignore[valid-type]  # built at run time
            types[name] = ValueType(kind, unresolved)
        return types

    @cached_property
    def defaults(self) -> dict[str, Raw]:
        """The parameters' defaults by name, as they are written."""
        return {name: Raw(encoded(value, self._where_default(name))) for name, value in self._default_values.items()}

    @property
    def _default_values(self) -> dict[str, Any]:
        parameters = self._signature.parameters.values()
        return {each.name: each.default for each in parameters if each.default is not Parameter.empty}

    def check(self) -> None:
        """Refuse what no call could rely on: types that JSON cannot tell apart, defaults that would not come back.

        An annotation that is not known yet, since its class is defined further down, is left out.
        """
        for name in self._signature.parameters:
            ValueType(*self._hints.of(name)).refuse_clashes(self._where(name))
        ValueType(*self._hints.of("return")).refuse_clashes(f"{self.name}, its result")
        for name, value in self._default_values.items():
            self._check_default(name, value)

    def _check_default(self, name: str, value: object) -> None:
        kind = ValueType(*self._hints.of(name))
        try:
            encoded(value, self._where_default(name))
            if kind.unresolved is None and kind.is_known:
                kind.record(value, self._where_default(name))
        except BadValue as refused:
            trouble = str(refused).removeprefix(f"{refused.where}: ")
            raise BadValue(refused.where, f"{trouble}; {_remedy(kind, value)}") from None

    @cached_property
    def result(self) -> ValueType:
        return ValueType(*self._hints.of("return"))

    @cached_property
    def _exact(self) -> list[tuple[str, frozenset[Any]]] | None:
        """For calls by position only: each parameter's name, and the types that need no second look."""
        return [(name, kind.exact) for name, kind in self.parameters.items()] if self._is_simple else None

    @cached_property
    def _rests(self) -> dict[int, tuple[Any, ...]]:
        """For calls by position that leave plain defaults out: what is left out, by how many arguments are given."""
        rests: dict[int, tuple[Any, ...]] = {}
        rest: tuple[Any, ...] = ()
        values, exact = self._default_values, self._exact or []
        for given in reversed(range(len(exact))):
            name, types = exact[given]
            if type(values.get(name, Parameter.empty)) not in types:
                break
            rest = rests[given] = (values[name], *rest)
        return rests

    def takes(self, name: str) -> bool:
        """Whether an argument may be given by this name."""
        parameters = self._signature.parameters
        return name in parameters or any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())

    def record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """Bind and write a call's arguments; BadArguments or BadValue when they do not fit."""
        exact = self._exact
        if not kwargs and exact is not None and len(args) == len(exact):
            named: dict[str, object] = {}
            for name, types in exact:
                value = args[len(named)]
                if type(value) not in types:
                    break
                named[name] = value
            else:
                try:
                    data = encode(named)
                except Exception:  # noqa: BLE001 - which argument it is, and why, is found out slowly
                    return self._record_slowly(args, kwargs)
                if len(data) <= LARGEST_VALUE:
                    return data, args, kwargs
        return self._record_slowly(args, kwargs)

    def _record_slowly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        rest = None if kwargs else self._rests.get(len(args))
        if rest:
            return self.record(args + rest, kwargs)
        written = {}
        restored = {}
        given = self._bound(args, kwargs)
        for name, kind in self.parameters.items():
            if name in given:
                data, restored[name] = kind.record(given[name], self._where(name))
                written[name] = Raw(data)
            elif name in self.defaults:
                written[name] = self.defaults[name]
                restored[name] = kind.restore(written[name], self._where_default(name))
        return encoded(written, self.name), *self._placed(restored)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if self._is_simple and not kwargs and len(args) == len(self.parameters):
            return dict(zip(self.parameters, args, strict=True))
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise BadArguments(self.name, f"{error}; it takes {self._signature}") from None

    def _where(self, name: str) -> str:
        return f"{self.name}, argument {name!r}"

    def _where_default(self, name: str) -> str:
        return f"{self.name}, default of {name!r}"

    def restore(self, data: bytes | Raw) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and keyword arguments to call the function with."""
        return self._restored(_by_name.decode(data))

    def _restored(self, given: dict[str, Raw]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        types = self.parameters
        unknown = given.keys() - types.keys()
        if unknown:
            raise BadArguments(
                self.name, f"it has no parameter {', '.join(sorted(unknown))}; it takes {self._signature}"
            )
        if len(given) < len(types) and self.defaults:
            given = {**self.defaults, **given}
        return self._placed({name: types[name].restore(value, self._where(name)) for name, value in given.items()})

    def _placed(self, values: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Values by parameter, as the function is called with them."""
        if self._is_simple and len(values) == len(self.parameters):
            return tuple(values[name] for name in self.parameters), {}
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        by_keyword = False
        for name, parameter in self._signature.parameters.items():
            if name not in values:
                by_keyword = True
                continue
            match parameter.kind:
                case Parameter.VAR_POSITIONAL:
                    args.extend(cast("tuple[Any, ...]", values[name]))
                case Parameter.VAR_KEYWORD:
                    kwargs.update(cast("dict[str, Any]", values[name]))
                case Parameter.KEYWORD_ONLY:
                    kwargs[name] = values[name]
                case Parameter.POSITIONAL_OR_KEYWORD if by_keyword:
                    kwargs[name] = values[name]
                case _:
                    args.append(values[name])
        return tuple(args), kwargs

    def from_json(self, data: bytes) -> Arguments:
        """Arguments given as a JSON object by name or an array in order, checked like a call."""
        try:
            is_array = isinstance(msgspec.json.decode(data), list)
            given = self._in_place(_in_order.decode(data)) if is_array else _by_name.decode(data)
        except msgspec.ValidationError:
            trouble = "give the arguments as a JSON object by name or an array in order"
            raise BadArguments(self.name, trouble) from None
        except msgspec.DecodeError as error:
            raise BadArguments(self.name, f"the arguments are not JSON: {error}") from None
        return self.record(*self._restored(given))

    def _in_place(self, items: list[Raw]) -> dict[str, Raw]:
        """Arguments given in order, by the names of their parameters."""
        given: dict[str, Raw] = {}
        left = items[::-1]
        for name, parameter in self._signature.parameters.items():
            if not left or parameter.kind is Parameter.VAR_KEYWORD:
                break
            if parameter.kind is Parameter.VAR_POSITIONAL:
                given[name] = Raw(encode(left[::-1]))
                left = []
            else:
                given[name] = left.pop()
        if left:
            raise BadArguments(self.name, f"{len(items)} given; it takes {self._signature}")
        return given


def merged_arguments(workflow: str, signature: Signature | None, had: str, given: Mapping[str, msgspec.Raw]) -> str:
    """Recorded arguments with others in the place of those of the same name; checked as far as the code is known."""
    before = msgspec.json.decode(had, type=dict[str, msgspec.Raw])
    if signature is None and (unknown := sorted(given.keys() - before.keys())):
        raise BadArguments(workflow, f"the run has no argument {unknown[0]!r}, only {', '.join(before) or 'none'}")
    data = encode({**before, **given})
    return (data if signature is None else signature.from_json(data)[0]).decode()


def _remedy(kind: ValueType, value: object) -> str:
    if value is None:
        return f"annotate it as `{kind.shown} | None`"
    return "a default is recorded with each call: annotate its type, or use None and make the value in the function"
