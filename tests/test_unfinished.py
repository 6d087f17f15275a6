"""Stopping in the middle of activities: those that do not finish in time are named."""

import asyncio
import logging
from pathlib import Path

import pytest

from perdure import Perdure, activity, workflow

begun: list[str] = []


@activity
async def drags_on(name: str) -> None:
    begun.append(name)
    await asyncio.Event().wait()


@workflow
async def takes_its_time(name: str) -> None:
    await drags_on(name)


@pytest.fixture
def url(tmp_path: Path) -> str:
    begun.clear()
    return f"sqlite:///{tmp_path}/unfinished.db"


async def have_begun(count: int) -> None:
    async with asyncio.timeout(120):
        while len(begun) < count:  # noqa: ASYNC110 - an event would belong to the loop of one test
            await asyncio.sleep(0)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if getattr(each, "event", "") == "activities_unfinished"]


async def test_an_activity_that_does_not_finish_in_time_is_named(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever deploys has to know what is done twice."""
    with caplog.at_level(logging.WARNING, "perdure"):
        async with Perdure(url, grace=0.01) as app:
            await app.start(takes_its_time.options(id="t-1"), "ann")
            await have_begun(1)
    (line,) = said(caplog)
    assert line == (
        "1 activity did not finish within 0.01 s and will run again when a worker has the run: drags_on of run 't-1'"
    )


async def test_of_many_the_first_few_are_named(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A worker may have thousands under way; a line of a log has room for a few."""
    async with Perdure(url, grace=0.01) as app:
        for number in range(7):
            await app.start(takes_its_time.options(id=f"t-{number}"), "ann")
        await have_begun(7)
    (line,) = said(caplog)
    assert line.startswith("7 activities did not finish")
    assert line.endswith(" and 2 more")


async def test_without_grace_nobody_waits_and_nothing_is_said(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with Perdure(url, grace=0) as app:
        await app.start(takes_its_time.options(id="t-1"), "ann")
        await have_begun(1)
    assert said(caplog) == []
