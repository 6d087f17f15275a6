"""Decoders: JSON -> values of one annotation.

In:   an annotation.
Out:  a decoder for it; TypeError when no value of it could be restored.
msgspec decodes; what it has no way for is put together here of parts it has: unions
whose members JSON cannot tell apart by kind, and dataclasses with such fields.
"""

import dataclasses
import inspect
import types
import typing
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import reduce
from operator import or_
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, Union, get_args, get_origin
from uuid import UUID

import msgspec
import msgspec.inspect

from perdure.codec.wire import encode, is_textual, knows_names

Decoder: TypeAlias = "msgspec.json.Decoder[Any]"

# Beside enums and paths and the like, the types whose values msgspec writes as text.
TEXTS = frozenset({bytes, bytearray, datetime, date, time, timedelta, Decimal, UUID})

# What JSON has.
JSON_TYPES = (str, int, float, bool, NoneType, list, dict)


def decoder_of(annotation: Any) -> Decoder:
    """A decoder for values of this annotation."""
    try:
        return _decoder(annotation)
    except RecursionError:
        raise TypeError("it is an alias that refers to itself; use a dataclass, a struct or a model") from None
    except TypeError as error:
        try:
            return _decoder(_readable(annotation))
        except TypeError:
            raise error from None


def _decoder(annotation: Any) -> Decoder:
    return msgspec.json.Decoder(annotation, dec_hook=_from_json)


def _from_json(kind: Any, value: Any) -> object:
    """What msgspec does not know."""
    if kind is object:
        return value
    if hasattr(kind, "restored_from"):
        return kind.restored_from(value)
    if hasattr(kind, "model_validate_json"):
        names = {"by_alias": True, "by_name": True} if knows_names(kind) else {}
        return kind.model_validate_json(encode(value), **names)
    if isinstance(kind, type) and is_textual(kind) and type(value) is str:
        return kind(value)
    if isinstance(value, get_origin(kind) or kind):
        return value
    raise NotImplementedError(f"a {getattr(kind, '__name__', kind)} cannot be restored from JSON")


def unreadable(annotation: Any) -> str | None:
    """Why nothing that JSON has can become a value of this class; None when something can."""
    if not isinstance(annotation, type) or get_origin(annotation) is not None or is_textual(annotation):
        return None
    if hasattr(annotation, "restored_from") or hasattr(annotation, "model_validate_json"):
        return None
    try:
        is_unknown = isinstance(msgspec.inspect.type_info(annotation), msgspec.inspect.CustomType)
        fits_json = any(issubclass(kind, annotation) for kind in JSON_TYPES)
    except (TypeError, NameError):
        return None
    return "use a dataclass, a struct or a model" if is_unknown and not fits_json else None


def clash(annotation: Any) -> str | None:
    """A union in the annotation that has `str` and another type whose values are text in JSON, if there is one.

    Which of the two a text becomes would depend on what it says. Fields of classes are not looked at.
    """
    members = _members(annotation)
    if str in members:
        other = next((member for member in members if _becomes_text(member)), None)
        if other is not None:
            return f"{other.__name__} and str"
    inner = () if get_origin(annotation) is Literal else (*members, *get_args(annotation))
    return next((found for each in inner if each is not annotation and (found := clash(each))), None)


def _members(annotation: Any) -> tuple[Any, ...]:
    if isinstance(annotation, typing.TypeVar):
        return annotation.__constraints__
    return get_args(annotation) if get_origin(annotation) in {Union, types.UnionType} else ()


def _becomes_text(kind: Any) -> bool:
    if not isinstance(kind, type) or get_origin(kind) is not None:
        return False
    if issubclass(kind, Enum):
        return any(isinstance(member.value, str) for member in kind)
    return kind in TEXTS or is_textual(kind)


def _is_readable(annotation: Any) -> bool:
    try:
        _decoder(annotation)
    except TypeError:
        return False
    return True


def _readable(annotation: Any) -> Any:
    """The annotation, with stand-ins for those of its parts that msgspec has no way for."""
    if _is_readable(annotation):
        return annotation
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is None:
        return _readable_name(annotation)
    if origin in {Union, types.UnionType}:
        return _union([_readable(member) for member in args])
    if origin is Literal:
        return _union([_literal(value) for value in args])
    if origin is Annotated:
        return Annotated[(_readable(args[0]), *args[1:])]
    return origin[tuple(arg if arg is ... else _readable(arg) for arg in args)]


