"""Activities, workflows and signals are pickled by name, as functions are: other processes have the same code."""

import copy
import pickle
from typing import Any

import pytest

from perdure import Retry, Signal, activity, workflow
from perdure.testing import Environment

arrived = Signal("arrived", list[int])
left = Signal[dict[str, int]]("left")


@activity
async def to_pickle(number: int, by: int = 2) -> int:
    return number * by


@workflow
async def pickled(number: int) -> int:
    return await to_pickle(number)


class Shop:
    """Names may have dots."""

    @staticmethod
    @activity
    async def sells(number: int) -> int:
        return number


def copied(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("function", [to_pickle, pickled, Shop.sells], ids=repr)
def test_a_function_comes_back_as_itself(function: Any) -> None:
    """A second one would have lost what the process knows of the first."""
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(function, protocol)) is function
    assert copy.copy(function) is copy.deepcopy(function) is function


async def test_a_copy_with_options_comes_back_with_them(env: Environment) -> None:
    step = to_pickle.options(retry=Retry(max_attempts=7, non_retryable=(KeyError,)), timeout=5, key="k", queue="gpu")
    again = copied(step)
    assert (again.settings, again.key, again.fn) == (step.settings, "k", to_pickle.fn)
    assert copied(to_pickle.tried(step.settings)).settings == step.settings
    async with env:
        started = copied(pickled.options(id="p-1", priority=3, attributes={"a": 1}, timeout=60))
        run = await env.start(started, 4)
        assert await env.result(run) == 8
        assert (run.id, (await run.describe()).priority) == ("p-1", 3)


@pytest.mark.parametrize("signal", [arrived, left], ids=repr)
def test_a_signal_comes_back_with_its_name_and_type(signal: Signal[Any]) -> None:
    """Also after it was used, when it has made what it needs for its payloads."""
    payload = signal.payload.annotation
    assert signal.payload.record([1] if signal is arrived else {"a": 1}, "here")
    again = copied(signal)
    assert (type(again), again.name, again.payload.annotation) == (Signal, signal.name, payload)


def test_what_no_other_process_can_find_says_so() -> None:
    @activity
    async def inside(number: int) -> int:
        return number

    with pytest.raises((pickle.PicklingError, AttributeError), match="inside"):
        pickle.dumps(inside)
