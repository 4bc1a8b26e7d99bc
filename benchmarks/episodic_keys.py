"""Keys of RoadRunner's screens by an untrained and by a trained network, kept between benchmarks.

`trained` is the network of `train.py agent=nec memory=dnd env=road_runner` after 16,000 env steps,
`untrained` the same before its first. Either gives the keys of 101,000 steps of random play; the
last 1,000 are asked with. Both are made when they are first needed: some ten minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT

KINDS = ("untrained", "trained")
PLAYED, ASKED, TRAINED_FOR, ENVS, ACTIONS = 101_000, 1_000, 16_000, 8, 18


def folder() -> Path:
    """Where the keys and the run are kept."""
    return Path(tempfile.gettempdir()) / "rlmem-episodic"


def ensure() -> None:
    """Make the keys that are missing, in processes of their own."""
    own = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    run = folder() / "run"
    if not (run / "summary.json").exists():
        given = ["agent=nec", "memory=dnd", "env=road_runner", "trainer.threads=1", "seed=0"]
        given += [f"trainer.max_env_steps={TRAINED_FOR}", "evaluation.episodes=1", "logger=csv"]
        command = [sys.executable, str(ROOT / "train.py"), *given, f"hydra.run.dir={run}"]
        subprocess.run(command, check=True, env=own, stdout=sys.stderr)
    for kind in KINDS:
        if not (folder() / f"{kind}.npz").exists():
            subprocess.run([sys.executable, __file__, kind], check=True, env=own)


def play(run_dir: Path, trained: bool) -> dict[str, np.ndarray]:
    """Keys float32 [n, d] and actions int64 [n] of random play."""
    import torch

    from rlmem.config.run_directory import run_settings
    from rlmem.envs import make_env
    from rlmem.envs.frame_stack import FrameStack
    from rlmem.runs.build import build_agent
    from rlmem.runs.score import load_networks

    torch.set_num_threads(1)
    run = run_settings(run_dir, f"run={run_dir}")
    env, rng = make_env(run.env, ENVS), np.random.default_rng(0)
    agent: Any = build_agent(run, env.spec)
    if trained:
        load_networks(run_dir, "last", agent)
    stack, keys, actions = FrameStack(env.spec), [], []
    observation = stack.reset(env.reset(0))
    for _ in range(PLAYED // ENVS):
        with torch.no_grad():
            keys.append(agent.online(torch.from_numpy(observation)).numpy())
        actions.append(rng.integers(ACTIONS, size=ENVS))
        step = env.step(actions[-1])
        observation = stack.push(step.observation, step.terminated | step.truncated)
    return {"key": np.concatenate(keys), "action": np.concatenate(actions)}


def load(kind: str, entries: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys float32 [entries, d], their actions int64, and keys to ask with, float32 [ASKED, d].

    Beyond the played keys, the rest are a stand-in: each lies between two keys that follow one
    another in the play of one action, at a random share of the way.
    """
    with np.load(folder() / f"{kind}.npz") as file:
        key, action = file["key"], file["action"]
    asked, key, action = key[-ASKED:], key[:-ASKED], action[:-ASKED]
    rng = np.random.default_rng(1)
    if (more := entries - len(key)) > 0:
        order = np.argsort(action, kind="stable")
        first = rng.integers(len(order) - 1, size=more)
        first = np.where(action[order[first]] == action[order[first + 1]], first, first - 1)
        a, b = order[first], order[first + 1]
        share = rng.random((more, 1), np.float32)
        key = np.concatenate((key, key[a] + share * (key[b] - key[a])))
        action = np.concatenate((action, action[a]))
    return key[:entries], action[:entries], asked[rng.permutation(ASKED)]


if __name__ == "__main__":
    (kind,) = sys.argv[1:]
    found = play(folder() / "run", kind == "trained")
    np.savez(folder() / "part.npz", **found)
    (folder() / "part.npz").rename(folder() / f"{kind}.npz")
