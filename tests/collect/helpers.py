"""An environment whose frames say where they come from, and memories that listen or are small."""

from dataclasses import fields
from typing import Any

import numpy as np

from rlmem.collect.collector import Collector, StreamConfig
from rlmem.envs import EnvSpec, Step
from rlmem.memories import FrameStorage, ReplayMemory, RingWriter, UniformSampler
from rlmem.memories.base.blocks import Block

REWARD = 2.5
COLUMNS = [field.name for field in fields(Block) if field.name != "columns"]


class ScriptedEnv:
    """Frames float32 [seed, env, episode, t]; env e's episodes last `lengths[e]` steps.

    Each step gives the reward 2.5. `resets` and `steps` count the calls.
    """

    def __init__(self, *lengths: int) -> None:
        self.lengths = np.array(lengths)
        dtype = np.dtype(np.float32)
        self.spec = EnvSpec("Scripted", "gym", len(lengths), (4,), dtype, 1, 3, 4)
        self.resets = self.steps = 0
        self.actions: list[np.ndarray] = []

    def _frames(self) -> np.ndarray:
        env = np.arange(len(self.lengths))
        seed = np.full_like(env, self._seed)
        return np.stack([seed, env, self._episode, self._t], axis=1).astype(np.float32)

    def reset(self, seed: int) -> np.ndarray:
        self.resets += 1
        self._seed = seed % 2**20  # exact in float32
        self._episode, self._t = np.zeros_like(self.lengths), np.zeros_like(self.lengths)
        return self._frames()

    def step(self, action: np.ndarray) -> Step:
        self.steps += 1
        self.actions.append(action)
        self._t = self._t + 1
        after, ends = self._frames(), self._t >= self.lengths
        self._episode = self._episode + ends
        self._t = np.where(ends, 0, self._t)
        reward = np.full(len(ends), REWARD, np.float32)
        return Step(self._frames(), after, reward, ends, np.zeros_like(ends))

    def render(self) -> np.ndarray:
        return np.full((4, 4, 3), self._t[0], np.uint8)

    def close(self) -> None:
        pass


class BlockLog:
    """In a memory's place: keeps copies of the blocks that come, gives no batch."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, np.ndarray]] = []

    def extend(self, block: Block) -> None:
        columns = {name: getattr(block, name) for name in COLUMNS} | block.columns
        self.blocks.append({name: column.copy() for name, column in columns.items()})

    def available(self, batch_size: int, num_batches: int) -> int:
        return 0

    def column(self, name: str) -> np.ndarray:
        """A column of all blocks, one after the other."""
        return np.concatenate([block[name] for block in self.blocks])


def policy(observation: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Actions 0 or 1 that depend on all that it is given."""
    seen = observation.reshape(len(observation), -1).sum(1, dtype=np.float64)
    return (np.floor(7 * np.abs(seen)).astype(np.int64) + rng.integers(2, size=len(seen))) % 2


def continuous_policy(
    observation: np.ndarray, epsilon: float, rng: np.random.Generator
) -> np.ndarray:
    """Actions float32 [E, 1] in [-2, 2] that depend on all that it is given."""
    seen = np.sin(observation.sum(1, keepdims=True))
    return (seen + rng.uniform(-1, 1, (len(observation), 1))).astype(np.float32)


def make_stream(env: Any, memory: Any, **changes: Any) -> Collector:
    """A stream of 100 env steps with a policy of the above; keywords change `StreamConfig`."""
    settings = {
        "seed": 0,
        "max_env_steps": 100,
        "learning_starts": 0,
        "batch_size": 8,
        "updates": 1,
        "vector_steps": 1,
        "reseed_every": 10**9,
        "reward_clip": False,
    }
    config = StreamConfig(**{**settings, **changes})
    plays = continuous_policy if env.spec.continuous else policy
    return Collector(env, memory, plays, lambda env_steps: 0.5, config)


def ring(num_envs: int = 2, capacity: int = 200, sampler: Any = None) -> ReplayMemory:
    storage = FrameStorage(capacity, (4,), np.float32, num_envs=num_envs)
    return ReplayMemory(storage, sampler or UniformSampler(), RingWriter(), seed=0)
