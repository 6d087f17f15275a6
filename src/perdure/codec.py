"""Python values <-> JSON, never pickle.

In:   values and the annotations they travel under.
Out:  JSON bytes, and the value as it will be restored from them.
What is handed to a workflow live is always what a replay would restore; a value
that could not be restored is refused where it is made. Knows nothing of runs.
"""

import inspect
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import NoneType
from typing import Any, TypeAlias

import msgspec

from perdure.errors import BadArguments, BadValue, ValueTooLarge

LARGEST_VALUE = 2 * 1024 * 1024
PLAIN = frozenset({str, int, bool, NoneType})

Raw = msgspec.Raw


def _to_json(value: object) -> object:
    """What msgspec does not know: pydantic models speak for themselves."""
    dump = getattr(value, "model_dump", None)
    if inspect.iscoroutine(value):
        raise NotImplementedError("it is a coroutine; is an `await` missing?")
    if dump is None:
        raise NotImplementedError(f"a {type(value).__name__} cannot be written as JSON")
    return dump(mode="json")


def _from_json(kind: type, value: object) -> object:
    if kind is object:
        return value
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise NotImplementedError(f"a {kind.__name__} cannot be restored from JSON")
    return validate(value)


_encoder = msgspec.json.Encoder(enc_hook=_to_json)
_encode = _encoder.encode


def dump(value: object, where: str) -> bytes:
    """The value as JSON; BadValue says at which place it could not be."""
    try:
        data = _encoder.encode(value)
    except RecursionError:
        raise BadValue(where, "the value is nested too deeply or contains itself") from None
    except UnicodeEncodeError:
        raise BadValue(where, "a string holds half a surrogate pair, which is not text") from None
    except Exception as error:  # noqa: BLE001 - a value's own code may raise anything
        raise BadValue(where, str(error) or type(error).__name__) from None
    if len(data) > LARGEST_VALUE:
        raise ValueTooLarge(where, len(data), LARGEST_VALUE)
    # JSON has no NaN; the encoder would silently write null for it.
    if b"null" in data:
        _refuse_nan(value, where)
    return data


def load(data: bytes) -> object:
    """JSON as plain Python."""
    return msgspec.json.decode(data)


def _refuse_nan(value: object, where: str) -> None:
    match value:
        case float() if not math.isfinite(value):
            raise BadValue(where, f"{value} has no place in JSON; use None or a string")
        case str() | bytes() | None:
            return
        case Mapping():
            for key, item in value.items():
                _refuse_nan(item, f"{where}[{key!r}]")
        case Sequence() | set() | frozenset():
            for item in value:
                _refuse_nan(item, where)
        case _:
            for name, item in _fields(value):
                _refuse_nan(item, f"{where}.{name}")


def _fields(value: object) -> list[tuple[str, object]]:
    if isinstance(value, msgspec.Struct):
        return [(name, getattr(value, name)) for name in value.__struct_fields__]
    return list(vars(value).items()) if hasattr(value, "__dict__") else []


def _refuse_unplain(value: object, where: str) -> None:
    """Without an annotation only what JSON itself restores may travel."""
    if type(value) in PLAIN or type(value) is float:
        return
    if type(value) is list:
        for item in value:
            _refuse_unplain(item, where)
    elif type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise BadValue(where, f"the key {key!r} would come back as a string; annotate the type")
            _refuse_unplain(item, where)
    else:
        name = type(value).__name__
        if inspect.iscoroutine(value):
            raise BadValue(where, "it is a coroutine; is an `await` missing?")
        raise BadValue(where, f"{name} values come back as {name} only under an annotation; annotate the type")


class ValueType:
    """One annotation, compiled: writes values and restores them."""

    def __init__(self, annotation: object, unresolved: str | None = None) -> None:
        self.annotation = annotation
        self.unresolved = unresolved
        self.is_plain = annotation in (Any, object, inspect.Parameter.empty)
        # Values of exactly these types are restored as themselves; no need to look.
        self.exact = PLAIN if self.is_plain else frozenset({annotation} & PLAIN if _hashable(annotation) else ())
        if annotation is None:
            self.exact = frozenset({NoneType})

    @cached_property
    def _decoder(self) -> "msgspec.json.Decoder[Any]":
        kind = Any if self.is_plain else self.annotation
        return msgspec.json.Decoder(kind, dec_hook=_from_json)

    def record(self, value: object, where: str) -> tuple[bytes, object]:
        """What is written, and what the reader of it will get."""
        if type(value) in self.exact:
            try:
                data = _encode(value)
            except UnicodeEncodeError:
                return dump(value, where), value
            if len(data) <= LARGEST_VALUE:
                return data, value
        if self.is_plain:
            try:
                _refuse_unplain(value, where)
            except BadValue as refused:
                if self.unresolved is None:
                    raise
                raise BadValue(where, f"{refused.trouble}, so that it can be resolved: {self.unresolved}") from None
            except RecursionError:
                raise BadValue(where, "the value is nested too deeply or contains itself") from None
        data = dump(value, where)
        return data, self.restore(data, where)

    def restore(self, data: bytes | Raw, where: str) -> object:
        """The value as annotated; BadValue when it does not fit."""
        try:
            return self._decoder.decode(data)
        except RecursionError:
            raise BadValue(where, "the value is nested too deeply") from None
        except (msgspec.DecodeError, NotImplementedError) as error:
            raise BadValue(where, f"{error} (annotated as {_shown(self.annotation)})") from None
        except TypeError as error:
            raise BadValue(
                where, f"values annotated as {_shown(self.annotation)} cannot be restored: {error}"
            ) from None
        except Exception as error:  # noqa: BLE001 - a value's own code may raise anything
            raise BadValue(where, str(error) or type(error).__name__) from None


