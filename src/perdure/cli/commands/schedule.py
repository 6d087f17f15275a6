"""`perdure schedule`: make, look at, change and delete schedules, and see times beforehand.

In:   what to do, the name of a schedule, and what it starts and when.
Out:  schedules as they stand, JSON for programs; the times of a cron expression, with the clock changes between them.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

import msgspec
import typer
from rich.text import Text

import perdure
from perdure.cli.input import options as given
from perdure.cli.input.database import client, idle, refuse_memory, under
from perdure.cli.input.modules import workflow_named
from perdure.cli.input.values import duration, json_given
from perdure.cli.output.errors import Mistake, warn
from perdure.cli.output.flags import in_flags
from perdure.cli.output.suggestions import hint
from perdure.cli.output.tables import grid, is_for_people, plain_table, print_json, print_lines, screen
from perdure.diagnostics.schedules import unstarted
from perdure.kernel.timetables import At, Cron, Every, Timetable
from perdure.views.schedules import ScheduleInfo
from perdure.views.words import compact, moment

EXAMPLES = {
    "schedule": """\
perdure schedule create nightly shop:report '["eu"]' --cron '0 2 * * *' --zone Europe/Berlin
perdure schedule create sweep shop:clean --every 15m --overlap queue_one
perdure schedule list
perdure schedule show nightly
perdure schedule update nightly --overlap skip --catch-up all --within 6h
perdure schedule pause nightly --reason 'the numbers are wrong'
perdure schedule resume nightly
perdure schedule trigger nightly
perdure schedule backfill nightly --from 2026-10-01T00:00Z --to 2026-10-08T00:00Z
perdure schedule delete nightly
perdure schedule next '0 2 * * *' --zone Europe/Berlin""",
}
ARGUMENTS_EXAMPLE = """'{"region": "eu"}' by name, or '["eu"]' in order"""
TIMES_SHOWN = 5
DECISIONS_SHOWN = 10


# What errors of timetables speak of, as it is typed here.
FLAGS = {
    "overlap is": "--overlap is",
    "catch_up is": "--catch-up is",
    "interval is": "--every is",
    "offset is": "--offset is",
    "less than the interval": "less than --every",
    "within is": "--within is",
    "jitter is": "--jitter is",
    "limit is": "--limit is",
    "starts_at": "--starts-at",
    "ends_at": "--ends-at",
    "catch_up": "--catch-up",
    "Every(...), or --every": "--every",
    "put() gives another kind": "to give it times of another kind, delete it and create it anew",
    "Every has no 'expression'": "a schedule with --every has no --cron",
    "Every has no 'zone'": "a schedule with --every has no --zone",
    "Cron has no 'interval'": "a schedule with --cron has no --every",
    "Cron has no 'offset'": "a schedule with --cron has no --offset",
    "At has no ": "a schedule with --at has no ",
    "has no 'moment'": "has no --at",
    "it has interval, offset, overlap": "it has --every, --offset, --overlap",
    "it has expression, zone, overlap": "it has --cron, --zone, --overlap",
    "it has moment, overlap": "it has --at, --overlap",
    ", within, jitter, ": ", --within, --jitter, ",
}


class ScheduleAction(StrEnum):
    """What can be done with schedules."""

    LIST = "list"
    SHOW = "show"
    CREATE = "create"
    UPDATE = "update"
    PAUSE = "pause"
    RESUME = "resume"
    TRIGGER = "trigger"
    BACKFILL = "backfill"
    DELETE = "delete"
    NEXT = "next"


# Which options go with what; those that are not here would be lost.
_TIMES = ("cron", "zone", "every", "offset", "at", "overlap", "catch_up", "within", "jitter", "starts_at", "ends_at")
TAKES = {
    ScheduleAction.LIST: ("namespace",),
    ScheduleAction.SHOW: ("namespace",),
    ScheduleAction.CREATE: (*_TIMES, "queue", "key", "namespace"),
    ScheduleAction.UPDATE: (*_TIMES, "queue", "key", "namespace"),
    ScheduleAction.PAUSE: ("reason", "key", "namespace"),
    ScheduleAction.RESUME: ("key", "namespace"),
    ScheduleAction.TRIGGER: ("key", "namespace"),
    ScheduleAction.BACKFILL: ("start", "end", "overlap", "key", "namespace"),
    ScheduleAction.DELETE: ("key", "namespace"),
    ScheduleAction.NEXT: ("zone", "limit", "namespace"),
}


def point_in_time(text: str) -> datetime:
    """A moment as it is typed: 2026-10-25T02:00Z, or with an offset."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time; write 2026-10-25T02:00Z or 2026-10-25T02:00+01:00") from None
    if found.utcoffset() is None:
        whole = text if len(text) > len("2026-10-25") else f"{text}T00:00"
        raise typer.BadParameter(f"{text!r} has no zone; write {whole}Z for UTC, or with an offset such as +01:00")
    return found


