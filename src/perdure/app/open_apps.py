"""Where handles find their engine: the Perdure objects that are open in this process, by database.

And by event loop: an engine of another loop, such as that of a sync bridge, could wake up nobody on this one.
A database is known by its URL without the password: a handle is pickled with it, and goes wherever jobs go.
"""

from asyncio import AbstractEventLoop
from asyncio.events import _get_running_loop
from urllib.parse import parse_qsl, urlencode, urlsplit

from perdure.authoring.runtime import current
from perdure.engine.ports import CommandKey, Engine
from perdure.errors import AnotherLoop, NotAllowedInWorkflow, NotOpen


class Home:
    """A database and a namespace; its engine is that of a Perdure that is open on them."""

    def __init__(self, url: str, namespace: str) -> None:
        self.url = _database_of(url)
        self.namespace = namespace
        self._engine: Engine | None = None
        self._loop: AbstractEventLoop | None = None
        # The home of handles that come of what is asked here.
        self.plain = self

    @property
    def engine(self) -> Engine:
        loop = _get_running_loop()
        if self._engine is not None and loop is self._loop:
            return self._engine
        refuse_in_workflows()
        found = [home for home in tuple(_open) if (home.url, home.namespace) == (self.url, self.namespace)]
        for home in found:
            if home._loop is loop and home._engine is not None:
                return home._engine
        url = self.url.partition("#")[0]
        raise AnotherLoop(url) if found else NotOpen(url)

    def open(self, engine: Engine) -> None:
        """Handles of this database find this engine from now on."""
        self._engine = engine
        self._loop = _get_running_loop()
        _open.append(self)

    def with_key(self, key: CommandKey) -> "Home":
        """The same, whose engine does commands once under this key."""
        return KeyedHome(self, key)

    def close(self) -> None:
        self._engine = None
        if self in _open:
            _open.remove(self)


class KeyedHome(Home):
    """A database and a namespace, asked under a key; the handles of runs that come of it are without."""

    def __init__(self, home: Home, key: CommandKey) -> None:
        super().__init__(home.url, home.namespace)
        self.plain = home
        self.key = key

    @property
    def engine(self) -> Engine:
        return self.plain.engine.with_key(self.key)


_open: list[Home] = []


def _database_of(url: str) -> str:
    """A URL without its password, the same one whatever that is, and whether the URL holds one or not."""
    if not url.startswith(("postgresql://", "postgres://")):
        return url
    parts = urlsplit(url)
    account, at, hosts = parts.netloc.rpartition("@")
    options = [each for each in parse_qsl(parts.query, keep_blank_values=True) if "password" not in each[0].lower()]
    user = account.partition(":")[0]
    return f"postgresql://{user}{at}{hosts}{parts.path}" + (f"?{urlencode(options)}" if options else "")


def refuse_in_workflows() -> None:
    """A replay would start, signal or wait again; that is what activities are for."""
    if current() is not None:
        raise NotAllowedInWorkflow(
            "using a Perdure or a Run", "call a workflow to start a child, or do it in an activity"
        )
