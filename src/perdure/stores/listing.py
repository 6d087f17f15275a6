"""Listing: how the runs that match a filter are found, newest first, without a walk over those that do not.

In:   a filter, and the database it is for.
Out:  SQL, made of fixed conditions and parameters only.

Every index that leads to runs by what they have in common goes on with workflow, status and run_id. So in it the runs
of one workflow and one status lie together, in the order of a list. Of each such group no more than a page is looked
at, however many runs there are; the newest of all of these are the page.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from perdure.stores.records import RunFilter

# What a filter may lead by, and the condition that an index answers; the latest run of a workflow_id has its own.
LEADS = {
    "workflow_id": "namespace = :namespace and workflow_id = :workflow_id and not is_latest",
    "correlation_id": "namespace = :namespace and correlation_id = :correlation_id",
    "parent_id": "namespace = :namespace and parent_id = :parent_id",
    "entity_id": "namespace = :namespace and entity_id = :entity_id",
    "schedule": "namespace = :namespace and schedule = :schedule",
}
LATEST = "namespace = :namespace and workflow_id = :workflow_id and is_latest"
BY_NAMESPACE = "namespace = :namespace"
BY_HOLD = "namespace = :namespace and held is not null"
# Of several things to lead by that one is taken that fewest runs have, counted up to here.
FEW = 1000

# The workflows of which there are runs, and the states their runs are in: from one to the next without what is between.
NAMES = """
    select (select workflow from runs{index} where {where} order by workflow, {state} limit 1)
    union all
    select (select workflow
              from runs{index}
             where {where}
               and workflow > {names}.name
             order by workflow, {state}
             limit 1)
      from {names}
     where name is not null"""
STATES = """
    select name, (select {state} from runs where {where} and workflow = {names}.name order by {state} limit 1)
      from {names}
     where name is not null{kept}
    union all
    select name, (select {state}
                    from runs
                   where {where}
                     and workflow = {groups}.name
                     and {state} > {groups}.state
                   order by {state}
                   limit 1)
      from {groups}
     where state is not null"""
GIVEN_STATES = """
    select name, {value}
      from {names}, {given}
     where name is not null{kept}"""
# Activities on a queue have such names.
KEPT = " and (name < :without or name >= :without_end)"


# Why a run ended without a result: the summary of its failure, or the reason it was given.
ERROR = """
    case
      when status = 'FAILED' then
        case when substr({type}, 1, 9) = 'builtins.' then substr({type}, 10) else {type} end
        || case when {message} <> '' then ': ' || {message} else '' end
      when status in ('CANCELLED', 'TERMINATED', 'TIMED_OUT') then {reason}
    end"""
OUTCOME = """coalesce(outcome, (select body
                         from payloads
                        where payloads.run_id = runs.run_id
                          and payloads.seq = runs.last_seq))"""


def _error(part: str) -> str:
    return ERROR.format(**{name: part.format(OUTCOME, name) for name in ("type", "message", "reason")})


def _glob(pattern: str) -> str:
    """A pattern as GLOB has it, which heeds case: what has a meaning only there stands in brackets."""
    return pattern.translate({ord("%"): "*", ord("_"): "?", ord("*"): "[*]", ord("?"): "[?]", ord("["): "[[]"})


class Dialect(NamedTuple):
    """What a database wants in its own words.

    `key` is what rows are found again by: in SQLite a run_id may be spoilt. `pick` takes the newest of each group;
    `beside` is a column in a condition that no index shall answer, for another one leads. `error` is why a run ended,
    `misdated` is true of runs whose ids are of another second than their rows; in their index they are found by time.
    """

    key: str
    values: str
    text: str
    pick: str
    newest: str
    beside: str
    by_hold: str
    key_of: str
    typed: str
    like: str
    pattern: Callable[[str], str]
    error: str
    misdated: str


SQLITE = Dialect(
    key="rowid",
    values="json_each({})",
    text="{}",
    pick="""
    select json_each.value
      from {groups}, json_each((select json_group_array(rowid)
                                  from (select rowid
                                          from runs{index}
                                         where {where}
                                           and workflow = {groups}.name
                                           and {state} = {groups}.state{conditions}
                                         order by run_id desc
                                         limit :limit)))""",
    newest="select rowid from runs where rowid in (select key from found) order by run_id desc limit :limit",
    beside="+{}",
    # Unless it is named, that of all runs would do as well.
    by_hold=" indexed by runs_held",
    key_of="(select rowid from runs where runs.run_id = {})",
    typed="{}",
    like="{} glob {}",
    pattern=_glob,
    error=_error("replace(case when json_valid({0}) then json_extract({0}, '$.{1}') end, char(0), char(65533))"),
    misdated="run_id < printf('%011x', created_at - 1000) or run_id > printf('%011x', created_at + 1000)",
)
# A range of one state, and sorted by it: only an index that has states in order will do. By run_id alone the planner
# would walk over all runs, in the hope to meet those that are wanted soon.
POSTGRES = Dialect(
    key="run_id",
    values="unnest({}::text[]) as given (value)",
    text='{} collate "C"',
    pick="""
    select picked.run_id
      from {groups}
     cross join lateral (select run_id
                           from runs
                          where {where}
                            and workflow = {groups}.name
                            and {state} between {groups}.state and {groups}.state{conditions}
                          order by {state} desc, run_id desc
                          limit :limit::bigint) as picked""",
    newest="select key from found order by key desc limit :limit::bigint",
    beside="{} || ''",
    by_hold="",
    key_of="{}",
    typed="{}::{}",
    like="{} like {} escape ''",
    pattern=str,
    error="(" + _error("perdure_json_field({0}, '{1}')") + ') collate "C"',
    misdated=("run_id < lpad(to_hex(created_at - 1000), 11, '0') or run_id > lpad(to_hex(created_at + 1000), 11, '0')"),
)


def leads_of(wanted: RunFilter) -> list[str]:
    """What the filter could lead by."""
    if wanted.held and not wanted.status:
        return []
    return [column for column in LEADS if getattr(wanted, column) is not None]


def counting(wanted: RunFilter, leads: Sequence[str]) -> tuple[str, dict[str, object]]:
    """How many runs there are by each of these, up to a number."""
    some = "(select count(*) from (select 1 from runs where {} limit {}) as counted)"
    return f"select {', '.join(some.format(LEADS[lead], FEW) for lead in leads)}", _parameters(wanted)


def listing(wanted: RunFilter, dialect: Dialect, lead: str | None = None) -> tuple[str, dict[str, object]]:
    """The query that lists runs, led by one thing that the filter asks for, or by none."""
    found = f"{_found(wanted, dialect, lead)} {dialect.newest}"
    sql = f"select * from runs where {dialect.key} in ({found}) order by run_id desc"  # noqa: S608 - fixed conditions
    return sql, _parameters(wanted)


def listed_keys(wanted: RunFilter, dialect: Dialect, lead: str | None = None) -> tuple[str, dict[str, object]]:
    """The query for the keys of the same runs, each with its run_id, in the same order."""
    found = f"{_found(wanted, dialect, lead)} {dialect.newest}"
    sql = f"select {dialect.key} as key, run_id from runs where {dialect.key} in ({found})"  # noqa: S608 - as above
    return sql, _parameters(wanted)


def _found(wanted: RunFilter, dialect: Dialect, lead: str | None) -> str:
    """The table of keys among which the page is."""
    tables, picks = [], []
    if wanted.status or not wanted.held:
        where = BY_NAMESPACE if lead is None else LEADS[lead]
        tables += _groups(wanted, dialect, "status", where)
        picks.append(_picks(wanted, dialect, "status", where, lead))
    if lead == "workflow_id":
        picks.append(_latest(wanted, dialect))
    if wanted.held:
        tables += _groups(wanted, dialect, "held", BY_HOLD)
        picks.append(_picks(wanted, dialect, "held", BY_HOLD, None))
    return f"with recursive {', '.join(tables)}, found (key) as ({' union '.join(picks)})"


def _groups(wanted: RunFilter, dialect: Dialect, state: str, where: str) -> list[str]:
    """The tables of workflows, and of groups: workflow and state."""
    # Who asks for what is held is told of all of it: somebody has to act on it, whatever it is.
    kept = KEPT if wanted.without is not None and state == "status" else ""
    index = dialect.by_hold if state == "held" else ""
    words = {"names": f"{state}_names", "groups": f"by_{state}", "state": state, "where": where, "index": index}
    words |= {"kept": kept, "value": dialect.text.format("value")}
    names = NAMES.format(**words) if wanted.workflow is None else f"select {dialect.text.format(':workflow')}"
    if state == "held" or wanted.status:
        groups = GIVEN_STATES.format(given=dialect.values.format(":holds" if state == "held" else ":statuses"), **words)
    else:
        groups = STATES.format(**words)
    return [f"{words['names']} (name) as ({names})", f"{words['groups']} (name, state) as ({groups})"]


def _picks(wanted: RunFilter, dialect: Dialect, state: str, where: str, lead: str | None) -> str:
    """The newest of each group."""
    index = dialect.by_hold if state == "held" else ""
    words = {"groups": f"by_{state}", "state": state, "where": where, "index": index}
    return dialect.pick.format(conditions=_conditions(wanted, dialect, lead), **words)


def _latest(wanted: RunFilter, dialect: Dialect) -> str:
    """The one run that has a workflow_id now, found by that alone: many may have its workflow and status."""
    conditions = _conditions(wanted, dialect, "workflow_id")
    if wanted.status:
        status, statuses = dialect.beside.format("status"), dialect.values.format(":statuses")
        conditions += f" and {status} in (select value from {statuses})"  # noqa: S608 - fixed conditions
    if wanted.workflow is not None:
        conditions += f" and {dialect.beside.format('workflow')} = :workflow"
    return f"select {dialect.key} from runs where {LATEST}{conditions}"  # noqa: S608 - fixed conditions


def _conditions(wanted: RunFilter, dialect: Dialect, lead: str | None) -> str:
    """What else is asked of a run, besides what led to it."""
    columns = [column for column in LEADS if getattr(wanted, column) is not None and column != lead]
    others = [f"{dialect.beside.format(column)} = :{column}" for column in columns]
    others += ["run_id < :before"] if wanted.before else []
    others += ["run_id >= :since"] if wanted.since else []
    return "".join(f" and {condition}" for condition in others)


def _parameters(wanted: RunFilter) -> dict[str, object]:
    found: dict[str, object] = {"namespace": wanted.namespace, "limit": wanted.limit}
    found |= {"statuses": list(wanted.status), "holds": list(wanted.held)}
    for column in (*LEADS, "workflow", "before", "since"):
        if (value := getattr(wanted, column)) is not None:
            found[column] = value
    if wanted.without is not None:
        # As a range of names, whatever a pattern would make of them.
        found |= {"without": wanted.without, "without_end": wanted.without + chr(0x10FFFF)}
    return found
