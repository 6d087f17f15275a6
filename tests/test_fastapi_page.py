"""The FastAPI page is true: its two programs run as they stand, with a worker in a process of its own."""

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from perdure import Perdure
from perdure.authoring.activity import activities
from perdure.authoring.workflow import workflows

PAGE = (Path(__file__).parent.parent / "docs" / "fastapi.md").read_text()


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """The page's web application, served from a folder of its own."""
    for program in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        name = re.match(r"# (\w+\.py)\n", program)
        assert name is not None
        (tmp_path / name[1]).write_text(program)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PERDURE_URL", "sqlite:///shop.db")
    # Names of workflows are those of the process; here nobody else has any.
    monkeypatch.setattr(workflows, "_known", {})
    monkeypatch.setattr(activities, "_known", {})
    with TestClient(importlib.import_module("web").web) as client:
        yield client
    for module in ("web", "orders"):
        del sys.modules[module]


@contextmanager
def at_work() -> Iterator[subprocess.Popen[str]]:
    """A worker as the page starts it, once it is ready."""
    words = [sys.executable, "-m", "perdure.cli", "worker", "orders"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as one:
        assert one.stdout is not None
        assert any(" is ready on " in line for line in one.stdout)
        try:
            yield one
        finally:
            one.terminate()


def test_an_order_is_placed_approved_and_done(client: TestClient) -> None:
    """With nobody at work, with a worker, and with another one after a restart: no request has to know."""
    placed = client.post("/orders", json={"id": "o-17", "cents": 4200})
    assert (placed.status_code, placed.json()["status"]) == (202, "PENDING")
    early = client.get("/orders/o-17/receipt", params={"wait": 0.01})
    assert (early.status_code, early.json()["id"], early.headers["Retry-After"]) == (202, "o-17", "1")
    with at_work():
        while (state := client.get("/orders/o-17").json())["step"] is None:
            assert state["error"] is None
    again = client.post("/orders", json={"id": "o-17", "cents": 4200})
    assert (again.status_code, again.json()["step"]) == (202, "waiting for approval")
    for _ in range(2):
        assert client.post("/orders/o-17/approval", json={"by": "ann"}).status_code == 204
    with at_work():
        done = client.get("/orders/o-17/receipt", params={"wait": 30})
    assert (done.status_code, done.json()) == (200, {"receipt": "receipt-o-17-4200, approved by ann"})
    assert client.get("/orders/o-17").json()["status"] == "COMPLETED"


def test_what_goes_wrong_is_told_with_a_code(client: TestClient) -> None:
    assert client.get("/orders/nope").status_code == 404
    assert client.post("/orders", json={"id": "o-1", "cents": 200_000}).status_code == 202
    other = client.post("/orders", json={"id": "o-1", "cents": 1})
    assert (other.status_code, "it has other arguments" in other.json()["detail"]) == (409, True)
    assert client.post("/orders", json={"id": "", "cents": 1}).status_code == 422
    assert client.post("/orders/o-1/approval", json={"by": "ann"}).status_code == 204
    # As the page says of tests: a worker in the same process.
    with Perdure("sqlite:///shop.db").sync():
        failed = client.get("/orders/o-1/receipt", params={"wait": 30})
    assert (failed.status_code, "the card was declined" in failed.json()["detail"]) == (424, True)
    # It has arrived before, and is not sent anew; to a run that has ended without it nobody can send it any more.
    assert client.post("/orders/o-1/approval", json={"by": "ann"}).status_code == 204
    client.post("/orders", json={"id": "o-2", "cents": 1})
    with Perdure("sqlite:///shop.db", worker=False).sync() as shop:
        shop.get("o-2").terminate()
    assert client.post("/orders/o-2/approval", json={"by": "ann"}).status_code == 409


def test_every_link_of_the_page_leads_somewhere() -> None:
    docs = Path(__file__).parent.parent / "docs"
    for target, anchor in re.findall(r"\]\((\w[\w/-]*\.md)(?:#([\w-]+))?\)", PAGE):
        headings = re.findall(r"^#+ (.+)$", (docs / target).read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors
