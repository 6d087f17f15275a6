"""Names in a filter that were probably mistyped.

In:   a filter as it was typed.
Out:  a warning for each attribute in it whose name is nearly that of a field.
"""

from difflib import get_close_matches

from perdure.cli.output.errors import warn
from perdure.errors import BadFilter
from perdure.kernel.filters import attributes_of, parse
from perdure.kernel.filters.syntax import FIELDS

# How like a field a name has to be: `workflw`, not `state`.
CUTOFF = 0.8


def warn_of_near_fields(where: str, params: dict[str, object] | None) -> None:
    """Any name may be an attribute, and no run has the one that was mistyped: `!=` is true of all of them then."""
    try:
        names = attributes_of(parse(where, params, now=0))
    except BadFilter:
        # Whoever is asked tells what is wrong.
        return
    for name in sorted(names):
        for field in get_close_matches(name.lower(), FIELDS, 1, CUTOFF):
            warn(f"{name!r} is no field, and is looked for among the attributes of runs (did you mean {field}?)")