def option(name: str, metavar: str, text: str, parser: Callable[[str], Any] | None = None) -> Any:
    return typer.Option(name, metavar=metavar, help=text, parser=parser)


class TypedOptions(NamedTuple):
    """What was typed besides action and name."""

    fields: dict[str, Any]
    reason: str | None
    start: datetime | None
    end: datetime | None
    key: str | None = None
    call: "perdure.BoundCall[Any] | None" = None
    when: Timetable | None = None


# The answer, and the schedules that are looked at for what is in their way.
Done: TypeAlias = tuple[Any, list[ScheduleInfo]]


def schedule(
    action: Annotated[
        ScheduleAction,
        typer.Argument(help="What to do.", metavar="list|show|create|update|pause|resume|trigger|backfill|delete|next"),
    ],
    name: Annotated[
        str | None, typer.Argument(help="The schedule; for `next` a cron expression, too.", show_default=False)
    ] = None,
    target: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:WORKFLOW", help="What it starts, for create and update.", show_default=False),
    ] = None,
    arguments: given.Arguments = "{}",
    *,
    cron: Annotated[str | None, option("--cron", "EXPRESSION", "When, as cron has it: '0 2 * * *', or @daily.")] = None,
    zone: Annotated[str | None, option("--zone", "NAME", "The time zone of --cron; UTC unless given.")] = None,
    every: Annotated[
        float | None, option("--every", "DURATION", "Again and again after so long: 30s, 15m.", duration)
    ] = None,
    offset: Annotated[
        float | None, option("--offset", "DURATION", "How much later than the epoch --every counts from.", duration)
    ] = None,
    at: Annotated[datetime | None, option("--at", "TIME", "Once: 2026-10-25T02:00Z.", point_in_time)] = None,
    overlap: Annotated[
        str | None, option("--overlap", "POLICY", "When runs of it are open: skip, queue_one, queue_all, …")
    ] = None,
    catch_up: Annotated[str | None, option("--catch-up", "POLICY", "After downtime: latest, none or all.")] = None,
    within: Annotated[
        float | None, option("--within", "DURATION", "How old a missed time may be to start still.", duration)
    ] = None,
    jitter: Annotated[float | None, option("--jitter", "DURATION", "Start up to so much later.", duration)] = None,
    starts_at: Annotated[
        datetime | None, option("--starts-at", "TIME", "No times before this one.", point_in_time)
    ] = None,
    ends_at: Annotated[datetime | None, option("--ends-at", "TIME", "No times after this one.", point_in_time)] = None,
    queue: given.Queue = None,
    reason: Annotated[str | None, option("--reason", "TEXT", "Why it is paused; kept with the schedule.")] = None,
    start: Annotated[datetime | None, option("--from", "TIME", "Where a backfill begins.", point_in_time)] = None,
    end: Annotated[datetime | None, option("--to", "TIME", "Where a backfill ends.", point_in_time)] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="How many times `next` shows.")] = TIMES_SHOWN,
    key: given.Key = None,
    url: given.Url = given.DEFAULT_URL,
    namespace: given.Namespace = given.DEFAULT_NAMESPACE,
    as_json: given.AsJson = False,
) -> None:
    """Make, show, change, trigger, backfill or delete schedules; see times beforehand."""
    fields: dict[str, Any] = {
        "expression": cron,
        "zone": zone,
        "interval": every,
        "offset": offset,
        "moment": at,
        "overlap": overlap,
        "catch_up": catch_up,
        "within": within,
        "jitter": jitter,
        "starts_at": starts_at,
        "ends_at": ends_at,
    }
    typed = {key: value for key, value in fields.items() if value is not None}
    if (name is None) != (action is ScheduleAction.LIST):
        takes_none = "`perdure schedule list` shows all of them; it takes no name"
        raise Mistake(takes_none if name is not None else f"name the schedule: `perdure schedule {action} NAME`")
    if target is not None and action not in {ScheduleAction.CREATE, ScheduleAction.UPDATE}:
        raise Mistake(f"`perdure schedule {action}` takes a name alone, and {target!r} came after it")
    if action is ScheduleAction.UPDATE and not typed and target is None:
        raise Mistake(f"say what to change: `perdure schedule update {name} --every 5m`; its help shows the options")
    if action is ScheduleAction.NEXT:
        with in_flags(FLAGS):
            when = _next_of(url, namespace, name or "", zone)
            _print_times(when, limit, is_json=not is_for_people(as_json=as_json))
        return
    with in_flags(FLAGS):
        asked = _asked(action, name or "", target, arguments, queue, TypedOptions(typed, reason, start, end, key))
    # Making the first schedule makes the database; all else is asked of one that is there.
    ask = _in_new if action is ScheduleAction.CREATE else _in
    if action is ScheduleAction.CREATE:
        refuse_memory(url)
    with in_flags(FLAGS):
        answer, shown = asyncio.run(ask(url, namespace, action, name or "", asked))
    if not is_for_people(as_json=as_json):
        print_json(answer)
    else:
        _print(action, name or "", answer)
    for text in asyncio.run(unstarted(url, namespace, shown, hint)):
        warn(text)


