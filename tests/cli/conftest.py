"""Every test of the command line gets an empty folder with a few modules, and a shell in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.modules import FILM, GPU, SHOP, TRIP
from tests.cli.shell import Shell, Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    zygote = Zygote()
    yield zygote
    zygote.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "trip.py").write_text(TRIP)
    (tmp_path / "film.py").write_text(FILM)
    (tmp_path / "gpu.py").write_text(GPU)
    return tmp_path


@pytest.fixture
def shell(zygote: Zygote, folder: Path) -> Shell:
    return Shell(zygote, folder)
