"""MeDQN's experiments, seconds of each."""

from pathlib import Path

import pytest

from rlmem.errors import UserError
from tests.runs.test_train import TINY_ATARI, run

slow = pytest.mark.slow
SMALL = ["trainer.max_env_steps=1100", "agent.learning_starts=1000"]


@slow
@pytest.mark.parametrize("name", ["mountain_car", "acrobot", "minatar"])
@pytest.mark.parametrize("memory", ["medqn_u", "medqn_r", "uniform"])
def test_the_published_settings_train_with_each_memory(
    name: str, memory: str, tmp_path: Path
) -> None:
    given = [f"experiment=medqn_{name}", f"memory={memory}", *SMALL, "agent.train_every=2"]
    if memory == "medqn_u":
        given.append("memory.capacity=32")  # as it is unless the tests set another
    summary = run(tmp_path, *given)
    assert (summary["status"], summary["memory"]) == ("finished", memory)
    assert summary["grad_steps"] == 51
    assert summary["memory_entries"] == (32 if memory == "medqn_u" else 1100)
    assert (summary["memory_components"].get("bounds", 0) > 0) == (memory == "medqn_u")


@slow
def test_a_small_real_memory_trains_on_a_game_of_atari(tmp_path: Path) -> None:
    small = ["agent.train_every=4", "memory.capacity=100"]
    summary = run(tmp_path, "experiment=medqn_atari", *TINY_ATARI, *small)
    assert (summary["status"], summary["memory"]) == ("finished", "medqn_r")
    assert summary["memory_entries"] == 100


def test_states_are_not_drawn_of_pixels(tmp_path: Path) -> None:
    given = ["env=gym", "env.id=CarRacing-v3", "+env.kwargs.continuous=false", "memory=medqn_u"]
    with pytest.raises(UserError, match=r"screens of CarRacing-v3 drawn pixel by pixel are noise"):
        run(tmp_path, *given, tiny=["trainer.accelerator=cpu"])
