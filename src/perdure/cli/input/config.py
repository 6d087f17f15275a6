"""The config file: what holds where neither a flag nor the environment says anything.

In:   the file PERDURE_CONFIG names, ./perdure.toml, or [tool.perdure] of ./pyproject.toml; the first that is there.
Out:  defaults for the options of every command.
"""

import os
from importlib import import_module
from pathlib import Path

from perdure.cli.output.errors import Mistake
from perdure.cli.output.suggestions import did_you_mean

KINDS: dict[str, type] = {"url": str, "namespace": str, "modules": list}
EXAMPLE = 'url = "sqlite:///shop.db"'


def defaults() -> dict[str, object]:
    """What the config file says about options."""
    return {name: value for name, value in _settings().items() if name != "modules"}


def configured_modules() -> list[str]:
    """The modules of a worker, as far as the config file names any."""
    found = _settings().get("modules", [])
    return found if isinstance(found, list) else []


def _settings() -> dict[str, object]:
    """What the config file sets; nothing when there is none."""
    named = os.environ.get("PERDURE_CONFIG")
    if named:
        return _checked(_table(Path(named), ()), named)
    for file, path in (("perdure.toml", ()), ("pyproject.toml", ("tool", "perdure"))):
        # Most projects have a pyproject.toml, and few of them speak of us: it is read as TOML only when it does.
        if Path(file).is_file() and (not path or b"tool.perdure" in Path(file).read_bytes()):
            return _checked(_table(Path(file), path), file)
    return {}


def _table(file: Path, path: tuple[str, ...]) -> object:
    toml = import_module("tomllib")
    try:
        found: object = toml.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Mistake(f"the config file {str(file)!r} cannot be read: {error.strerror}; see PERDURE_CONFIG") from None
    except ValueError as error:
        raise Mistake(f"the config file {str(file)!r} is not TOML: {error}; for example: {EXAMPLE}") from None
    for key in path:
        found = found.get(key, {}) if isinstance(found, dict) else {}
    return found


def _checked(found: object, file: str) -> dict[str, object]:
    if not isinstance(found, dict):
        raise Mistake(f"the config file {file!r} has no table of settings; for example: {EXAMPLE}")
    for key, value in found.items():
        kind = KINDS.get(key)
        if kind is None:
            raise Mistake(
                f"the config file {file!r} sets {key!r}, which does not exist{did_you_mean(key, KINDS)}; "
                f"there are {', '.join(KINDS)}"
            )
        if not _fits(value, kind):
            wanted = "a text" if kind is str else "an array of texts"
            raise Mistake(f"the config file {file!r} sets {key} to {value!r}; it takes {wanted}")
    return dict(found)


def _fits(value: object, kind: type) -> bool:
    if kind is list:
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    return isinstance(value, kind)
