"""Blocks of random transitions that the tests of the memories share."""

import os
import subprocess
import sys
from typing import Any

import numpy as np

from rlmem.envs import EnvSpec
from rlmem.memories import ReplayMemory
from rlmem.memories.base.build import Needs
from tests.settings import settings


def configured(spec: EnvSpec, *overrides: str, seed: int = 0) -> ReplayMemory:
    """The memory that overrides name, for any environment's transitions and batches of 8."""
    run = settings("agent.batch_size=8", "threshold.activation=0.9", *overrides)
    agent = run.agent
    return run.memory.build(
        Needs(
            spec=spec,
            batch_size=8,
            n_step=agent.n_step,
            gamma=agent.gamma,
            seed=seed,
            threshold=run.threshold,
        )
    )


class RandomEnvs:
    """E environments of random frames, stepped in turn; episodes end at random, in both ways.

    Args:
        rng: of everything.
        frame_shape, dtype: of one observation; uint8 is drawn from [1, 255], never the padding's 0.
        num_envs: E.
        end: probability that a step ends the episode (half terminations, half truncations).
        change: share of a frame's values that a step changes; 1 is white noise.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        frame_shape: tuple[int, ...] = (4,),
        dtype: Any = np.float32,
        num_envs: int = 1,
        end: float = 0.1,
        change: float = 1.0,
    ) -> None:
        self.rng, self.frame_shape, self.dtype = rng, frame_shape, np.dtype(dtype)
        self.num_envs, self.end, self.change = num_envs, end, change
        self._frame = [self.frame() for _ in range(num_envs)]
        self._turn = 0

    def frame(self) -> np.ndarray:
        if self.dtype == np.uint8:
            return self.rng.integers(1, 256, self.frame_shape, dtype=np.uint8)
        return self.rng.normal(size=self.frame_shape).astype(self.dtype)

    def block(self, rows: int, *, in_turn: bool = True) -> dict[str, Any]:
        """The next rows, env after env; with in_turn=False the envs come in random order."""
        columns: dict[str, list] = {name: [] for name in ("observation", "action", "env_id")}
        following: dict[str, list] = {
            name: [] for name in ("observation", "reward", "terminated", "truncated")
        }
        for _ in range(rows):
            env = self._turn if in_turn else int(self.rng.integers(self.num_envs))
            self._turn = (self._turn + 1) % self.num_envs
            changed = self.rng.random(self.frame_shape) < self.change
            after = np.where(changed, self.frame(), self._frame[env])
            ends = self.rng.random() < self.end
            terminated = ends and bool(self.rng.integers(2))
            columns["observation"].append(self._frame[env])
            columns["action"].append(int(self.rng.integers(2)))
            columns["env_id"].append(env)
            following["observation"].append(after)
            following["reward"].append([self.rng.normal()])
            following["terminated"].append([terminated])
            following["truncated"].append([ends and not terminated])
            self._frame[env] = self.frame() if ends else after
        return {
            "observation": np.array(columns["observation"], self.dtype),
            "action": np.array(columns["action"], np.int64),
            "env_id": np.array(columns["env_id"], np.int64),
            "next": {
                "observation": np.array(following["observation"], self.dtype),
                "reward": np.array(following["reward"], np.float32),
                "terminated": np.array(following["terminated"], bool),
                "truncated": np.array(following["truncated"], bool),
            },
        }


def vector_block(rows: int, seed: int = 0) -> dict[str, Any]:
    """Rows of one environment with float32 [4] observations."""
    return RandomEnvs(np.random.default_rng(seed)).block(rows)


def run_measured(script: str) -> str:
    """Run a script that compares counted bytes with its resident memory; what it printed.

    Pages are 4 KiB (no huge pages) and freed blocks go back to the system at once, so that the
    resident memory is that of the live objects, on every kernel and allocator setting.
    """
    small_pages = "import ctypes\nctypes.CDLL(None).prctl(41, 1, 0, 0, 0)\n"  # PR_SET_THP_DISABLE
    allocator = {"MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, "-c", (small_pages if sys.platform == "linux" else "") + script],
        env={**os.environ, **allocator, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
