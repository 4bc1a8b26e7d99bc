"""Training with our buffers in Stable-Baselines3 is training with its own."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("stable_baselines3")

from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import StopTrainingOnMaxEpisodes
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from rlmem.integrations.sb3 import CompressedReplayBuffer
from tests.integrations.sb3 import screens, vectors


def weights_after(env: VecEnv, policy: str, count: int, learns: int = 1, **options: Any) -> Any:
    """Parameters of a DQN that was trained with a buffer, and the buffer."""
    model = DQN(
        policy,
        env,
        buffer_size=150,
        learning_starts=40,
        target_update_interval=50,
        batch_size=16,
        seed=0,
        device="cpu",
        **options,
    )
    for _ in range(learns):
        model.learn(count)
    return torch.cat([p.detach().reshape(-1) for p in model.policy.parameters()]), model


@pytest.mark.parametrize(
    ("policy", "env_of", "count", "options"),
    [
        ("CnnPolicy", lambda: screens(3, channels_first=False), 300, {"frame_stack": 4}),
        ("MlpPolicy", lambda: vectors(1), 400, {}),
        ("MlpPolicy", lambda: VecNormalize(vectors(2)), 400, {}),
    ],
    ids=["images", "vectors", "normalized"],
)
def test_a_run_is_the_same_run(
    policy: str, env_of: Callable[[], VecEnv], count: int, options: dict[str, Any]
) -> None:
    expected, _ = weights_after(env_of(), policy, count)
    own = {"replay_buffer_class": CompressedReplayBuffer, "replay_buffer_kwargs": options}
    found, model = weights_after(env_of(), policy, count, **own)
    assert torch.equal(found, expected)
    assert isinstance(model.replay_buffer, CompressedReplayBuffer)


def test_optimize_memory_usage_handles_timeouts_and_learns_on() -> None:
    expected, _ = weights_after(screens(1), "CnnPolicy", 120, learns=2)
    options: dict[str, Any] = {
        "replay_buffer_class": CompressedReplayBuffer,
        "replay_buffer_kwargs": {"frame_stack": 4},
        "optimize_memory_usage": True,
    }
    with pytest.warns(UserWarning, match="last trajectory"):
        found, _ = weights_after(screens(1), "CnnPolicy", 120, learns=2, **options)
    assert torch.equal(found, expected)


def test_learning_on_after_a_callback_stopped() -> None:
    options: dict[str, Any] = {"replay_buffer_class": CompressedReplayBuffer}
    model = DQN("MlpPolicy", vectors(1), buffer_size=100, seed=0, device="cpu", **options)
    model.learn(10_000, callback=StopTrainingOnMaxEpisodes(2))
    model.learn(50, reset_num_timesteps=False)
    assert model.replay_buffer is not None
    assert model.replay_buffer.size() == model.num_timesteps - 1  # the stopped step is not stored
