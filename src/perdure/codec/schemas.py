"""Schemas: whether a value is what a JSON schema asks for.

In:   a value as JSON has it, and a schema as msgspec or pydantic makes it of an annotation.
Out:  the first thing that does not fit, in words.
As much of the language as annotations need; what is not known to it is taken to fit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]

TYPES: dict[str, Callable[[object], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def misfit(value: object, schema: Schema) -> str | None:
    """What is wrong with a value; None when it fits."""
    return next(_misfits(value, schema, schema, "$"), None)


def _misfits(value: object, schema: Schema, whole: Schema, path: str) -> Iterator[str]:
    if "$ref" in schema:
        yield from _misfits(value, _referred(schema["$ref"], whole), whole, path)
    elif "anyOf" in schema:
        if all(next(_misfits(value, each, whole, path), None) is not None for each in schema["anyOf"]):
            yield _told(value, path, " or ".join(_name(each, whole) for each in schema["anyOf"]))
    elif "enum" in schema or "const" in schema:
        allowed = schema.get("enum", [schema.get("const")])
        if not any(value == each and type(value) is type(each) for each in allowed):
            yield _told(value, path, "one of " + ", ".join(map(repr, allowed)))
    elif not _is_of(value, schema.get("type")):
        yield _told(value, path, _name(schema, whole))
    elif isinstance(value, dict):
        yield from _misfits_in_object(value, schema, whole, path)
    elif isinstance(value, list):
        yield from _misfits_in_array(value, schema, whole, path)


def _misfits_in_array(value: list[object], schema: Schema, whole: Schema, path: str) -> Iterator[str]:
    first: Sequence[Schema] = schema.get("prefixItems", ())
    for number, each in enumerate(value):
        inner = first[number] if number < len(first) else schema.get("items")
        if isinstance(inner, Mapping):
            yield from _misfits(each, inner, whole, f"{path}[{number}]")


def _misfits_in_object(value: dict[str, object], schema: Schema, whole: Schema, path: str) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{name!r} is missing at {path}"
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, each in value.items():
        inner = known.get(name, others)
        if isinstance(inner, Mapping):
            yield from _misfits(each, inner, whole, f"{path}.{name}")


def _is_of(value: object, wanted: str | list[str] | None) -> bool:
    names = [wanted] if isinstance(wanted, str) else wanted or []
    return not names or any(name not in TYPES or TYPES[name](value) for name in names)


def _referred(reference: str, whole: Schema) -> Schema:
    found: Any = whole
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part, {}) if isinstance(found, Mapping) else {}
    return found if isinstance(found, Mapping) else {}


def _name(schema: Schema, whole: Schema) -> str:
    if "$ref" in schema:
        return _name(_referred(schema["$ref"], whole), whole)
    found = schema.get("title") or schema.get("type") or "something else"
    return " or ".join(found) if isinstance(found, list) else str(found)


def _told(value: object, path: str, wanted: str) -> str:
    kind = next(name for name, is_one in TYPES.items() if is_one(value))
    where = "" if path == "$" else f" at {path}"
    return f"expected {wanted}, got {kind}{where}"