def _readable_name(annotation: Any) -> Any:
    """What a single name stands for: a class, a NewType, a type alias, a type variable."""
    if dataclasses.is_dataclass(annotation):
        return _stand_in(Assembled, kind=annotation)
    if isinstance(annotation, typing.TypeVar) and annotation.__constraints__:
        return _union([_readable(member) for member in annotation.__constraints__])
    if annotation is typing.LiteralString:
        return str
    for attribute in ("__supertype__", "__value__"):
        if hasattr(annotation, attribute):
            return _readable(getattr(annotation, attribute))
    raise TypeError(f"{annotation} is beyond us")


def _union(members: list[Any]) -> Any:
    union = reduce(or_, members) if len(members) > 1 else members[0]
    return union if _is_readable(union) else _stand_in(Choice, members=tuple(members))


def _literal(value: object) -> Any:
    return Literal[value] if _is_readable(Literal[value]) else _stand_in(Exactly, value=value)


class _AcceptsAnything(type):
    def __instancecheck__(cls, value: object) -> bool:
        """Msgspec asks whether the hook gave what was wanted; it did, though of another type."""
        return True


class StandIn(metaclass=_AcceptsAnything):
    """A type made for msgspec's sake, in the place of one it cannot decode."""

    @classmethod
    def restored_from(cls, value: Any) -> object:
        """The value, made of decoded JSON."""
        raise NotImplementedError


def _stand_in(base: type[StandIn], **attributes: object) -> Any:
    return _AcceptsAnything(base.__name__, (base,), attributes)


class Choice(StandIn):
    """One of several types: the first that says all of the JSON again, or else the first that takes it."""

    members: ClassVar[tuple[Any, ...]]
    _decoders: ClassVar[list[Decoder] | None] = None

    @classmethod
    def restored_from(cls, value: Any) -> object:
        if cls._decoders is None:
            cls._decoders = [_decoder(member) for member in cls.members]
        data = encode(value)
        takers = []
        for decoder in cls._decoders:
            try:
                taken = decoder.decode(data)
                if msgspec.json.decode(encode(taken)) == value:
                    return taken
            except Exception:  # noqa: BLE001, S112 - whatever it raises, this is not the one
                continue
            takers.append(taken)
        if not takers:
            raise ValueError("it fits none of the types of the union")
        return takers[0]


class Exactly(StandIn):
    """One value, such as the enum member of a Literal."""

    value: ClassVar[Any]

    @classmethod
    def restored_from(cls, value: Any) -> object:
        if type(cls.value)(value) is not cls.value:
            raise ValueError(f"it is not {cls.value!r}")
        return cls.value


class Assembled(StandIn):
    """A dataclass, made field by field; as msgspec does it, without its constructor."""

    kind: ClassVar[Any]
    _decoders: ClassVar[dict[str, Decoder] | None] = None

    @classmethod
    def restored_from(cls, value: Any) -> object:
        if not isinstance(value, dict):
            raise ValueError(f"Expected `object`, got `{type(value).__name__}`")  # noqa: TRY004 - msgspec adds the place to it
        made = object.__new__(cls.kind)
        for field in dataclasses.fields(cls.kind):
            object.__setattr__(made, field.name, cls._field(field, value))
        # What takes more than the fields can only run when the object is first made.
        initialise = getattr(made, "__post_init__", None)
        if initialise is not None and not inspect.signature(initialise).parameters:
            initialise()
        return made

    @classmethod
    def _field(cls, field: "dataclasses.Field[Any]", given: dict[str, Any]) -> object:
        if cls._decoders is None:
            hints = typing.get_type_hints(cls.kind, include_extras=True)
            names = [each.name for each in dataclasses.fields(cls.kind)]
            cls._decoders = {name: decoder_of(hints[name]) for name in names}
        if field.name in given:
            return cls._decoders[field.name].decode(encode(given[field.name]))
        if field.default is not dataclasses.MISSING:
            return field.default
        if field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
        raise ValueError(f"Object missing required field `{field.name}`")
