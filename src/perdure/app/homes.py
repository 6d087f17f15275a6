"""Where handles find their engine: the Perdure objects that are open in this process, by database."""

from perdure.engine.port import Engine
from perdure.errors import NotOpen


class Home:
    """A database and a namespace; its engine is that of a Perdure that is open on them."""

    def __init__(self, url: str, namespace: str) -> None:
        self.url = url
        self.namespace = namespace
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        if self._engine is not None:
            return self._engine
        for home in _open:
            if (home.url, home.namespace) == (self.url, self.namespace) and home._engine is not None:
                return home._engine
        raise NotOpen(self.url)

    def open(self, engine: Engine) -> None:
        """Handles of this database find this engine from now on."""
        self._engine = engine
        _open.append(self)

    def close(self) -> None:
        self._engine = None
        if self in _open:
            _open.remove(self)


_open: list[Home] = []
