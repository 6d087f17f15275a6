"""Finding: how the runs that match a filter are found, newest first, without a look at all others.

In:   a filter, and a database that answers questions.
Out:  a page of runs, with how many were read for it; or how many match.

What every match must have leads to candidates by an index: an id, an entity, an attribute, a status. Of several leads
the one with the fewest candidates is taken, counted up to a number. Without any, all runs are walked, newest first.
Candidates are taken in bites: of each it is known how many were read, and no bite takes long.

A run_id begins with the time it was made at, which is nearly always that of the run. So a range of `created_at` is one
of run_ids; the few runs that are dated otherwise have an index of their own.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from perdure.errors import RunUnreadable
from perdure.kernel.filters import bounds_of, conjuncts, required_values
from perdure.kernel.filters.analysis import Bounds
from perdure.kernel.filters.syntax import (
    Attribute,
    Compare,
    Contains,
    Field,
    IsNull,
    Name,
    Not,
    NumberValue,
    Operator,
    TextValue,
    TruthValue,
    Value,
)
from perdure.stores.listing import FEW, Dialect, listed_keys
from perdure.stores.records import FoundRuns, RunFilter, RunQuery, RunRow
from perdure.stores.rules.filters import COLUMNS, LONGEST_INDEXED, Conditions
from perdure.stores.rules.questions import Ask, Steps, Text
from perdure.stores.rules.run_rows import each_run, run_rows_of

# So many candidates are read at once, first and at most.
FIRST_BITE, LARGEST_BITE = 200, 5000
# As many as there are.
ALL = 2**62
# A run's id is made at most so long before or after the time in its row, or the run is in the index of the others.
SLACK_MS = 1000
# Above all ids of runs.
END = chr(0x10FFFF)
IDS = {"id": "workflow_id"} | {id: id for id in ("entity_id", "correlation_id", "parent_id", "schedule")}


class Candidates(NamedTuple):
    """A query for the keys and ids of runs among which all matches are; whether it takes them in the order of a list.

    Where it does not, it must read all of them before it knows the newest.
    """

    sql: str
    parameters: dict[str, object]
    is_ordered: bool


class MatchingReads:
    """The runs that match a filter, and how many those are."""

    def __init__(self, url: str, ask: Ask, dialect: Dialect) -> None:
        self.url = url
        self.ask = ask
        self.dialect = dialect

    async def page(self, wanted: RunQuery) -> FoundRuns:
        """The newest runs that match; those that cannot be read are in their places."""
        found: list[RunRow | RunUnreadable] = []
        before, read, bite = wanted.before, 0, max(FIRST_BITE, wanted.limit)
        leads = Leads(wanted, self.dialect)
        lead = await self._chosen(leads)
        while True:
            keys = await self.ask(lambda: _keys(leads.taken(lead, before, bite)))  # noqa: B023 - asked at once
            room = wanted.limit - len(found)
            if keys:
                question = Text(*_matching(wanted, self.dialect, [key for key, _ in keys], room))
                found += await self.ask(lambda: run_rows_of(question), lambda: each_run(self.url, question))  # noqa: B023
            read += len(keys)
            if len(keys) < bite or len(found) >= wanted.limit:
                return FoundRuns(found, read)
            before, bite = keys[-1][1], min(bite * 5, LARGEST_BITE)

    async def keys(self, wanted: RunQuery) -> list[object]:
        """What all runs that match are found again by, newest first, whatever the limit."""
        leads = Leads(wanted, self.dialect)
        lead = await self._chosen(leads)
        found: list[object] = []
        before = wanted.before
        while True:
            keys = await self.ask(lambda: _keys(leads.taken(lead, before, LARGEST_BITE)))  # noqa: B023 - asked at once
            sql, parameters = _matching(wanted, self.dialect, [key for key, _ in keys], LARGEST_BITE, self.dialect.key)
            found += await self.ask(lambda: _first_column(Text(sql, parameters)))  # noqa: B023 - as above
            if len(keys) < LARGEST_BITE:
                return found
            before = keys[-1][1]

    async def among(self, wanted: RunQuery, keys: Sequence[object]) -> list[RunRow | RunUnreadable]:
        """Those that match among a few."""
        question = Text(*_matching(wanted, self.dialect, keys, len(keys)))
        return await self.ask(lambda: run_rows_of(question), lambda: each_run(self.url, question))

    async def count(self, wanted: RunQuery, by: str | None = None) -> dict[object, int]:
        """How many runs match, by the values of a field; without one there is one number."""
        leads = Leads(wanted, self.dialect)
        sql, parameters = _counting(wanted, self.dialect, by, leads, await self._chosen(leads, is_page=False))
        return await self.ask(lambda: _counted(Text(sql, parameters)))

    async def _chosen(self, leads: "Leads", *, is_page: bool = True) -> Candidates | None:
        """The lead with the fewest candidates; when all have many, for a page one that is in order, or none."""
        found = list(leads.all())
        if not found or (is_page and len(found) == 1 and found[0].is_ordered):
            return found[0] if found else None
        counts = [await self.ask(lambda: _number(leads.some(each, FEW))) for each in found]  # noqa: B023 - asked at once
        fewest = counts.index(min(counts))
        in_order = [each for each in found if each.is_ordered and is_page]
        return found[fewest] if counts[fewest] < FEW else in_order[0] if in_order else None


class Leads:
    """What a filter could be led by, for a page or for all that match."""

    def __init__(self, wanted: RunQuery, dialect: Dialect) -> None:
        self._wanted = wanted
        self._dialect = dialect
        self._required = required_values(wanted.where)
        bounds = bounds_of(wanted.where, "created_at")
        self.bounds = None if bounds == Bounds() else bounds
        self.bound: dict[str, object] = {"namespace": wanted.namespace}
        self.bound |= {"before": wanted.before or END, "since": "", "limit": ALL}
        if bounds.earliest is not None:
            self.bound["since"] = _stamp(bounds.earliest - SLACK_MS)
        if bounds.latest is not None:
            self.bound["before"] = min(str(self.bound["before"]), _stamp(bounds.latest + SLACK_MS + 1))
        self.bound |= {"earliest": -ALL if bounds.earliest is None else max(bounds.earliest, -ALL)}
        self.bound |= {"latest": ALL if bounds.latest is None else min(bounds.latest, ALL)}

    # How a lead is asked

    def taken(self, lead: Candidates | None, before: str | None, limit: int) -> Text:
        """The newest candidates below a run."""
        sql, parameters = self._newest(lead)
        limited = {"limit": limit, "cursor": before or END}
        if before is not None:
            limited["before"] = min(before, str(self.bound["before"]))
        return Text(f"{sql} order by run_id desc limit {self._typed('limit', 'bigint')}", parameters | limited)

    def every(self, lead: Candidates | None) -> tuple[str, dict[str, object]]:
        """All candidates, in no order; a query for their keys."""
        sql, parameters = self._newest(lead)
        return f"select key from ({sql}) as candidates", parameters  # noqa: S608 - fixed pieces

    def some(self, lead: Candidates, most: int) -> Text:
        """How many candidates a lead has, up to a number."""
        sql = f"select count(*) from (select 1 from ({lead.sql}) as candidates limit {most:d}) as counted"  # noqa: S608
        return Text(sql, self.bound | lead.parameters | {"limit": most})

    def _newest(self, lead: Candidates | None) -> tuple[str, dict[str, object]]:
        """The candidates of a lead, or of a walk over all runs; with a range of time those that are dated otherwise."""
        sql = self._walk() if lead is None else lead.sql
        parameters = self.bound | {"cursor": self._wanted.before or END} | ({} if lead is None else lead.parameters)
        if self.bounds is None:
            return f"select key, run_id from ({sql}) as candidates", parameters  # noqa: S608 - as above
        earliest, latest = self._typed("earliest", "bigint"), self._typed("latest", "bigint")
        others = f"""
            select {self._dialect.key} as key, run_id
              from runs
             where namespace = :namespace
               and created_at >= {earliest}
               and created_at <= {latest}
               and run_id < :cursor
               and ({self._dialect.misdated})"""  # noqa: S608 - as above
        return f"select key, run_id from (select * from ({sql}) as candidates union {others}) as dated", parameters  # noqa: S608

    def _typed(self, name: str, kind: str) -> str:
        return self._dialect.typed.format(f":{name}", kind)

    def _walk(self) -> str:
        # Of whichever namespace: a condition here could make a database look for those first, and sort them.
        return f"""
            select {self._dialect.key} as key, run_id
              from runs
             where run_id >= :since
               and run_id < :before
             order by run_id desc
             limit {self._typed("limit", "bigint")}"""  # noqa: S608 - as above

    # What there is to lead by

    def all(self) -> Iterator[Candidates]:
        """Each lead; none of another kind beside exact ids."""
        run_ids = self._values(Field("run_id"))
        if run_ids is not None:
            yield self._by("run_id", run_ids)
            return
        for field, column in IDS.items():
            values = self._values(Field(field))
            if values is not None and len(values) == 1:
                yield self._listed(column, **{column: values[0]})
            elif values is not None:
                yield self._by(column, values)
        yield from self._by_attributes()
        yield from self._by_state()

    def _values(self, name: Name) -> list[str] | None:
        found = self._required.get(name)
        return None if found is None else [value.text for value in found if isinstance(value, TextValue)]

    def _by(self, column: str, values: list[str]) -> Candidates:
        """Runs with one of a few values, which lie in no order."""
        sql = f"""
            select {self._dialect.key} as key, run_id
              from runs
             where namespace = :namespace
               and {column} {_one_of(f"{column}s", self._dialect)}
               and run_id >= :since
               and run_id < :before"""  # noqa: S608 - as above
        return Candidates(sql, {f"{column}s": values}, is_ordered=False)

    def _listed(self, lead: str | None, **wanted: Any) -> Candidates:
        """Runs as they are listed by a few fields."""
        before, since = str(self.bound["before"]), str(self.bound["since"])
        filter = RunFilter(self._wanted.namespace, before=before, since=since or None, limit=ALL, **wanted)
        return Candidates(*listed_keys(filter, self._dialect, lead), is_ordered=True)

    def _by_attributes(self) -> Iterator[Candidates]:
        """Runs with an attribute that has one of a few values, has one in its list, or is a number within a range."""
        for required, values in self._required.items():
            if isinstance(required, Attribute) and all(map(_is_indexed, values)):
                yield self._by_attribute(required.name, "=", values, "a.n = 0")
        for part in conjuncts(self._wanted.where):
            match part:
                case Contains(Attribute(name), value) if _is_indexed(value):
                    yield self._by_attribute(name, "=", [value], "a.n > 0")
                case Compare(Attribute(name), operator, NumberValue() as value) if operator != "=":
                    yield self._by_attribute(name, operator, [value], "a.n = 0")

    def _by_attribute(self, name: str, operator: Operator, values: Sequence[Value], place: str) -> Candidates:
        conditions = Conditions(self._dialect, "lead")
        found = " or ".join(f"({_indexed(conditions, operator, value)})" for value in values)
        is_ordered = operator == "=" and len(values) == 1
        sql = f"""
            select {self._dialect.key_of.format("a.run_id")} as key, a.run_id
              from attributes as a
             where a.namespace = :namespace
               and a.name = {conditions.bind(name)}
               and ({found})
               and {place}
               and a.run_id >= :since
               and a.run_id < :before
             {f"order by a.run_id desc limit {self._typed('limit', 'bigint')}" if is_ordered else ""}"""  # noqa: S608
        return Candidates(sql, conditions.parameters, is_ordered)

    def _by_state(self) -> Iterator[Candidates]:
        """Runs of a workflow, of some statuses, or that are held."""
        workflows, statuses = self._values(Field("workflow")), self._values(Field("status"))
        workflow = workflows[0] if workflows is not None and len(workflows) == 1 else None
        if workflow is not None or statuses is not None:
            yield self._listed(None, status=tuple(statuses or ()), workflow=workflow)
        holds = self._values(Field("held"))
        if holds:
            yield self._listed(None, held=tuple(holds), workflow=workflow)
        elif Not(IsNull(Field("held"))) in conjuncts(self._wanted.where):
            yield self._held()

    def _held(self) -> Candidates:
        """Runs that are held, whatever for. They are few as a rule, and are put in order each time."""
        sql = f"""
            select {self._dialect.key} as key, run_id
              from runs{self._dialect.by_hold}
             where namespace = :namespace
               and held is not null
               and run_id >= :since
               and run_id < :before"""  # noqa: S608 - as above
        return Candidates(sql, {}, is_ordered=True)


def _is_indexed(value: Value) -> bool:
    match value:
        case TextValue(text):
            return len(text) <= LONGEST_INDEXED
        case NumberValue() | TruthValue():
            return True
        case _:
            return False


def _indexed(conditions: Conditions, operator: Operator, value: Value) -> str:
    """The condition on an attribute's row that its index answers, with more that is only looked at."""
    exactly = conditions.attribute_is(operator, value)
    match value:
        case NumberValue(number):
            near = {"<": "<=", ">": ">="}.get(operator, operator)
            return f"a.number is not null and a.number {near} {conditions.bind(float(number))} and {exactly}"
        case _:
            return f"a.text is not null and length(a.text) <= {LONGEST_INDEXED} and {exactly}"


