"""Every test of real processes gets a site of its own, cleared away whatever happens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.sites import Site, at_work


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A folder for a database and its worker processes."""
    yield from at_work(tmp_path)