async def _in_new(url: str, namespace: str, action: ScheduleAction, name: str, asked: TypedOptions) -> Done:
    async with idle(url, namespace) as app:
        answer = await _done(under(app, asked.key).schedules, action, name, asked)
        return answer, [answer]


async def _in(url: str, namespace: str, action: ScheduleAction, name: str, asked: TypedOptions) -> Done:
    async with client(url, namespace) as app:
        answer = await _done(under(app, asked.key).schedules, action, name, asked)
        if action in {ScheduleAction.BACKFILL, ScheduleAction.TRIGGER}:
            return answer, [await app.schedules.get(name)]
        found = answer if isinstance(answer, list) else [answer]
        return answer, [each for each in found if isinstance(each, ScheduleInfo)]


async def _done(schedules: "perdure.Schedules", action: ScheduleAction, name: str, asked: TypedOptions) -> Any:  # noqa: PLR0911 - one for each action
    match action:
        case ScheduleAction.LIST:
            return await schedules.list()
        case ScheduleAction.CREATE if asked.call is not None and asked.when is not None:
            return await schedules.create(name, asked.call, asked.when)
        case ScheduleAction.UPDATE:
            return await schedules.update(name, call=asked.call, **asked.fields)
        case ScheduleAction.PAUSE:
            await schedules.pause(name, asked.reason)
        case ScheduleAction.RESUME:
            await schedules.resume(name)
        case ScheduleAction.TRIGGER:
            run = await schedules.trigger(name)
            return {"id": run.id, "run_id": run.run_id}
        case ScheduleAction.BACKFILL if asked.start is not None and asked.end is not None:
            overlap: Any = asked.fields.get("overlap", "queue_all")
            return await schedules.backfill(name, asked.start, asked.end, overlap)
        case ScheduleAction.DELETE:
            return {"name": name, "deleted": await schedules.delete(name)}
        case _:
            pass
    return await schedules.get(name)


# What was typed is looked at before a database is opened


def _asked(
    action: ScheduleAction, name: str, target: str | None, arguments: str, queue: str | None, asked: TypedOptions
) -> TypedOptions:
    """What was typed, checked as far as it can be."""
    if action is ScheduleAction.CREATE and target is None:
        raise Mistake(f"say what it starts: `perdure schedule create {name} MODULE:WORKFLOW`")
    if action is ScheduleAction.BACKFILL and (asked.start is None or asked.end is None):
        raise Mistake(f"say from when to when: `perdure schedule backfill {name} --from TIME --to TIME`")
    call = None if target is None else _call(target, arguments, queue)
    return asked._replace(call=call, when=_timetable(asked.fields) if action is ScheduleAction.CREATE else None)


def _call(target: str, arguments: str, queue: str | None) -> "perdure.BoundCall[Any]":
    workflow = workflow_named(target).options(queue=queue)
    data = json_given(arguments, "ARGUMENTS", ARGUMENTS_EXAMPLE)
    return perdure.BoundCall(workflow, workflow.signature.from_json(data))


def _timetable(fields: dict[str, Any]) -> Timetable:
    """The timetable that the options describe: one of --cron, --every and --at."""
    kinds: dict[str, type[Timetable]] = {"expression": Cron, "interval": Every, "moment": At}
    wanted = [kind for key, kind in kinds.items() if key in fields]
    if len(wanted) != 1:
        raise Mistake("say when: give one of --cron, --every and --at")
    unknown = [key for key in fields if key not in wanted[0].__struct_fields__]
    if unknown:
        raise Mistake(f"--{unknown[0].replace('_', '-')} does not go with a schedule of this kind")
    made = wanted[0](**fields)
    made.refuse_misleading()
    if not made.times(datetime.now(UTC), 1):
        raise Mistake(f"{in_words(made)} never starts: no time of it lies ahead")
    return made


# What is printed


def _print(action: ScheduleAction, name: str, answer: Any) -> None:
    console = screen()
    if isinstance(answer, list):
        _print_list(answer)
    elif action in {ScheduleAction.SHOW, ScheduleAction.CREATE, ScheduleAction.UPDATE}:
        _print_one(answer)
    elif action is ScheduleAction.TRIGGER:
        console.print(Text.assemble(("▶ ", "bold"), "started ", (answer["id"], "bold")), soft_wrap=True)
    elif action is ScheduleAction.BACKFILL:
        told = (
            f"{answer.times:,} times, {answer.existing:,} of which have runs; {answer.accepted:,} are started by and by"
        )
        console.print(told, soft_wrap=True)
    elif action is ScheduleAction.DELETE:
        console.print(f"{name} {'is deleted' if answer['deleted'] else 'was not there'}", soft_wrap=True)
    else:
        console.print(f"{name} {'is paused' if answer.paused else 'goes on'}", soft_wrap=True)