def _stamp(at: int) -> str:
    """What the ids of runs that are made at this time begin with."""
    return f"{max(at, 0):011x}"


def _one_of(name: str, dialect: Dialect) -> str:
    """That a column has one of the values in a list."""
    return f"in (select value from json_each({dialect.typed.format(f':{name}', 'text[]')}))"  # noqa: S608 - fixed pieces


def _matching(
    wanted: RunQuery, dialect: Dialect, keys: Sequence[object], limit: int, columns: str = "*"
) -> tuple[str, dict[str, object]]:
    """The query for those among a few runs that match."""
    conditions = Conditions(dialect)
    condition = conditions.of(wanted.where)
    among = f"{dialect.key} {_one_of('keys', dialect)} and {dialect.beside.format('namespace')} = :namespace"
    sql = f"select {columns} from runs where {among} and ({condition}) order by run_id desc limit {limit:d}"  # noqa: S608
    return sql, conditions.parameters | {"keys": list(keys), "namespace": wanted.namespace}


def _counting(
    wanted: RunQuery, dialect: Dialect, by: str | None, leads: Leads, lead: Candidates | None
) -> tuple[str, dict[str, object]]:
    """The query for how many runs match."""
    conditions = Conditions(dialect)
    condition = conditions.of(wanted.where)
    parameters: dict[str, object] = {"namespace": wanted.namespace}
    among = "namespace = :namespace"
    if lead is not None or leads.bounds is not None:
        keys, parameters = leads.every(lead)
        among = f"{dialect.key} in ({keys}) and {dialect.beside.format('namespace')} = :namespace"
    column = "null" if by is None else COLUMNS.get(by, by)
    group = "" if by is None else f" group by {column}"
    sql = f"select {column}, count(*) from runs where {among} and ({condition}){group}"  # noqa: S608 - fixed pieces
    return sql, parameters | conditions.parameters


def _keys(question: Text) -> Steps[list[tuple[object, str]]]:
    found = yield question
    return [(key, run_id) for key, run_id in found.rows]


def _first_column(question: Text) -> Steps[list[object]]:
    return [value for (value,) in (yield question).rows]


def _number(question: Text) -> Steps[int]:
    return int((yield question).rows[0][0])


def _counted(question: Text) -> Steps[dict[object, int]]:
    return {value: count for value, count in (yield question).rows}  # noqa: C416 - rows are no pairs
