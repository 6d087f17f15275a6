"""Namespaces and keys over a server."""

from datetime import datetime
from urllib.parse import quote

import msgspec

from perdure.engine.ports import KeyRequest, MadeKey, NamespaceContent
from perdure.http.remote.connection import Connection
from perdure.http.remote.overview import items_at
from perdure.kernel.schedules import as_ms
from perdure.stores.records import AccessKeyRow, NamespaceRow
from perdure.views.access_keys import KeyInfo
from perdure.views.namespaces import NamespaceDetail, NamespaceInfo

NAMESPACES, KEYS = "/v1/namespaces", "/v1/keys"


class RemoteNamespaces:
    """Asks a server for namespaces; the NamespaceRegistry of an engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(self, name: str) -> NamespaceRow:
        """Make a namespace; NamespaceExists."""
        data = await self._connection.post(NAMESPACES, {"name": name})
        return _namespace(msgspec.json.decode(data, type=NamespaceInfo))

    async def all(self) -> list[NamespaceRow]:
        """All of them, by name."""
        return [_namespace(info) for info in await items_at(self._connection, NAMESPACES, NamespaceInfo)]

    async def find(self, name: str) -> NamespaceRow:
        """The namespace of this name; NamespaceNotFound."""
        return (await self.look(name)).row

    async def look(self, name: str) -> NamespaceContent:
        """One of them and what is in it; NamespaceNotFound."""
        data = await self._connection.get(f"{NAMESPACES}/{quote(name, safe='')}")
        found = msgspec.json.decode(data, type=NamespaceDetail)
        return NamespaceContent(_namespace(found), found.runs, found.queues, found.workers)

    async def delete(self, name: str) -> None:
        """Forget a namespace that nothing is left in."""
        await self._connection.ask("DELETE", f"{NAMESPACES}/{quote(name, safe='')}", {})


def _namespace(info: NamespaceInfo | NamespaceDetail) -> NamespaceRow:
    return NamespaceRow(info.name, as_ms(info.created_at))


class RemoteAccessKeys:
    """Asks a server for keys; what an admin needs of the AccessKeys of an engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(self, request: KeyRequest) -> MadeKey:
        """Make a key; it is good when this returns."""
        body = {
            "label": request.label,
            "scopes": request.scopes,
            "namespaces": request.namespaces,
            "queues": request.queues,
            "entity_id": request.entity_id,
            "expires": None if request.expires_in_ms is None else request.expires_in_ms / 1000,
        }
        return msgspec.json.decode(await self._connection.post(KEYS, body), type=MadeKey)

    async def all(self) -> list[AccessKeyRow]:
        """All keys that the caller may see, without their hashes."""
        return [_key(info) for info in await items_at(self._connection, KEYS, KeyInfo)]

    async def revoke(self, key_id: str) -> None:
        """End a key; KeyNotFound, LastAdminKey."""
        await self._connection.ask("DELETE", f"{KEYS}/{quote(key_id, safe='')}", {})


def _key(info: KeyInfo) -> AccessKeyRow:
    rights = (info.scopes, info.namespaces, info.queues, info.entity_id)
    times = (_ms(info.expires_at), _ms(info.last_used_at), _ms(info.revoked_at))
    return AccessKeyRow(info.key_id, "", info.label, *rights, as_ms(info.created_at), *times)


def _ms(at: datetime | None) -> int | None:
    return None if at is None else as_ms(at)
