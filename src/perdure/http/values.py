"""Values of users on their way through the server: checked, and passed on as the bytes that came.

In:   raw JSON of a request.
Out:  the same bytes, or BadValue; runs and their parts as the JSON that every route speaks.
"""

from typing import Any

import msgspec

from perdure.codec.wire import DEEPEST_VALUE, LARGEST_VALUE
from perdure.errors import BadValue, ValueTooLarge
from perdure.views.run import RunInfo


def absent() -> Any:
    """In the place of a value that was not given: no JSON at all, which a value never is."""
    return msgspec.field(default_factory=msgspec.Raw)


def checked_value(given: msgspec.Raw, where: str) -> msgspec.Raw:
    """A value as it came, null when none was given; BadValue when no workflow could read it."""
    data = bytes(given) or b"null"
    if len(data) > LARGEST_VALUE:
        raise ValueTooLarge(where, len(data), LARGEST_VALUE)
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue(where, f"it cannot be read: {error}") from None
    # Most are seen not to be at once.
    if data.count(b"[") + data.count(b"{") > DEEPEST_VALUE and _depth(value) > DEEPEST_VALUE:
        raise BadValue(where, f"it is nested too deeply, the limit is {DEEPEST_VALUE} levels")
    return msgspec.Raw(data)


def _depth(value: Any) -> int:
    depth = 0
    level = [value]
    while level and depth <= DEEPEST_VALUE:
        depth += 1
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
        ]
    return depth


def run_json(info: RunInfo) -> msgspec.Raw:
    """A run as `describe()` tells it, plus its id."""
    data = msgspec.json.encode(info)
    return msgspec.Raw(b'{"id":' + msgspec.json.encode(info.workflow_id) + b"," + data[1:])
