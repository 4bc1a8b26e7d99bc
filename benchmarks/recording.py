"""What record_frames.py writes, for every library to read.

Each frame is written once. Of T steps in E envs (T x E is `--steps`) the folder holds, time first:

    observation.npy  uint8 [T + 1, E, 84, 84], what the actions were chosen from
    final.npy        uint8 [K, 84, 84], the true next frames of the K steps that ended an episode
    action.npy       int64 [T, E]
    reward.npy       float32 [T, E], not clipped
    terminated.npy, truncated.npy  bool [T, E]
    about.json       game, policy, seed, steps, envs, mean_return, versions

The next frame of step t is observation[t + 1]; where the step was done, it is the next of `final`
(in the order of np.argwhere(done)). Reading needs numpy alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = ("observation", "final", "action", "reward", "terminated", "truncated")


@dataclass(frozen=True)
class Recording:
    """What a folder holds; see the module's docstring."""

    observation: np.ndarray
    final: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    about: dict[str, Any]

    @property
    def num_envs(self) -> int:
        return self.action.shape[1]

    @property
    def done(self) -> np.ndarray:
        """bool [T, E]"""
        return self.terminated | self.truncated

    @cached_property
    def final_row(self) -> np.ndarray:
        """int64 [T, E]: where the true next frame of a done step is in `final`, -1 elsewhere."""
        return np.where(self.done, self.done.cumsum().reshape(self.done.shape) - 1, -1)

    def __len__(self) -> int:
        """Transitions."""
        return self.action.size


def load(folder: Path) -> Recording:
    """Read a folder that was recorded, all of it into memory.

    Raises:
        FileNotFoundError: there is no complete recording.
    """
    about = json.loads((folder / "about.json").read_text())
    return Recording(*(np.load(folder / f"{name}.npy") for name in COLUMNS), about)


def blocks(source: Path | Recording, size: int, limit: int | None = None) -> Iterator[Any]:
    """Blocks in the format of rlmem's storages, rows t0e0, t0e1, ..., t1e0, ...; the last may be
    shorter.

    Args:
        source: the folder, or what `load` gave.
        size: transitions a block.
        limit: transitions in all.
    """
    recording = load(source) if isinstance(source, Path) else source
    envs, total = recording.num_envs, min(len(recording), limit or len(recording))
    frames = recording.observation.reshape(-1, 1, *recording.observation.shape[2:])
    final, final_row = recording.final[:, None], recording.final_row.reshape(-1)
    action, reward, terminated, truncated = (
        getattr(recording, name).reshape(-1) for name in COLUMNS[2:]
    )
    for first in range(0, total, size):
        end = min(first + size, total)
        following = frames[first + envs : end + envs].copy()
        row = final_row[first:end]
        following[row >= 0] = final[row[row >= 0]]
        # Copies: an env's arrays are the caller's, so a memory may keep them.
        yield {
            "observation": frames[first:end].copy(),
            "action": action[first:end].copy(),
            "env_id": np.arange(first, end) % envs,
            "next": {
                "observation": following,
                "reward": reward[first:end, None].copy(),
                "terminated": terminated[first:end, None].copy(),
                "truncated": truncated[first:end, None].copy(),
            },
        }
