"""The files of a SQLite database: which are refused, and who may use those that are made."""

import os
import socket
import sqlite3
import stat
from pathlib import Path

import pytest

from perdure import Perdure, workflow
from perdure.errors import BadOption, NotADatabase


@workflow
async def says_so() -> str:
    return "so"


def rights(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):o}"


def all_rights(folder: Path) -> dict[str, str]:
    """The rights of all files below a folder, but for the random names of workers' locks."""
    found = {each.relative_to(folder).as_posix(): rights(each) for each in folder.rglob("*")}
    return {name if name.count("/") == 0 or name.endswith("write") else "worker": mode for name, mode in found.items()}


# What cannot be a database


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a%00b.db", "NUL character"),
        ("a\0b.db", "NUL character"),
        ("shop.db\n", "line break"),
        ("a%0Ab.db", "line break"),
        ("a\x1b[2Jb.db", "control character"),
        ("a\u2028b.db", "line break"),
        ("a\ud800b.db", "surrogate"),
    ],
)
def test_a_name_that_nobody_can_read_or_type_is_refused(tmp_path: Path, name: str, told: str) -> None:
    """A URL read from a file with its line's end would make a second database that looks like the first."""
    with pytest.raises(BadOption, match=f"{told}.*name another file"):
        Perdure(f"sqlite:///{tmp_path}/{name}")


