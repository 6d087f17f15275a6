"""Loaded: classes by their names, among what this process has imported already.

In:   a class; or the name of one, from a record that anybody may have written.
Out:  its name; or the class, if it is there.
Imports nothing, and runs nobody's code to look: not even a module's `__getattr__`.
"""

import sys
from functools import cache
from pathlib import Path
from typing import Any


def name_of(kind: type) -> str:
    """The name by which another process finds the class, too."""
    module = kind.__module__
    return f"{(_main_name() or module) if module == '__main__' else module}.{kind.__qualname__}"


@cache
def _main_name() -> str | None:
    """What the started program is called where it is imported instead."""
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return None if file is None else Path(file).stem


def class_named(name: str) -> type | None:
    """The class, if it is loaded; nested classes and modules with dots are both possible."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        found: Any = _module(".".join(parts[:cut]))
        for part in parts[cut:]:
            found = _attributes(found).get(part)
        if isinstance(found, type):
            return found
    return None


def _module(name: str) -> object:
    return sys.modules.get("__main__" if name == _main_name() else name)


def _attributes(place: Any) -> Any:
    """What a module or a class holds itself; asking it for an attribute could run its code."""
    try:
        return object.__getattribute__(place, "__dict__")
    except AttributeError:
        return {}