def _hashable(annotation: object) -> bool:
    return isinstance(annotation, type)


def _shown(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


# A call's arguments: as written, and by position and keyword as they will be restored.
Arguments: TypeAlias = tuple[bytes, tuple[Any, ...], dict[str, Any]]


class Signature:
    """A function's parameters and result, compiled once: binds, writes and restores arguments."""

    def __init__(self, fn: Callable[..., object], name: str) -> None:
        self.name = name
        self._signature = inspect.signature(fn)
        self._fn = fn
        kinds = [p.kind for p in self._signature.parameters.values()]
        self._is_simple = all(k is inspect.Parameter.POSITIONAL_OR_KEYWORD for k in kinds)

    @cached_property
    def _hints(self) -> tuple[dict[str, Any], str | None]:
        try:
            return typing.get_type_hints(self._fn, include_extras=True), None
        except NameError as error:
            return {}, str(error)

    def _type_of(self, name: str) -> ValueType:
        hints, unresolved = self._hints
        return ValueType(hints.get(name, Any), unresolved)

    @cached_property
    def parameters(self) -> dict[str, ValueType]:
        """The parameters' types by name, in order; `*args` is a list, `**kwargs` a dict."""
        types = {}
        for name, parameter in self._signature.parameters.items():
            element = self._type_of(name)
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                types[name] = ValueType(tuple[element.annotation, ...])  # type: ignore[name-defined]  # built at run time
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                types[name] = ValueType(dict[str, element.annotation])  # type: ignore[name-defined]  # built at run time
            else:
                types[name] = element
        return types

    @cached_property
    def result(self) -> ValueType:
        return self._type_of("return")

    @cached_property
    def _exact(self) -> list[tuple[str, frozenset[object]]] | None:
        """For calls by position only: each parameter's name, and the types that need no second look."""
        return [(name, kind.exact) for name, kind in self.parameters.items()] if self._is_simple else None

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
                    data = _encode(named)
                except UnicodeEncodeError:
                    return self._record_slowly(args, kwargs)
                if len(data) <= LARGEST_VALUE:
                    return data, args, kwargs
        return self._record_slowly(args, kwargs)

    def _record_slowly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        try:
            bound = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise BadArguments(self.name, f"{error}; it takes {self._signature}") from None
        written = {}
        for name, value in bound.items():
            where = f"{self.name}, argument {name!r}"
            data, _ = self.parameters[name].record(value, where)
            written[name] = Raw(data)
        data = dump(written, self.name)
        args, kwargs = self.restore(data)
        return data, args, kwargs

    def restore(self, data: bytes | Raw) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and keyword arguments to call the function with."""
        given = msgspec.json.decode(data, type=dict[str, Raw])
        unknown = given.keys() - self.parameters.keys()
        if unknown:
            raise BadArguments(
                self.name, f"it has no parameter {', '.join(sorted(unknown))}; it takes {self._signature}"
            )
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        by_keyword = False
        for name, parameter in self._signature.parameters.items():
            if name not in given:
                by_keyword = True
                continue
            value = self.parameters[name].restore(given[name], f"{self.name}, argument {name!r}")
            match parameter.kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    args.extend(typing.cast("tuple[Any, ...]", value))
                case inspect.Parameter.VAR_KEYWORD:
                    kwargs.update(typing.cast("dict[str, Any]", value))
                case inspect.Parameter.KEYWORD_ONLY:
                    kwargs[name] = value
                case inspect.Parameter.POSITIONAL_OR_KEYWORD if by_keyword:
                    kwargs[name] = value
                case _:
                    args.append(value)
        return tuple(args), kwargs

    def from_json(self, data: bytes) -> Arguments:
        """Arguments given as a JSON object by name or an array in order, checked like a call."""
        try:
            given = msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            raise BadArguments(self.name, f"the arguments are not JSON: {error}") from None
        if isinstance(given, list):
            names = list(self.parameters)
            if len(given) > len(names):
                raise BadArguments(self.name, f"{len(given)} given; it takes {self._signature}")
            given = dict(zip(names, given, strict=False))
        if not isinstance(given, dict):
            raise BadArguments(self.name, "give the arguments as a JSON object by name or an array in order")
        data = _encoder.encode(given)
        args, kwargs = self.restore(data)
        return self.record(args, kwargs)
