"""A Perdure over a server: `Perdure("http://...")`.

In:   a URL, a key or where it is kept.
Out:  an engine that asks the server; BadOption for a key that others could read.
"""

import os
import stat
from pathlib import Path
from typing import cast

from perdure.clock import SharedClock, ToldTime
from perdure.engine.ports import Engine
from perdure.errors import BadOption

SCHEMES = ("http://", "https://")
KEY, KEY_FILE = "PERDURE_KEY", "PERDURE_KEY_FILE"


def is_remote(url: object) -> bool:
    """Whether a URL names a server."""
    return isinstance(url, str) and url.startswith(SCHEMES)


def remote_engine(url: str, key: str | None) -> Engine:
    """The engine over a server."""
    try:
        from perdure.http.remote.aiohttp_transport import AiohttpTransport  # noqa: PLC0415 - it needs the extra `http`
    except ImportError as error:
        raise BadOption(f"a server is reached with {error.name}; install it: pip install 'perdure[http]'") from None
    from perdure.http.remote.engine import RemoteEngine  # noqa: PLC0415 - as above

    # Engine time is the server's, as far as its answers tell.
    told = ToldTime()
    return cast("Engine", RemoteEngine(url, AiohttpTransport(url), SharedClock(told), key or _key_there(), told))


def _key_there() -> str | None:
    """The key of the environment, or of the file that it names."""
    if (key := os.environ.get(KEY)) is not None:
        return key
    if (name := os.environ.get(KEY_FILE)) is None:
        return None
    path = Path(name)
    try:
        mode = path.stat().st_mode
        text = path.read_text().strip()
    except OSError as error:
        raise BadOption(f"{KEY_FILE} names {name!r}, which cannot be read: {error.strerror}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise BadOption(f"{KEY_FILE} names {name!r}, which others may read; take that away: chmod 600 {name}")
    return text
