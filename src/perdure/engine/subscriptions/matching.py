"""Which runs a subscriber is told of: those that match a filter, and those that did."""

from perdure.kernel.filters import Filter, RunFields, attributes_of, conjuncts, fields_of, matches
from perdure.stores.records import RunRow

# What never changes in the life of a run.
LASTING = {"id", "run_id", "workflow", "queue", "entity_id", "correlation_id", "parent_id", "created_at"}


class Selection:
    """The runs of a namespace that match a filter."""

    def __init__(self, namespace: str, filter: Filter) -> None:
        self.namespace = namespace
        self.filter = filter
        parts = conjuncts(filter)
        self._lasting = [part for part in parts if fields_of(part) <= LASTING and not attributes_of(part)]

    def matches(self, row: RunRow, fields: RunFields) -> bool:
        """Whether the run is one of them."""
        return row.namespace == self.namespace and matches(self.filter, fields)

    def may_have_matched(self, row: RunRow, fields: RunFields) -> bool:
        """Whether the run may have been one of them, as far as that can be told from what lasts."""
        return row.namespace == self.namespace and all(matches(part, fields) for part in self._lasting)
