"""Guards: what workflow code must not do, refused while it runs.

In:   the audit events of the process and the calls of workflow code, once a worker has begun.
Out:  NotAllowedInWorkflow, raised in the workflow at the call: that run fails, no other does.

An audit hook sees files, sockets and processes, whoever opens them. From Python 3.12 on
`sys.monitoring` also sees every call that the code of a workflow makes itself: a clock
behind an instance or another name. On 3.11 such a clock goes unnoticed; on every
version so does one that is read in another module.

Inside a workflow is where the running loop is a run's own. Activities, other threads
and the rest of the program are never refused anything.
"""

import copy
import functools
import logging
import re
import signal
import sys
from asyncio.events import _get_running_loop
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NoReturn, TypeVar

from perdure.authoring.lint.bytecode import span_of
from perdure.authoring.lint.check import CheckedWorkflow, as_one, is_accepted, look, unseen
from perdure.authoring.lint.rules import RULES, LintRule, rule_of, rule_of_method
from perdure.errors import NotAllowedInWorkflow
from perdure.worker.loop.loop import RunLoop

W = TypeVar("W")

log = logging.getLogger("perdure.worker")

# The audit events that are refused, and what to do instead, as for calls of their kind. Clocks and chance have none.
_EVENTS: dict[str, str] = {
    event: RULES[like].instead
    for like, events in {
        "builtins.open": "open os.listdir os.scandir os.mkdir os.remove os.rename os.rmdir os.link os.symlink"
        " os.truncate os.chmod os.chown os.utime os.chdir os.walk os.fwalk glob.glob shutil.copyfile shutil.copytree"
        " shutil.move shutil.rmtree shutil.make_archive shutil.unpack_archive tempfile.mkstemp tempfile.mkdtemp"
        " sqlite3.connect",
        "socket.socket": "socket.__new__ socket.connect socket.bind socket.getaddrinfo socket.getnameinfo"
        " socket.gethostbyname socket.gethostbyaddr socket.gethostname socket.sendto socket.sendmsg urllib.Request"
        " http.client.connect smtplib.connect ftplib.connect imaplib.open poplib.connect webbrowser.open",
        "subprocess.Popen": "subprocess.Popen os.system os.exec os.fork os.forkpty os.posix_spawn os.spawn os.kill"
        " os.killpg pty.spawn",
        "threading.Thread": "_thread.start_new_thread _thread.start_joinable_thread",
        "os.getenv": "os.putenv os.unsetenv",
        "time.sleep": "time.sleep",
        "builtins.input": "builtins.input",
    }.items()
    for event in events.split()
}

# These may do as they like wherever they are called from: they bring code in, show or log what happens,
# and read what is the same for every replay.
_EXCUSED = frozenset(
    {
        *("importlib", "_frozen_importlib", "_frozen_importlib_external", "zipimport", "linecache"),
        *("logging", "structlog", "loguru", "sentry_sdk", "opentelemetry", "coverage"),
        *("pdb", "bdb", "debugpy", "pydevd", "_pydevd_bundle", "_pydevd_frame_eval"),
        *("zoneinfo", "gettext", "mimetypes"),
    }
)
_PACKAGES = re.compile(r"[/\\](site|dist)-packages[/\\]")
_STANDARD = ("<frozen ", str(Path(logging.__file__).parent.parent))
LONGEST_SHOWN = 200
_OURS = frozenset({RunLoop.drain.__code__, RunLoop.evict.__code__})

# By convention the other four of the six belong to debuggers, coverage, profilers and optimizers.
_TOOL_IDS = (3, 4)


class _Installed:
    """What this process has of it; an audit hook cannot be taken back."""

    has_hook = False
    tool_id: int | None = None


def guarded(find: Callable[[str], W | None]) -> Callable[[str], W | None]:
    """Put the guards up, and have every workflow looked at before its first run."""
    _install()

    def find_looked_at(name: str) -> W | None:
        if unseen:
            look_at_the_unseen()
        return find(name)

    look_at_the_unseen()
    return find_looked_at


def look_at_the_unseen() -> None:
    """Look again at workflows whose helpers were not defined yet; watch the calls of all of them."""
    while unseen:
        reference, seen = unseen.pop()
        workflow = reference()
        if workflow is None:
            continue
        if not seen.is_complete:
            seen = look(workflow)
        if seen.refusals:
            _disable(workflow, as_one(seen.refusals))
        else:
            _watch(seen.codes)


def _disable(workflow: CheckedWorkflow, error: NotAllowedInWorkflow) -> None:
    """Let new runs fail with the error. Those that have a history are held, for a better version to go on with."""
    log.error("the workflow %r cannot run: %s", workflow.name, error, extra={"event": "workflow_refused"})

    @functools.wraps(workflow.fn)
    async def refuse(*_: Any, **__: Any) -> NoReturn:
        raise copy.copy(error)

    workflow.fn = refuse


