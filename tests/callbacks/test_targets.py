"""Target networks that follow episodes."""

from types import SimpleNamespace
from typing import Any

import pytest

from rlmem.callbacks.targets import EpisodeTargets, target_updates
from rlmem.collect.module import TrainerSteps
from tests.collect.helpers import ScriptedEnv, make_stream
from tests.collect.test_collector import ring
from tests.settings import settings


def updates(*lengths: int, vector_steps: int = 1, rounds: int = 1, before: int = 0) -> list[int]:
    """Env steps at which the target is updated; training starts after `before` rounds."""
    stream = make_stream(ScriptedEnv(*lengths), ring(len(lengths)), vector_steps=vector_steps)
    for _ in range(before):
        next(stream)
    found: list[int] = []
    agent: Any = SimpleNamespace(update_target=lambda: found.append(stream.env_steps))
    for step in TrainerSteps(stream, rounds, [EpisodeTargets(stream, agent)]):
        for batch in step:
            step.learned(batch, {})
    return found


@pytest.mark.parametrize("rounds", [1, 7])
def test_the_target_is_updated_at_each_episodes_end(rounds: int) -> None:
    assert updates(9, rounds=rounds) == [9, 18, 27, 36, 45, 54, 63, 72, 81, 90, 99]


def test_once_a_round_however_many_episodes_end_in_it() -> None:
    assert updates(10, 10, 15) == [30, 45, 60, 90]
    assert updates(4, vector_steps=10) == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]


def test_a_resumed_run_had_its_updates_before() -> None:
    assert updates(9, before=12)[0] == 18


@pytest.mark.parametrize(
    ("given", "count"),
    [
        (["agent.target_update_every=episode"], 1),
        (["agent.target_update_every=100"], 0),
        (["agent=ddpg", "env=reacher"], 0),
    ],
)
def test_only_a_run_that_asks_has_the_listener(given: list[str], count: int) -> None:
    stream: Any = make_stream(ScriptedEnv(9), ring(1))
    assert len(target_updates(settings(*given), stream, None)) == count
