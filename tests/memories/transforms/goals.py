"""Goals for random environments, what may lend them, and memories with hindsight."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tensordict import TensorDict

from rlmem.memories import (
    CombinedSampler,
    HindsightTransform,
    PrioritizedSampler,
    RankSampler,
    ReplayMemory,
    RingWriter,
    UniformSampler,
)
from rlmem.memories.transforms.hindsight import STRATEGIES
from tests.memories.helpers import RandomEnvs
from tests.memories.ring.test_ring_storages import make

OWN, GOAL = 3, 2  # numbers of an observation and of a goal
SAMPLERS: dict[str, Callable] = {
    "uniform": lambda capacity: UniformSampler(),
    "cer": lambda capacity: CombinedSampler(),
    "per": PrioritizedSampler,
    "per_rank": RankSampler,
}
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)
each_sampler = pytest.mark.parametrize("sampler", SAMPLERS)


class Distance:
    """Reward -|achieved - desired|; an episode ends where that is at most `radius`."""

    def __init__(self, radius: float = 0.0) -> None:
        self.radius = radius

    def reward(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        return -np.abs(achieved - desired).sum(1)

    def terminated(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        return np.abs(achieved - desired).sum(1) <= self.radius


class GoalEnvs(RandomEnvs):
    """Random environments with goals; `done` says how they end.

    Transition n achieves the goal [n, -n]; an episode's own goal is [-e, -e] for the e-th one, and
    never achieved, so a goal names where it is from. All that is written is kept in `rows`.
    """

    def __init__(self, rng: np.random.Generator, num_envs: int = 1, end: float = 0.15) -> None:
        super().__init__(rng, (OWN,), np.float32, num_envs, end)
        self.rows: list[dict[str, Any]] = []
        self.episodes = 0
        self.current: dict[int, int] = {}

    def block(self, rows: int, *, in_turn: bool = False) -> dict[str, Any]:
        block = super().block(rows, in_turn=in_turn)
        following, goals = block["next"], []
        done = (following["terminated"] | following["truncated"])[:, 0]
        for env, ends, terminated in zip(
            block["env_id"].tolist(), done, following["terminated"][:, 0], strict=True
        ):
            if env not in self.current:
                self.episodes += 1
                self.current[env] = self.episodes
            episode = self.current.pop(env) if ends else self.current[env]
            self.rows.append({"episode": episode, "terminated": terminated, "done": ends})
            goals.append([-episode, -episode])
        numbers = np.arange(len(self.rows) - rows, len(self.rows), dtype=np.float32)
        following["achieved_goal"] = np.stack([numbers, -numbers], 1)
        desired = np.array(goals, np.float32)
        for data in (block, following):
            data["observation"] = np.concatenate([data["observation"], desired], 1)
        return block


class Reference:
    """What was written, in lists: which transitions may lend a goal to which.

    Args:
        rows: of `GoalEnvs`.
        held: how many of the newest are held.
    """

    def __init__(self, rows: list[dict[str, Any]], held: int) -> None:
        self.rows = rows
        self.held = list(range(len(rows) - held, len(rows)))

    def lenders(self, number: int, strategy: str) -> list[int]:
        if strategy == "random":
            return self.held
        same = [n for n in self.held if self.rows[n]["episode"] == self.rows[number]["episode"]]
        if strategy == "episode":
            return same
        return [n for n in same if n >= number] if strategy == "future" else same[-1:]


def hindsight_memory(
    strategy: str = "future",
    capacity: int = 60,
    *,
    kind: str = "frames",
    sampler: str = "uniform",
    num_envs: int = 2,
    k: int = 4,
    seed: int = 0,
    rules: Any = None,
) -> ReplayMemory:
    rules = rules or Distance()
    storage = make(kind, capacity, (OWN + GOAL,), np.float32, num_envs=num_envs)
    hindsight = HindsightTransform(
        capacity, GOAL, rules.reward, rules.terminated, strategy=strategy, k=k
    )
    return ReplayMemory(
        storage, SAMPLERS[sampler](capacity), RingWriter(), seed=seed, transforms=[hindsight]
    )


def hindsight_of(memory: ReplayMemory) -> HindsightTransform:
    (part,) = memory.transforms
    assert isinstance(part, HindsightTransform)
    return part


def achieved_of(memory: ReplayMemory, index: np.ndarray) -> np.ndarray:
    """Numbers of the transitions at slots."""
    return hindsight_of(memory)._achieved[index][:, 0].astype(int)


def columns(batch: TensorDict) -> dict[str, np.ndarray]:
    """A batch as flat arrays: own, after, goal, goal_after, reward, and the three flags."""
    frames = batch["observation"].numpy().reshape(-1, OWN + GOAL)
    after = batch["next", "observation"].numpy().reshape(-1, OWN + GOAL)
    return {
        "own": frames[:, :OWN],
        "goal": frames[:, OWN:],
        "after": after[:, :OWN],
        "goal_after": after[:, OWN:],
        "index": batch["index"].numpy().reshape(-1),
        "reward": batch["next", "reward"].numpy().reshape(-1),
        **{c: batch["next", c].numpy().reshape(-1) for c in ("terminated", "truncated", "done")},
    }