def _print_list(found: list[ScheduleInfo]) -> None:
    shown = plain_table("schedule", "workflow", "when", "next", "last")
    for each in found:
        following = "paused" if each.paused else moment(each.next_times[0]) if each.next_times else "no more"
        last = "" if each.last_time is None else moment(each.last_time)
        shown.add_row(each.name, each.workflow, in_words(each.when), following, last)
    print_lines(screen(), shown)


def _print_one(found: ScheduleInfo) -> None:
    shown = grid()
    shown.add_row("schedule", Text(found.name, style="bold"))
    shown.add_row("starts", f"{found.workflow}({compact(found.arguments)}) on the queue {found.queue}")
    shown.add_row("when", in_words(found.when))
    if found.paused:
        shown.add_row("paused", found.reason or "yes")
    shown.add_row("next", ", ".join(map(moment, found.next_times)) or "no more")
    if found.last_time is not None:
        shown.add_row("last", f"{moment(found.last_time)}, run {found.last_run_id}")
    if found.waiting:
        shown.add_row("waiting", str(found.waiting))
    for decision in found.decisions[:DECISIONS_SHOWN]:
        times = f" x {decision.count:,}" if decision.count > 1 else ""
        shown.add_row(
            decision.kind, f"{moment(decision.time)}{times}{f', {decision.run_id}' if decision.run_id else ''}"
        )
    shown.add_row("source", found.source)
    print_lines(screen(), shown)


def in_words(when: Timetable) -> str:
    """A timetable in words, with what is not the default."""
    told = {"expression", "zone", "interval", "offset", "moment"}
    defaults = {field.name: field.default for field in msgspec.structs.fields(when)}
    given = [(name, value) for name, value in msgspec.structs.asdict(when).items() if value != defaults[name]]
    rest = [f"{name.replace('_', ' ')} {_told(value)}" for name, value in given if name not in told]
    return ", ".join([_when(when), *rest])


def _when(when: Timetable) -> str:
    if isinstance(when, Cron):
        return f"cron {when.expression} ({when.zone})"
    if isinstance(when, Every):
        return f"every {_told(when.interval)}{f', {_told(when.offset)} later' if when.offset else ''}"
    return f"once at {_told(when.moment)}"


def _told(value: object) -> str:
    """A duration or a moment of a timetable; what is neither stands for itself."""
    if isinstance(value, datetime):
        return moment(value)
    if not isinstance(value, int | float):
        return str(value)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if value >= size and value % size == 0:
            return f"{value / size:g} {unit}"
    return f"{value:g} s"


def _next_of(url: str, namespace: str, text: str, zone: str | None) -> Timetable:
    """The times of a cron expression, or of the schedule of this name."""
    try:
        typed = _timetable({"expression": text, "zone": zone or "UTC"})
    except perdure.BadSchedule as error:
        # Several words are meant as cron, or one such as @daily, and a zone goes with nothing else.
        if zone is not None or len(text.split()) > 1 or text.startswith("@"):
            raise
        trouble = error
    else:
        return typed
    try:
        found, _ = asyncio.run(_in(url, namespace, ScheduleAction.SHOW, text, TypedOptions({}, None, None, None)))
    except perdure.PerdureError:
        raise Mistake(f"no schedule is named {text!r}, and as a cron expression: {trouble}") from None
    assert isinstance(found, ScheduleInfo)
    return found.when


def _print_times(when: Timetable, limit: int, *, is_json: bool) -> None:
    """The next times, in the zone and in UTC, and where the clock changes between them."""
    name = when.zone if isinstance(when, Cron) else "UTC"
    zone = ZoneInfo(name)
    times = when.times(datetime.now(UTC), limit)
    if not times:
        raise Mistake(f"{in_words(when)} never starts: no time of it lies ahead")
    if is_json:
        print_json([{"time": time, "local": time.astimezone(zone).isoformat()} for time in times])
        return
    is_utc = name == "UTC"
    shown, before = plain_table(name, *([] if is_utc else ["UTC"]), ""), None
    for time in times:
        local = time.astimezone(zone)
        change = "" if before in {None, local.utcoffset()} else f"the clock has changed to {local:%Z}"
        in_utc = [] if is_utc else [f"{time:%Y-%m-%d %H:%M:%S}"]
        shown.add_row(f"{local:%a %Y-%m-%d %H:%M:%S}", *in_utc, change)
        before = local.utcoffset()
    print_lines(screen(), shown)
