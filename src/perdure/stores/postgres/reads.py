"""What the Postgres store reads, on connections of their own, so that no read waits for a write."""

from collections.abc import Callable
from typing import TypeVar

from perdure.stores.listing import POSTGRES
from perdure.stores.postgres.address import Address
from perdure.stores.postgres.connections import LOST, READS, Links, is_about_database, unavailable
from perdure.stores.postgres.executor import answer
from perdure.stores.postgres.scan_floor import Floors
from perdure.stores.rows import Garbled
from perdure.stores.rules.questions import Steps
from perdure.stores.rules.reads import Reads

T = TypeVar("T")

# So many reads go on at once.
READERS = 3


class PostgresReads(Reads):
    """The reading half of the store."""

    _dialect = POSTGRES

    def __init__(self, address: Address) -> None:
        self.url = address.shown
        self._floors = Floors()
        self._equip(address)

    def _equip(self, address: Address) -> None:
        self.address = address
        self._readers = Links(address, READS, READERS)

    async def _ask(self, quickly: Callable[[], Steps[T]], slowly: Callable[[], Steps[T]] | None = None) -> T:
        try:
            return await self._read(quickly)
        except Garbled:
            return await self._read(slowly or quickly)

    async def _read(self, steps: Callable[[], Steps[T]]) -> T:
        async with self._readers.one() as link:
            try:
                try:
                    return await answer(await link.connection(), self.address.schema, steps(), self._floors)
                except LOST:
                    # It may have been lost while nobody needed it.
                    link.drop()
                    return await answer(await link.connection(), self.address.schema, steps(), self._floors)
            except Exception as error:
                if not is_about_database(error):
                    raise
                link.drop()
                raise unavailable(self.url, error) from None
