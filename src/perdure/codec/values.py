"""One annotation, compiled: values of it to JSON, and back.

In:   an annotation, and values.
Out:  JSON, and what a reader of it will get; BadValue when that is not the value.
"""

import inspect
import types
import typing
from functools import cached_property
from types import NoneType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from perdure.codec.decoders import Decoder, clash, decoder_of, unreadable
from perdure.codec.roundtrip import ValueDifference, difference
from perdure.codec.roundtrip_bulk import LARGE, are_alike
from perdure.codec.wire import LARGEST_VALUE, TOO_DEEP, encode, encoded, odd_number
from perdure.errors import BadOption, BadValue

# A schema goes with each wait for a signal that is noted.
LONGEST_SCHEMA = 1000
# Values of exactly these types are restored as themselves; no need to look.
PLAIN: frozenset[Any] = frozenset({str, int, bool, NoneType})


class ValueType:
    """One annotation, compiled: writes values and restores them.

    `unresolved` tells why the annotation is not known, though there is one.
    """

    def __init__(self, annotation: object, unresolved: str | None = None) -> None:
        self.annotation = annotation
        self.unresolved = unresolved
        self.is_plain = _says_nothing(annotation)
        self.exact = PLAIN if self.is_plain else _exact(annotation)

    @cached_property
    def _decoder(self) -> Decoder:
        return decoder_of(Any if self.is_plain else self.annotation)

    def refuse_clashes(self, where: str) -> None:
        """BadOption when the annotation has a union whose values cannot be told apart once they are written."""
        found = clash(self.annotation)
        if found is not None:
            instead = "annotate one of them, or a dataclass with a field for each"
            raise BadOption(
                f"{where}: values of {self.shown} cannot be told apart, {found} are both text in JSON; {instead}"
            )

    def refuse_unreadable(self, where: str) -> None:
        """BadOption when no value of the annotation could ever come back; one that is not known yet is left out."""
        try:
            _ = self._decoder
            found = None if self.is_plain else unreadable(self.annotation)
        except NameError:
            return
        except TypeError as error:
            found = str(error)
        if found is not None:
            raise BadOption(f"{where}: {self.shown} is no type of values that can be restored from JSON: {found}")

    @property
    def is_known(self) -> bool:
        """Whether all that the annotation refers to is defined by now."""
        try:
            _ = self._decoder
        except NameError:
            return False
        except TypeError:
            pass  # Told when a value is to be restored.
        return True

    @property
    def shown(self) -> str:
        return _shown(self.annotation)

    @property
    def schema(self) -> bytes | None:
        """The JSON schema of what is written; None when that is not known, says nothing, or is long."""
        made_by = getattr(self.annotation, "model_json_schema", None)
        try:
            schema = msgspec.json.schema(self.annotation) if made_by is None else made_by()
            data = msgspec.json.encode(schema)
        except Exception:  # noqa: BLE001 - annotations are code, and it would only have helped
            return None
        return data if schema and len(data) <= LONGEST_SCHEMA else None

    def record(self, value: object, where: str) -> tuple[bytes, object]:
        """What is written, and what the reader of it will get."""
        if type(value) in self.exact:
            try:
                data = encode(value)
            except Exception:  # noqa: BLE001 - told below
                data = encoded(value, where)
            if len(data) <= LARGEST_VALUE:
                return data, value
        data = encoded(value, where)
        try:
            restored = self.restore(data, where)
            is_alike = len(data) > LARGE and are_alike(value, restored)
            found = None if is_alike else difference(value, restored)
        except BadValue as refused:
            raise BadValue(where, odd_number(value, data) or refused.trouble) from None
        except RecursionError:
            raise BadValue(where, TOO_DEEP) from None
        except Exception as error:  # noqa: BLE001 - a value's own code may raise anything
            raise BadValue(where, f"it cannot be compared with what would come back: {error!r}") from None
        if found is not None:
            raise BadValue(where, self._told(found))
        return data, restored

    def _told(self, found: ValueDifference) -> str:
        trouble, name = found.trouble, found.lost_type
        if name is not None and self.is_plain:
            trouble = f"{name} values come back as {name} only under an annotation; annotate the type"
        elif name is not None:
            trouble = f"{trouble}; annotate it as {name}, or pass what would come back"
        if self.unresolved is not None:
            trouble += f", so that it can be resolved: {self.unresolved}"
        return f"{trouble} - at `${found.path}`" if found.path else trouble

    def restore(self, data: bytes | msgspec.Raw, where: str) -> object:
        """The value as annotated; BadValue when it does not fit."""
        try:
            return self._decoder.decode(data)
        except RecursionError:
            raise BadValue(where, TOO_DEEP) from None
        except (msgspec.DecodeError, NotImplementedError) as error:
            raise BadValue(where, f"{error} (annotated as {_shown(self.annotation)})") from None
        except (TypeError, NameError) as error:
            raise BadValue(
                where, f"values annotated as {_shown(self.annotation)} cannot be restored: {error}"
            ) from None
        except Exception as error:  # noqa: BLE001 - a value's own code may raise anything
            raise BadValue(where, str(error) or type(error).__name__) from None


def _says_nothing(annotation: object) -> bool:
    if isinstance(annotation, typing.TypeVar):
        return annotation.__bound__ is None and not annotation.__constraints__
    return annotation in (Any, object, inspect.Parameter.empty)


def _exact(annotation: Any) -> frozenset[Any]:
    """The plain types whose values the annotation restores as themselves."""
    if annotation is None:
        return frozenset({NoneType})
    if isinstance(annotation, type):
        return frozenset({annotation}) & PLAIN
    if isinstance(annotation, typing.NewType):
        return _exact(annotation.__supertype__)
    if get_origin(annotation) is Annotated and not any(isinstance(m, msgspec.Meta) for m in annotation.__metadata__):
        return _exact(annotation.__origin__)
    if get_origin(annotation) in {Union, types.UnionType} and {*get_args(annotation)} <= PLAIN | {float}:
        return PLAIN & {*get_args(annotation)}
    return frozenset()


def _shown(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
