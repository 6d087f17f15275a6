"""Where handles find their engine: the Perdure objects that are open in this process, by database."""

from weakref import WeakValueDictionary

from perdure.engine.port import Engine
from perdure.errors import NotOpen


class Home:
    """A database and a namespace; its engine is that of a Perdure that is open on them."""

    def __init__(self, url: str, namespace: str, engine: Engine | None = None) -> None:
        self.url = url
        self.namespace = namespace
        self._engine = engine

    @property
    def engine(self) -> Engine:
        if self._engine is not None:
            return self._engine
        opened = _open.get((self.url, self.namespace))
        if opened is None or opened._engine is None:
            raise NotOpen(self.url)
        return opened._engine

    def open(self, engine: Engine) -> None:
        """Handles of this database find this engine from now on."""
        self._engine = engine
        _open[self.url, self.namespace] = self

    def close(self) -> None:
        self._engine = None
        if _open.get((self.url, self.namespace)) is self:
            del _open[self.url, self.namespace]


_open: "WeakValueDictionary[tuple[str, str], Home]" = WeakValueDictionary()
