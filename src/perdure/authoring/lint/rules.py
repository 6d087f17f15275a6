"""What a replay would not repeat: what workflow code must not call, and what to write instead.

Out:  the rule for a dotted name; and for an object, since `from time import time as t` is the same object.
Nothing is imported to know it: what is not loaded has only its name.
"""

import sys
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType, ModuleType
from typing import Literal, NamedTuple, TypeAlias

When: TypeAlias = Literal["called", "called without arguments", "named"]


class LintRule(NamedTuple):
    """A name that workflow code must not use so, and what to do instead."""

    name: str
    when: When
    instead: str

    @property
    def what(self) -> str:
        shown = self.name.removeprefix("builtins.")
        return shown if self.when == "named" else f"{shown}()"


_NOW = "use now(), which answers the same on a replay"
_SPAN = "use now(), or asyncio.get_running_loop().time() for durations; both answer the same on a replay"
_RNG = "use rng(), the run's own random.Random, whose numbers are the same on a replay"
_UUID = "use perdure's uuid4(), which is the same on a replay"
_HIDDEN = "make it in an activity; or by rng(), where it need not be secret"
_ENVIRONMENT = "it may differ by then: pass it as an argument, or read it with `await side_effect(...)`"
_ACTIVITY = "do it in an activity"
_THREAD = "do it in an activity (a plain `def` runs in a thread), or use asyncio tasks"

_TABLE: tuple[tuple[When, str, dict[str, str]], ...] = (
    # Clocks
    (
        "called",
        _NOW,
        {
            "time": "time time_ns clock_gettime clock_gettime_ns",
            "datetime.datetime": "now utcnow today",
            "datetime.date": "today",
            "pandas.Timestamp": "now utcnow today",
            "pendulum": "now today tomorrow yesterday",
            "arrow": "now utcnow",
            "django.utils.timezone": "now localtime localdate",
        },
    ),
    ("called without arguments", _NOW, {"time": "localtime gmtime ctime asctime"}),
    (
        "called",
        _SPAN,
        {
            "time": "monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns"
            " thread_time thread_time_ns"
        },
    ),
    ("called", "use `await sleep(...)`, which is durable", {"time": "sleep"}),
    # Chance
    (
        "called",
        _RNG,
        {
            "random": "betavariate binomialvariate choice choices expovariate gammavariate gauss getrandbits getstate"
            " lognormvariate normalvariate paretovariate randbytes randint random randrange sample seed setstate"
            " shuffle triangular uniform vonmisesvariate weibullvariate SystemRandom",
            "numpy.random": "bytes choice exponential integers normal permutation poisson rand randint randn random"
            " random_sample sample seed shuffle standard_normal uniform",
        },
    ),
    ("called without arguments", f"give it a seed, or {_RNG}", {"random": "Random", "numpy.random": "default_rng"}),
    (
        "called",
        _HIDDEN,
        {
            "secrets": "choice randbelow randbits token_bytes token_hex token_urlsafe SystemRandom",
            "os": "urandom getrandom",
        },
    ),
    ("called", _UUID, {"uuid": "uuid1 uuid4 uuid6 uuid7 uuid8 getnode"}),
    # The environment
    ("named", _ENVIRONMENT, {"os": "environ environb"}),
    ("called", _ENVIRONMENT, {"os": "getenv getenvb putenv unsetenv", "os.environ": "get"}),
    # Files
    (
        "called",
        _ACTIVITY,
        {
            "builtins": "open",
            "io": "open open_code FileIO",
            "codecs": "open",
            "os": "open fdopen listdir scandir walk fwalk stat lstat access mkdir makedirs remove removedirs rename"
            " renames replace rmdir unlink link symlink readlink truncate chmod chown utime mkfifo chdir",
            "os.path": "exists lexists isfile isdir islink ismount getsize getmtime getatime getctime samefile"
            " realpath",
            "pathlib.Path": "cwd home exists is_file is_dir is_symlink stat lstat iterdir glob rglob open"
            " read_text read_bytes write_text write_bytes mkdir rmdir touch unlink rename replace resolve",
            "shutil": "copy copy2 copyfile copyfileobj copytree move rmtree disk_usage which make_archive"
            " unpack_archive",
            "tempfile": "TemporaryFile NamedTemporaryFile SpooledTemporaryFile TemporaryDirectory mkstemp mkdtemp"
            " mktemp",
            "glob": "glob iglob",
            "fileinput": "input",
            "shelve": "open",
            "sqlite3": "connect",
        },
    ),
    ("called", "send the run a signal and receive that", {"builtins": "input"}),
    # The network
    (
        "called",
        _ACTIVITY,
        {
            "socket": "socket socketpair fromfd create_connection create_server getaddrinfo getnameinfo getfqdn"
            " gethostname gethostbyname gethostbyname_ex gethostbyaddr",
            "asyncio": "open_connection open_unix_connection start_server start_unix_server",
            "urllib.request": "urlopen urlretrieve",
            "http.client": "HTTPConnection HTTPSConnection",
            "smtplib": "SMTP SMTP_SSL",
            "ftplib": "FTP FTP_TLS",
            "webbrowser": "open",
            "requests": "request get post put patch delete head options Session session",
            "httpx": "request get post put patch delete head options stream Client AsyncClient",
            "aiohttp": "request ClientSession",
            "urllib3": "request PoolManager HTTPConnectionPool HTTPSConnectionPool",
            "websockets": "connect",
            "boto3": "client resource Session",
            "psycopg": "connect Connection.connect AsyncConnection.connect",
            "psycopg2": "connect",
            "asyncpg": "connect create_pool",
            "redis": "Redis StrictRedis from_url",
            "redis.asyncio": "Redis StrictRedis from_url",
            "pymongo": "MongoClient",
            "openai": "OpenAI AsyncOpenAI",
            "anthropic": "Anthropic AsyncAnthropic",
        },
    ),
    # Processes
    (
        "called",
        _ACTIVITY,
        {
            "subprocess": "run call check_call check_output getoutput getstatusoutput Popen",
            "os": "system popen fork forkpty kill killpg posix_spawn posix_spawnp spawnl spawnle spawnlp spawnlpe"
            " spawnv spawnve spawnvp spawnvpe execl execle execlp execlpe execv execve execvp execvpe _exit",
            "asyncio": "create_subprocess_exec create_subprocess_shell",
            "multiprocessing": "Process Pool Manager Queue Pipe",
        },
    ),
    # Threads
    (
        "called",
        _THREAD,
        {
            "threading": "Thread Timer",
            "_thread": "start_new_thread",
            "concurrent.futures": "ThreadPoolExecutor ProcessPoolExecutor",
            # Where they are defined: the package has them only once somebody asked for them.
            "concurrent.futures.thread": "ThreadPoolExecutor",
            "concurrent.futures.process": "ProcessPoolExecutor",
            "asyncio": "to_thread run_coroutine_threadsafe",
        },
    ),
    ("called", "a workflow has an event loop of its own: await the coroutine", {"asyncio": "run Runner"}),
)

