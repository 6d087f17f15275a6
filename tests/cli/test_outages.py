"""A server that is gone for a while: commands that wait for a run go on waiting, as workers do."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from tests.cli.shell import Command, Shell, until
from tools import servers

GONE = "warning: the database cannot be reached, waiting until it can: "
BACK = "the database can be reached again\n"
_schemas = count()
STARTED = ("run", "shop:checkout", '["o"]', "--id")


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    """A server that these tests stop and start as they like."""
    server = servers.Server(servers.folder(in_memory=True)).make().start()
    try:
        yield server
    finally:
        server.end()


class Waiting:
    """A command under way, and what it has said so far."""

    def __init__(self, command: Command, out: int, err: int) -> None:
        self.command = command
        self._files = out, err

    @property
    def out(self) -> str:
        return os.pread(self._files[0], 1 << 20, 0).decode()

    @property
    def err(self) -> str:
        return os.pread(self._files[1], 1 << 20, 0).decode()

    def until_told(self, text: str) -> None:
        until(lambda: text in self.err)


class Site:
    """A shell beside a server."""

    def __init__(self, shell: Shell, server: servers.Server) -> None:
        self.shell = shell
        self.server = server
        # Workers that were stopped without the server seem to be alive in it until their leases are over.
        self.url = f"{server.url}?schema=outage_{next(_schemas)}"

    def __call__(self, *words: str) -> str:
        done = self.shell(*words, PERDURE_URL=self.url)
        assert done.code in {0, 2}, done.err
        return done.out

    @contextmanager
    def begun(self, *words: str) -> Iterator[Waiting]:
        files = [os.memfd_create(name) for name in ("in", "out", "err")]
        with self.shell.begin(*words, files=files, PERDURE_URL=self.url) as command:
            yield Waiting(command, *files[1:])
        for file in files:
            os.close(file)

    def has_begun(self, id: str) -> bool:
        """Whether the run is there and waits for its signal."""
        done = self.shell("events", id, PERDURE_URL=self.url)
        return "TimerFired" in done.out

    @contextmanager
    def down(self) -> Iterator[None]:
        """A time without the server."""
        self.server.stop()
        try:
            yield
        finally:
            self.server.start()


@pytest.fixture
def site(shell: Shell, server: servers.Server) -> Site:
    return Site(shell, server)


def test_run_goes_on_when_the_server_is_back(site: Site) -> None:
    """The library waits through an outage; whoever types the same must not be worse off."""
    with site.begun(*STARTED, "o-1") as run:
        until(lambda: site.has_begun("o-1"))
        with site.down():
            run.until_told(GONE)
        run.until_told(BACK)
        site("signal", "o-1", "approved", "true")
        assert run.command.wait() == 0
        assert json.loads(run.out) == {"hold": "hold-o", "ok": True}
        assert [line.partition(":")[0] for line in run.err.splitlines()] == ["warning", BACK.strip()]


def test_wait_goes_on_when_the_server_is_back(site: Site) -> None:
    """A server is restarted for an update while a script waits; the script must not take the run for failed."""
    site("start", "shop:greet", '["ann"]', "--id", "g-1")
    with site.begun("wait", "g-1") as waiting:
        waiting.until_told("no worker is alive")
        with site.down():
            waiting.until_told(GONE)
        waiting.until_told(BACK)
        site("run", "shop:greet", '["ann"]', "--id", "g-1")
        assert waiting.command.wait() == 0
        assert waiting.out == '"hello ann"\n'
        assert waiting.err.count(GONE) == waiting.err.count(BACK) == 1
        assert len(waiting.err.splitlines()) == 3, waiting.err


def test_events_are_followed_when_the_server_is_back(site: Site) -> None:
    """None may be missed and none be shown twice."""
    site(*STARTED, "o-2", "--wait", "0.1")
    with site.begun("events", "o-2", "--follow") as following:
        until(lambda: "RunStarted" in following.out)
        with site.down():
            following.until_told(GONE)
        following.until_told(BACK)
        site("signal", "o-2", "approved", "true")
        site(*STARTED, "o-2")
        assert following.command.wait() == 0
        seen = [json.loads(line)["seq"] for line in following.out.splitlines()]
        assert seen == list(range(1, len(json.loads(site("events", "o-2"))) + 1))
        assert len(following.err.splitlines()) == 2, following.err


def is_under_way(site: Site, waiting: Waiting, *words: str) -> None:
    """Until a command has its run: what fails before is an error at once."""
    if words[0] == "run":
        until(lambda: site.has_begun(words[4]))
    else:
        waiting.until_told("no worker is alive")


@pytest.mark.parametrize("words", [(*STARTED, "o-3", "--wait", "3s"), ("wait", "g-3", "--timeout", "3s")])
def test_time_runs_out_during_an_outage_as_at_any_other_time(site: Site, words: tuple[str, ...]) -> None:
    """Whoever says how long to wait has something else to do after that."""
    site("start", "shop:greet", '["ann"]', "--id", "g-3")
    with site.begun(*words) as waiting:
        is_under_way(site, waiting, *words)
        with site.down():
            waiting.until_told("still open after 3 s; the run is kept on disk")
        assert (waiting.command.wait(), waiting.out) == (2, "")
        assert waiting.err.count(GONE) == 1
        assert "Traceback" not in waiting.err


@pytest.mark.parametrize("words", [(*STARTED, "o-4"), ("wait", "g-4")])
def test_who_interrupts_during_an_outage_is_told_how_to_go_on(site: Site, words: tuple[str, ...]) -> None:
    """It is the answer to the question that somebody has who gives up."""
    site("start", "shop:greet", '["ann"]', "--id", "g-4")
    with site.begun(*words) as waiting:
        is_under_way(site, waiting, *words)
        with site.down():
            waiting.until_told(GONE)
            waiting.command.send(signal.SIGINT)
            code = waiting.command.wait()
        assert code == 130, waiting.err
        assert "interrupted; the run is kept on disk" in waiting.err
        assert "Traceback" not in waiting.err


@pytest.mark.parametrize("words", [(*STARTED, "o-5"), ("wait", "o-5"), ("events", "o-5", "--follow")])
def test_a_server_that_is_down_from_the_beginning_is_an_error_at_once(site: Site, words: tuple[str, ...]) -> None:
    """A mistyped port must not look like an outage."""
    with site.down():
        done = site.shell(*words, PERDURE_URL=site.url)
    assert (done.code, done.out) == (1, "")
    assert "nobody listens there" in done.err
    assert len(done.err.splitlines()) == 1