@pytest.mark.parametrize("kind", ["folder", "pipe", "socket", "device", "link to a pipe"])
async def test_what_is_no_file_is_refused_before_it_is_opened(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To open a named pipe is to wait for whoever writes to it, for ever."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.db"
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as listens:
                # By a short name: those of sockets may not be long.
                listens.bind("x.db")
        case "device":
            path = Path("/dev/null")
        case _:
            os.mkfifo(tmp_path / "pipe")
            path.symlink_to(tmp_path / "pipe")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(NotADatabase, match="this is a (folder|named pipe|socket|device); name a file"):
        async with Perdure(f"sqlite:///{path}"):
            raise AssertionError
    assert sorted(tmp_path.iterdir()) == before


async def test_a_name_is_refused_when_it_is_too_long_for_the_files_beside_it(tmp_path: Path) -> None:
    for size, told in ((247, None), (248, "248 bytes; use up to 247"), (2000, "2000 bytes; use up to 247")):
        app = Perdure(f"sqlite:///{tmp_path}/{'x' * size}")
        if told is None:
            async with app:
                assert await app.run(says_so) == "so"
        else:
            with pytest.raises(NotADatabase, match=told):
                await app.__aenter__()


async def test_a_path_is_refused_when_it_is_too_long_for_sqlite(tmp_path: Path) -> None:
    """SQLite says `unable to open database file`, which sends people to look for rights and disks."""
    rest = 504 - len(os.fsencode(tmp_path)) - len("//x.db")
    folder = tmp_path / "/".join(["d" * 100] * (rest // 101) + ["d" * (rest % 101 or 1)])
    folder = folder if rest % 101 else folder.parent
    folder.mkdir(parents=True)
    fits = "x" * (504 - len(os.fsencode(folder)) - 1)
    async with Perdure(f"sqlite:///{folder}/{fits}") as app:
        assert await app.run(says_so) == "so"
    with pytest.raises(NotADatabase, match="the path has 505 bytes, SQLite takes 504; use a shorter one"):
        await Perdure(f"sqlite:///{folder}/{fits}x").__aenter__()


# Whose database it is


def with_a_table(path: Path, sql: str = "create table customers (name)") -> Path:
    db = sqlite3.connect(path)
    db.execute(sql)
    db.commit()
    db.close()
    return path


async def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    """A URL with the wrong file in it gave a customer database six tables more, and nobody was told."""
    path = with_a_table(tmp_path / "crm.db")
    before = path.read_bytes()
    with pytest.raises(
        NotADatabase, match=r"another program \(tables: customers\); name another file, or set PERDURE_"
    ):
        async with Perdure(f"sqlite:///{path}"):
            raise AssertionError
    assert (path.read_bytes(), [each.name for each in tmp_path.iterdir()]) == (before, ["crm.db"])


async def test_a_database_is_adopted_by_who_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it has our tables it is ours, and nothing has to be said any more."""
    url = f"sqlite:///{with_a_table(tmp_path / 'crm.db')}"
    monkeypatch.setenv("PERDURE_ADOPT", "1")
    async with Perdure(url) as app:
        assert await app.run(says_so) == "so"
    monkeypatch.delenv("PERDURE_ADOPT")
    async with Perdure(url) as app:
        assert len(await app.list()) == 1


async def test_who_has_tables_of_their_own_in_our_database_is_not_refused(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    async with Perdure(f"sqlite:///{path}"):
        pass
    with_a_table(path)
    async with Perdure(f"sqlite:///{path}") as app:
        assert await app.run(says_so) == "so"


async def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    """`touch`, `mktemp` and SQLite itself leave such files; what once had a table has pages, and no table any more."""
    (tmp_path / "touched.db").touch()
    with_a_table(with_a_table(tmp_path / "emptied.db"), "drop table customers")
    for name in ("touched.db", "emptied.db"):
        async with Perdure(f"sqlite:///{tmp_path / name}") as app:
            assert await app.run(says_so) == "so"


# Who may use it


async def test_all_files_are_their_owners_alone(tmp_path: Path) -> None:
    """Arguments and results are in there, of customers too; on a machine with several users all could read them."""
    umask = os.umask(0)
    try:
        async with Perdure(f"sqlite:///{tmp_path}/shop.db") as app:
            await app.run(says_so)
            found = all_rights(tmp_path)
    finally:
        os.umask(umask)
    assert found == {
        "shop.db": "600",
        "shop.db-wal": "600",
        "shop.db-shm": "600",
        "shop.db.locks": "700",
        "shop.db.locks/write": "600",
        "worker": "600",
    }


async def test_a_database_is_shared_with_those_who_may_write_to_its_file(tmp_path: Path) -> None:
    """As docs/operating.md says: made beforehand, with the rights that it shall have."""
    (tmp_path / "shop.db").touch()
    (tmp_path / "shop.db").chmod(0o660)
    tmp_path.chmod(0o2770)
    async with Perdure(f"sqlite:///{tmp_path}/shop.db") as app:
        await app.run(says_so)
        found = all_rights(tmp_path)
    assert found == {
        "shop.db": "660",
        "shop.db-wal": "660",
        "shop.db-shm": "660",
        "shop.db.locks": "2770",
        "shop.db.locks/write": "660",
        "worker": "660",
    }


async def test_what_is_there_keeps_its_rights(tmp_path: Path) -> None:
    """Somebody has chosen them; and nobody who may only read needs a lock."""
    (tmp_path / "shop.db").touch()
    (tmp_path / "shop.db").chmod(0o644)
    async with Perdure(f"sqlite:///{tmp_path}/shop.db"):
        assert (rights(tmp_path / "shop.db"), rights(tmp_path / "shop.db.locks")) == ("644", "700")


async def test_where_a_link_leads_to_no_file_yet_that_one_is_made(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "data.db")
    async with Perdure(f"sqlite:///{tmp_path}/link.db") as app:
        await app.run(says_so)
    assert rights(tmp_path / "data.db") == "600"
    assert (tmp_path / "link.db").is_symlink()


async def test_a_file_has_one_folder_of_locks_whatever_leads_to_it(tmp_path: Path) -> None:
    """Two processes that see different locks write at once, and take each other for dead."""
    (tmp_path / "data").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "data" / "shop.db")
    async with Perdure(f"sqlite:///{tmp_path}/link.db") as app, Perdure(f"sqlite:///{tmp_path}/data/shop.db"):
        await app.run(says_so)
        assert not (tmp_path / "link.db.locks").exists()
        # The lock of writing, and that of each worker.
        assert len(list((tmp_path / "data" / "shop.db.locks").iterdir())) == 3


async def test_a_link_that_leads_to_itself_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "one.db").symlink_to(tmp_path / "other.db")
    (tmp_path / "other.db").symlink_to(tmp_path / "one.db")
    with pytest.raises(NotADatabase, match="links that lead in a circle; name a file"):
        async with Perdure(f"sqlite:///{tmp_path}/one.db"):
            pass
    assert {path.name for path in tmp_path.iterdir()} == {"one.db", "other.db"}