RULES: dict[str, LintRule] = {
    f"{owner}.{name}": LintRule(f"{owner}.{name}", when, instead)
    for when, instead, owners in _TABLE
    for owner, names in owners.items()
    for name in names.split()
}

# Objects of these types can be looked up safely: none of the user's code compares or hashes them.
_COMPARABLE = frozenset({BuiltinFunctionType, FunctionType, MethodType, MethodDescriptorType, type})


class _Loaded:
    """The rules by object, for the modules that are loaded by now."""

    count = 0
    homes: tuple[str, ...] = ()
    by_object: dict[object, LintRule] = {}  # noqa: RUF012 - replaced as a whole
    by_identity: tuple[tuple[object, LintRule], ...] = ()
    by_function: dict[object, list[tuple[object, LintRule]]] = {}  # noqa: RUF012 - replaced as a whole
    paths: dict[object, str] = {}  # noqa: RUF012 - replaced as a whole


_OWNERS = sorted({owner for _, _, owners in _TABLE for owner in owners})
# An owner is a module, or a class in one.
_HOMES = sorted({home for owner in _OWNERS for home in (owner, owner.rpartition(".")[0]) if home})


def rule_of(path: str, value: object) -> LintRule | None:
    """The rule for a dotted name, or else for the function, class or object it stands for."""
    if path in RULES:
        return RULES[path]
    _refresh()
    if type(value) in _COMPARABLE:
        return _Loaded.by_object.get(value)
    return next((rule for known, rule in _Loaded.by_identity if known is value), None)


def rule_of_method(function: FunctionType, owner: object) -> LintRule | None:
    """The rule for a method that came apart into its function and its object."""
    return next((rule for known, rule in _Loaded.by_function.get(function, ()) if known is owner), None)


def path_of(value: object) -> str:
    """The full name of a module, a class or a function; as the rules write it, if they do."""
    _refresh()
    kind = type(value)
    if kind in {ModuleType, type} and value in _Loaded.paths:
        return _Loaded.paths[value]
    if issubclass(kind, ModuleType):
        return str(vars(value).get("__name__"))
    if issubclass(kind, type) or kind is FunctionType:
        return f"{value.__module__}.{value.__qualname__}"  # type: ignore[attr-defined]  # it has both
    return ""


def _refresh() -> None:
    if len(sys.modules) == _Loaded.count:
        return
    _Loaded.count = len(sys.modules)
    there = tuple(name for name in _HOMES if name in sys.modules)
    if there == _Loaded.homes:
        return
    _Loaded.homes = there
    # The first of two names for the same thing is the one to show.
    found = [(value, rule) for rule in reversed(RULES.values()) if (value := loaded(rule.name)) is not None]
    _Loaded.by_object = {value: rule for value, rule in found if type(value) in _COMPARABLE}
    _Loaded.by_identity = tuple((value, rule) for value, rule in found if type(value) not in _COMPARABLE)
    _Loaded.by_function = {}
    for value, rule in found:
        if isinstance(value, MethodType):
            _Loaded.by_function.setdefault(value.__func__, []).append((value.__self__, rule))
    named = ((loaded(name), name) for name in _OWNERS)
    _Loaded.paths = {value: name for value, name in named if type(value) in {ModuleType, type}}


def loaded(path: str) -> object:
    """What a dotted name stands for, as far as it is loaded; else None."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        value: object = sys.modules.get(".".join(parts[:cut]))
        if value is not None:
            for part in parts[cut:]:
                # A module may import things when it is asked for an attribute; so it is not asked.
                value = vars(value).get(part) if isinstance(value, ModuleType) else getattr(value, part, None)
            return value
    return None
