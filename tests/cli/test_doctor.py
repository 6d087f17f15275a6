"""`perdure doctor`: what it finds, and that it changes nothing."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from perdure.diagnostics import machine as machine_checks
from perdure.diagnostics import sqlite as database_checks
from perdure.diagnostics.sqlite import check_database
from perdure.stores.sqlite.checks import health
from tests.cli.modules import SHOP
from tests.cli.shell import Answer, Shell, Zygote, command, environment

WRITES = (
    "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None); "
    "db.execute('begin immediate'); print(flush=True); input()"
)
HOLDS = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"

# On a disk of its own: a worker of another queue whose lease runs out, a run that is due, and not a byte left.
FILLS = """
import shutil, sqlite3, subprocess, sys
from pathlib import Path
perdure = [sys.executable, "-m", "perdure.cli"]
subprocess.run([*perdure, "start", "shop:greet", '["a"]'], check=True, capture_output=True)
words, both = [*perdure, "worker", "shop", "--queue", "other"], {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
with subprocess.Popen(words, **both, text=True) as worker:
    assert any(" is ready on " in line for line in iter(worker.stdout.readline, ""))
    db = sqlite3.connect("perdure.db", isolation_level=None)
    db.execute("update runs set updated_at = updated_at - 60000")
    db.execute("update workers set lease_until = lease_until - 60000")
    with Path("ballast").open("ab", buffering=0) as ballast:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    ballast.write(bytes(size))
            except OSError:
                continue
    subprocess.run([*perdure, "doctor"], check=False)
    worker.kill()
"""


def findings(done: Answer) -> dict[str, tuple[str, str]]:
    """What was found by each check, with its state; the last one where a check speaks more than once."""
    checks = Answer(0, done.out, done.err).json["checks"]
    return {each["check"]: (each["state"], each["found"]) for each in checks}


def change(shell: Shell, sql: str) -> None:
    with closing(sqlite3.connect(shell.folder / "perdure.db")) as db:
        db.executescript(sql)


@contextmanager
def holding(program: str, path: Path) -> Iterator[int]:
    """A process that holds something of a file; its id."""
    words = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        try:
            yield holder.pid
        finally:
            holder.communicate(b"\n")


@pytest.fixture
def used(shell: Shell) -> Shell:
    """A shell whose database has been used."""
    assert shell("run", "shop:greet", '["a"]').code == 0
    return shell


def test_an_empty_folder_is_well(shell: Shell) -> None:
    done = shell("doctor")
    assert done.code == 0
    found = findings(done)
    assert found["python"][1].endswith(sys.version.split()[0])
    assert re.search(r"^SQLite 3\.\d+\.\d+, every commit is synced \(synchronous = full\)$", found["sqlite"][1])
    assert re.search(r"^fsync works and takes [\d.e-]+ ms$", found["fsync"][1])
    assert found["database"] == ("ok", f"{shell.folder / 'perdure.db'} is not there yet; the first run creates it")
    assert sorted(path.name for path in shell.folder.iterdir()) == ["film.py", "gpu.py", "shop.py", "trip.py"]


def test_a_database_in_use_is_looked_at_and_left_alone(used: Shell) -> None:
    """Not a byte of it changes, and no file appears beside it."""
    before = {path: path.read_bytes() for path in used.folder.rglob("*") if path.is_file()}

    done = used("doctor")

    assert done.code == 0
    found = findings(done)
    assert {state for state, _ in found.values()} == {"ok"}
    assert found["database"][1].endswith(" kB, with a write-ahead log")
    assert found["workers"] == ("ok", "none is alive")
    assert found["runs"] == ("ok", "none open")
    assert {path: path.read_bytes() for path in used.folder.rglob("*") if path.is_file()} == before


def test_workers_are_seen_alive_and_dead(used: Shell) -> None:
    with used.at_work() as worker:
        assert findings(used("doctor"))["workers"] == (
            "ok",
            f"1 worker alive (process {worker.pid}, queues default and slow, 0 runs)",
        )
        worker.send(signal.SIGKILL)
        worker.wait()
    state, said = findings(used("doctor"))["worker"]
    assert state == "warning"
    assert said == f"process {worker.pid} on {os.uname().nodename}, 0 runs: is gone"


def test_a_worker_that_hangs_or_is_elsewhere_is_told(used: Shell) -> None:
    with used.at_work() as worker:
        worker.send(signal.SIGSTOP)
        change(used, "update workers set lease_until = lease_until - 60000")
        assert "has not renewed its lease for" in findings(used("doctor"))["worker"][1]
        change(used, "update workers set host = 'elsewhere'")
        assert "on elsewhere, 0 runs: on another machine" in findings(used("doctor"))["worker"][1]


def test_runs_that_nobody_takes_or_that_are_held_are_told(shell: Shell) -> None:
    assert shell("start", "shop:greet", '["a"]', "--id", "g-1").code == 0
    change(shell, "update runs set updated_at = updated_at - 60000")
    state, said = findings(shell("doctor"))["runs"]
    assert state == "warning"
    assert re.match(r"1 run open; 1 run could go on, since 60\.\d s at most, but no worker takes them", said)
    code, seen = shell.at_terminal("doctor")
    assert code == 0
    assert "\n                      → start one that has the code: `perdure worker MODULE`\n" in seen
    change(shell, "update runs set held = 'mismatch'")
    done = shell("doctor")
    assert (done.code, findings(done)["runs"]) == (1, ("trouble", "1 run open; 1 held"))


def test_held_runs_are_told_beside_those_that_nobody_takes(shell: Shell) -> None:
    """Whoever starts the missing worker and looks no further would leave them held for ever."""
    for name in ("ann", "bob"):
        assert shell("start", "shop:greet", f'["{name}"]', "--id", name).code == 0
    change(shell, "update runs set updated_at = updated_at - 60000")
    change(shell, "update runs set held = 'mismatch' where workflow_id = 'bob'")
    (found,) = [each for each in json.loads(shell("doctor").out)["checks"] if each["check"] == "runs"]
    assert re.match(r"2 runs open; 1 held; 1 run could go on, since .* but no worker takes", found["found"])
    assert "`perdure worker " in found["remedy"]
    assert "`perdure list --status held`" in found["remedy"]


def test_what_an_audit_finds_is_told(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that cannot be read were counted among those that are well, and nothing led to the audit."""
    for id in ("g-1", "g-2", "g-3"):
        assert shell("start", "shop:greet", '["a"]', "--id", id).code == 0
    assert findings(shell("doctor"))["audit"] == ("ok", "everything fits together")
    change(shell, "update runs set status = 'BOGUS' where workflow_id = 'g-1'")
    change(shell, "update runs set attributes = '{oops', step = x'00' where workflow_id = 'g-2'")
    done = shell("doctor")
    state, said = findings(done)["audit"]
    assert (done.code, state) == (0, "warning")
    assert re.fullmatch(r"\d findings in 2 runs", said)
    assert "→ `perdure audit` tells them, and what to do" in shell.at_terminal("doctor")[1]
    monkeypatch.setattr(database_checks, "LARGEST_AUDITED", 10)
    found = {each.check: each for each in check_database(shell.folder / "perdure.db")}["audit"]
    assert (found.state, found.found) == ("ok", "not done, the file is large; `perdure audit` does it")


@pytest.mark.parametrize(
    ("sql", "check", "state", "said"),
    [
        ("update perdure_schema set version = 99", "schema", "trouble", "99; this Perdure knows up to "),
        ("update perdure_schema set version = 1", "schema", "trouble", "1, but the column runs."),
        ("drop index runs_ripe", "schema", "trouble", ", but the index runs_ripe is missing"),
        ("drop table attempts", "schema", "trouble", ", but the table attempts is missing"),
        (
            "drop view v_runs; alter table runs drop column step",
            "schema",
            "trouble",
            ", but the column runs.step is missing",
        ),
        ("update runs set updated_at = updated_at + 3600000", "clock", "trouble", "was last written 60 min in the fut"),
        ("update runs set updated_at = updated_at + 30000", "clock", "warning", " s in the future"),
        ("pragma journal_mode = delete", "database", "warning", "has no write-ahead log"),
    ],
)
def test_what_is_wrong_with_a_database_is_told(used: Shell, sql: str, check: str, state: str, said: str) -> None:
    change(used, sql)
    done = used("doctor")
    found = findings(done)[check]
    assert (done.code, found[0]) == (1 if state == "trouble" else 0, state)
    assert said in found[1]


def test_runs_that_were_written_by_a_clock_that_was_ahead_are_named(shell: Shell) -> None:
    """Beside them others were written since, by the right time; nobody would know whose timers to look at."""
    for id in ("g-1", "g-2", "g-3", "g-4", "g-5"):
        assert shell("start", "shop:greet", '["a"]', "--id", id).code == 0
    day = 86_400_000
    change(
        shell,
        f"update runs set created_at = created_at + {day}, updated_at = updated_at + {day} where workflow_id < 'g-5'",
    )
    done = shell("doctor")
    (found,) = [each for each in json.loads(done.out)["checks"] if each["check"] == "clock"]
    assert (done.code, found["state"]) == (1, "trouble")
    assert re.fullmatch(r".* last written 24 h in the future; of the open runs ('g-\d', ){3}1 more", found["found"])
    assert "timers and delays" in found["remedy"]


def test_files_that_are_no_database_are_trouble(used: Shell) -> None:
    whole = (used.folder / "perdure.db").read_bytes()
    (used.folder / "torn.db").write_bytes(whole[:8192] + os.urandom(len(whole) - 8192))
    with closing(sqlite3.connect(used.folder / "other.db")) as db:
        db.execute("create table customers (name)")
    for name, check, state in (
        ("shop.py", "database", "trouble"),
        ("torn.db", "database", "trouble"),
        ("no/such/folder.db", "disk", "trouble"),
        ("other.db", "schema", "trouble"),
    ):
        done = used("doctor", "--url", f"sqlite:///{name}")
        assert findings(done)[check][0] == state, name
        assert done.code == (1 if state == "trouble" else 0)


def test_the_database_of_another_program_is_told_as_a_start_tells_it(used: Shell) -> None:
    """It was called well, and the start that the doctor proposed was refused."""
    with closing(sqlite3.connect(used.folder / "crm.db")) as db:
        db.execute("create table customers (name)")
    url = ("--url", "sqlite:///crm.db")
    started = used("start", "shop:greet", '["a"]', *url)

    done = used("doctor", *url)

    state, said = findings(done)["schema"]
    assert (done.code, state) == (1, "trouble")
    assert said == "it is the database of another program (tables: customers)"
    assert said in started.err
    assert "PERDURE_ADOPT=1" in done.out
    assert "write-ahead log" not in findings(done)["database"][1]
    assert not {"runs", "workers"} & findings(done).keys()


def test_the_database_of_another_program_may_be_adopted(used: Shell) -> None:
    with closing(sqlite3.connect(used.folder / "crm.db")) as db:
        db.execute("create table customers (name)")
    done = used("doctor", "--url", "sqlite:///crm.db", PERDURE_ADOPT="1")
    assert (done.code, findings(done)["schema"][0]) == (0, "warning")


def test_a_write_lock_that_is_never_free_is_told(used: Shell) -> None:
    with holding(HOLDS, used.folder / "perdure.db.locks" / "write") as pid:
        state, said = findings(used("doctor"))["locks"]
    assert state == "warning"
    assert re.match(rf"process {pid} \(.*\) has held the write lock for 1 s at least$", said)


def test_a_program_that_writes_without_end_is_told(used: Shell) -> None:
    """It has not asked for our lock, and still nobody else can write."""
    with holding(WRITES, used.folder / "perdure.db") as pid:
        state, said = findings(used("doctor"))["locks"]
    assert state == "warning"
    assert re.match(rf"process {pid} \(.*\) has been writing for 1 s at least$", said)


def test_locks_that_nobody_has_are_told(used: Shell) -> None:
    (used.folder / "perdure.db.locks" / "0123456789ab").touch()
    assert findings(used("doctor"))["lock files"] == ("warning", "1 lock left behind by workers: 0123456789ab")


def test_an_older_schema_is_told(shell: Shell) -> None:
    first = Path(__file__).parents[2] / "src/perdure/stores/sqlite/migrations/0001.sql"
    with closing(sqlite3.connect(shell.folder / "perdure.db")) as db:
        db.executescript(first.read_text())
    done = shell("doctor")
    state, said = findings(done)["schema"]
    assert (done.code, state) == (0, "warning")
    assert said.startswith("1; this Perdure makes it ")


def test_settings_and_permissions_that_are_unwise_are_told(used: Shell) -> None:
    assert findings(used("doctor"))["settings"] == ("ok", "write-ahead log, pages of 4.0 kB")
    assert findings(used("doctor"))["permissions"][0] == "ok"
    (used.folder / "perdure.db").chmod(0o666)
    assert findings(used("doctor"))["permissions"] == ("warning", "everybody can write to perdure.db")
    with closing(sqlite3.connect(used.folder / "perdure.db")) as db:
        db.execute("pragma journal_mode = delete")
        db.execute("pragma auto_vacuum = full")
        db.execute("vacuum")
    assert findings(used("doctor"))["settings"][0] == "warning"


def test_processes_that_share_a_file_with_an_old_sqlite_are_told(used: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is moved, for the SQLite of this Python cannot be."""
    with used.at_work(), used.at_work():
        monkeypatch.setattr(health, "WITHOUT_RESET_RACE", (99, 0, 0))
        found = {each.check: each for each in check_database(used.folder / "perdure.db")}
        assert found["sharing"].state == "warning"
        assert found["sharing"].found.startswith("2 processes share the file with SQLite 3.")
        monkeypatch.setattr(health, "WITHOUT_RESET_RACE", (3, 0, 0))
        assert "sharing" not in {each.check for each in check_database(used.folder / "perdure.db")}


def test_a_worker_without_its_lock_is_told(used: Shell) -> None:
    """So it looks when only the file was copied."""
    with used.at_work() as worker:
        worker.send(signal.SIGKILL)
        worker.wait()
    for lock in (used.folder / "perdure.db.locks").iterdir():
        lock.unlink()
    assert findings(used("doctor"))["worker"][1].endswith("0 runs: its lock is missing")


def test_a_log_that_grows_without_end_is_told(used: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_checks, "LARGE_LOG", 1000)
    with used.at_work():
        found = {each.check: each for each in check_database(used.folder / "perdure.db")}
    assert found["database"].state == "warning"
    assert "and a log of" in found["database"].found


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("rights", [0o600, 0o644])
def test_a_folder_that_cannot_be_written_is_told(zygote: Zygote, rights: int) -> None:
    """As another user: nothing can be written, neither by doctor nor by a run; nor read, unless that was allowed."""
    with tempfile.TemporaryDirectory() as name:
        shell = Shell(zygote, Path(name))
        (shell.folder / "shop.py").write_text(SHOP)
        assert shell("run", "shop:greet", '["a"]').code == 0
        shell.folder.chmod(0o755)
        assert (shell.folder / "perdure.db").stat().st_mode & 0o777 == 0o600
        (shell.folder / "perdure.db").chmod(rights)

        done = shell("doctor", AS_USER="65534")

        assert done.code == 1
        found = findings(done)
        assert found["fsync"][0] == found["database"][0] == "trouble"
        assert found.get("locks", ("",))[0] == ("trouble" if rights == 0o644 else "")
        for words in (
            ["run", "shop:greet", '["a"]'],
            ["run", "shop:greet", '["a"]', "--url", "sqlite:///new.db"],
            ["start", "shop:greet", '["a"]'],
            ["worker", "shop"],
            ["list"],
            ["show", "a"],
        ):
            done = shell(*words, AS_USER="65534")
            assert (done.code, done.out, done.err.count("\n")) == (1, "", 1), done.err
            assert re.match(r"error: sqlite:///.* `perdure doctor.*` looks closer\n", done.err)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_users_share_a_database_whose_file_both_may_write(zygote: Zygote) -> None:
    """Made beforehand with those rights, as docs/operating.md says; the locks beside it take over the same."""
    with tempfile.TemporaryDirectory() as name:
        shell = Shell(zygote, Path(name))
        (shell.folder / "shop.py").write_text(SHOP)
        (shell.folder / "perdure.db").touch()
        for each in (shell.folder, shell.folder / "perdure.db"):
            each.chmod(0o777 if each.is_dir() else 0o666)
        for user in ("0", "65534", "0"):
            done = shell("run", "shop:greet", '["a"]', AS_USER=user)
            assert done.code == 0, done.err
        with shell.at_work():
            assert shell("start", "shop:greet", '["b"]', "--id", "b", AS_USER="65534").code == 0
            assert shell("wait", "b", AS_USER="65534").code == 0


def test_little_space_and_strange_disks_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits are moved, for the disk cannot be."""
    assert next(each.state for each in machine_checks.check_disk(tmp_path, 2**60)) == "warning"
    monkeypatch.setattr(machine_checks, "LITTLE_SPACE", 2**60)
    assert next(each.state for each in machine_checks.check_disk(tmp_path)) == "warning"
    monkeypatch.setattr(machine_checks, "TOO_LITTLE_SPACE", 2**60)
    assert next(each.state for each in machine_checks.check_disk(tmp_path)) == "trouble"
    monkeypatch.setattr(machine_checks, "SLOW_SYNC_MS", 0)
    assert "warning" in {each.state for each in machine_checks.check_disk(tmp_path) if each.check == "fsync"}
    mounts = tmp_path / "mounts"
    monkeypatch.setattr(machine_checks, "MOUNTS", mounts)
    for kind, state in (("nfs4", "trouble"), ("tmpfs", "warning"), ("ext4", "ok")):
        mounts.write_text(f"/dev/root / ext4 rw 0 0\nserver:/home {tmp_path} {kind} rw 0 0\n")
        assert [each.state for each in machine_checks.check_disk(tmp_path) if each.check == "file system"] == [state]


def test_while_the_disk_is_full_nobody_is_told_to_end_what_waits_for_room(folder: Path) -> None:
    """It said that no worker is alive, and to end the one that was; and that the folder should be made writable."""
    disk = folder / "disk"
    disk.mkdir()
    script = 'mount -t tmpfs -o size=16m tmpfs "$1" && cp shop.py "$1" && cd "$1" && exec "$2" -c "$3"'
    words = ["unshare", "--mount", "sh", "-c", script, "sh", str(disk), sys.executable, FILLS]
    done = subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("only root may mount a small file system to fill")
    assert done.stderr == ""
    checks = {each["check"]: each for each in json.loads(done.stdout)["checks"]}
    assert checks["disk"]["state"] == "trouble"
    assert checks["fsync"]["remedy"].startswith("make room")
    assert re.fullmatch(r"1 worker alive \(process \d+, queue other, 0 runs\)", checks["workers"]["found"])
    assert re.search(r"^process \d+ on .*: cannot renew its lease, for the disk is full$", checks["worker"]["found"])
    assert checks["worker"]["remedy"] == "make room; it goes on by itself"
    assert "1 run could go on" in checks["runs"]["found"]
    assert checks["runs"]["remedy"].startswith("make room")


def test_in_a_process_of_its_own_it_says_the_same(used: Shell) -> None:
    """Nothing that the other tests had loaded is missing."""
    done = subprocess.run(
        command("doctor", "--json"), cwd=used.folder, env=environment(), capture_output=True, text=True, check=True
    )
    assert findings(Answer(0, done.stdout, done.stderr)).keys() == findings(used("doctor")).keys()


def test_a_folder_in_place_of_a_file_is_called_one(shell: Shell) -> None:
    """A number of an error is no answer to whoever mistyped a path."""
    (shell.folder / "folder").mkdir()
    done = shell("doctor", "--url", "sqlite:///folder")
    assert done.code == 1
    assert findings(done)["database"] == ("trouble", f"{shell.folder / 'folder'} is a folder")


@pytest.mark.parametrize(
    "sql", ["update perdure_schema set version = 99", "alter table runs drop column outlived"], ids=["newer", "torn"]
)
def test_what_cannot_be_read_is_not_called_empty(used: Shell, sql: str) -> None:
    """`none open` would send whoever looks for lost runs home."""
    change(used, sql)
    found = findings(used("doctor"))
    assert found["schema"][0] == "trouble"
    assert found["runs"][0] == "warning"
    assert found["runs"][1].startswith("not looked at")
    assert not {"workers", "clock"} & found.keys()