def _install() -> None:
    if not _Installed.has_hook:
        _Installed.has_hook = True
        sys.addaudithook(_hook())
        if sys.version_info >= (3, 12):
            _Installed.tool_id = _take_tool_id()


# Files, sockets, processes: the audit hook


def _hook() -> Callable[[str, tuple[Any, ...]], None]:
    # What it needs is its own: at the end of the process modules lose theirs.
    events, running_loop, run_loop, judge = _EVENTS, _get_running_loop, RunLoop, _judge_event

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event in events and type(running_loop()) is run_loop:
            judge(event, args)

    return audit


def _judge_event(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and _is_harmless(*args):
        return
    frames = [*_frames(sys._getframe(2))]
    if any(map(_is_excused, frames)) or _is_handling_a_signal(frames):
        return
    what = "starting a thread" if event.startswith("_thread") else f"{event.removeprefix('builtins.')}({_shown(args)})"
    raise NotAllowedInWorkflow(what, _EVENTS[event], _where(frames))


def _is_harmless(path: object, mode: object, *_: object) -> bool:
    """Python itself reads the lines of a traceback, and time zones, without any frame of its own."""
    return isinstance(path, str) and (path.endswith((".py", ".pyc")) or "/zoneinfo/" in path) and mode in {"r", "rb"}


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """From the call outwards, as far as it is the workflow's."""
    while frame is not None and frame.f_code not in _OURS:
        yield frame
        frame = frame.f_back


def _is_excused(frame: FrameType) -> bool:
    if str(frame.f_globals.get("__name__")).partition(".")[0] in _EXCUSED:
        return True
    if _is_standard(frame):
        return False
    span = span_of(frame.f_code, frame.f_lasti)
    return is_accepted(frame.f_code.co_filename, {span.line, span.end_line}, frame.f_globals)


def _is_handling_a_signal(frames: list[FrameType]) -> bool:
    """Python calls handlers wherever it happens to be; that was in a workflow by chance."""
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
    return any(frame.f_code in handlers for frame in frames)


def _is_standard(frame: FrameType) -> bool:
    filename = frame.f_code.co_filename
    return filename.startswith(_STANDARD) and not _PACKAGES.search(filename)


def _where(frames: list[FrameType]) -> str:
    """The line of the user's own code, or else the workflow's."""
    own = (each for each in frames if not _is_standard(each) and not _PACKAGES.search(each.f_code.co_filename))
    frame = next(own, frames[-1])
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"


def _shown(args: tuple[Any, ...]) -> str:
    return next((repr(arg)[:LONGEST_SHOWN] for arg in args if isinstance(arg, str | bytes | tuple | list)), "")


# Clocks and chance, in what way ever they are called: sys.monitoring

if sys.version_info >= (3, 12):
    monitoring = sys.monitoring

    # For every watched code object, by its address, the calls that may be another one each time. To hash a code
    # object is to read all of it.
    _changing: dict[int, frozenset[int]] = {}
    _address = object.__hash__

    def _take_tool_id() -> int | None:
        """A free id, if there is one; without it the calls go unseen, as before 3.12."""
        for tool_id in _TOOL_IDS:
            if monitoring.get_tool(tool_id) is None:
                monitoring.use_tool_id(tool_id, "perdure")
                monitoring.register_callback(tool_id, monitoring.events.CALL, _judge_call)
                return tool_id
        return None

    def _watch(codes: dict[CodeType, frozenset[int]]) -> None:
        if _Installed.tool_id is not None:
            for code, changing in codes.items():
                _changing[_address(code)] = changing
                monitoring.set_local_events(_Installed.tool_id, code, monitoring.events.CALL)

    def _judge_call(code: CodeType, offset: int, called: object, first: object) -> object:
        rule = _rule_of_call(called, first)
        if rule is None:
            # What is called there the next time is the same, unless it is a parameter or the like.
            return None if offset in _changing[_address(code)] else monitoring.DISABLE
        if type(_get_running_loop()) is not RunLoop:
            return None
        span = span_of(code, offset)
        if is_accepted(code.co_filename, {span.line, span.end_line}, sys._getframe(1).f_globals):
            return monitoring.DISABLE
        raise NotAllowedInWorkflow(rule.what, rule.instead, f"{code.co_filename}:{span.line} in {code.co_qualname}")

    def _rule_of_call(called: object, first: object) -> LintRule | None:
        rule = rule_of("", called)
        if rule is None:
            return rule_of_method(called, first) if type(called) is FunctionType else None
        return None if rule.when == "called without arguments" and first is not monitoring.MISSING else rule

else:

    def _watch(codes: dict[CodeType, frozenset[int]]) -> None:
        """Before 3.12 nobody can."""
