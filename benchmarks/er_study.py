"""A run of the experience-replay study: plain PyTorch beside `experiment=er_study`.

python benchmarks/er_study.py --contender "plain PyTorch, figures every 50 steps"
python benchmarks/er_study.py --list

CartPole, uniform replay, 300 episodes, one torch thread. `figures` are what the study notes of a
batch: the TD errors' mean, median, largest, deviation and the correlation count; the study wants
them of every batch, and rlmem notes them every 50 steps. The plain script has what makes rlmem
fast and costs it a word: fused Adam, no check of every step by Gymnasium, denormal numbers flushed.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from common import command_line, versions
from torch import nn

EPISODES, BATCH, CAPACITY, GAMMA = 300, 64, 10_000, 0.8


def figures(td_error: np.ndarray, states: np.ndarray) -> tuple[float, ...]:
    """What the study notes of a batch."""
    size = np.abs(td_error)
    correlation = np.abs(np.corrcoef(states))
    count = int((np.triu(correlation, 1) > 0.8).sum())
    return float(size.mean()), float(np.median(size)), float(size.max()), float(size.std()), count


def plain(episodes: int, every: int) -> float:
    """Env steps a second of the whole run; figures of a batch every so many steps (0: none)."""
    torch.manual_seed(0)
    torch.set_flush_denormal(True)
    rng = np.random.default_rng(0)
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2))

    online, target = network(), network()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3, fused=True)
    states, following = (np.empty((CAPACITY, 4), np.float32) for _ in range(2))
    actions = np.empty((CAPACITY, 1), np.int64)
    rewards, alive = (np.empty(CAPACITY, np.float32) for _ in range(2))
    notes = []
    steps, started = 0, time.perf_counter()
    for _ in range(episodes):
        state, _ = env.reset(seed=int(rng.integers(2**31)))
        done = False
        while not done:
            if rng.random() < max(1 - steps / 1000, 0.05):
                action = int(rng.integers(2))
            else:
                with torch.no_grad():
                    action = int(online(torch.from_numpy(state)).argmax())
            after, reward, terminated, truncated, _ = env.step(action)
            done = terminated or truncated
            row = steps % CAPACITY
            states[row], following[row], actions[row] = state, after, action
            rewards[row], alive[row] = -10.0 if terminated else reward, not terminated
            state = after
            steps += 1
            if steps < BATCH:
                continue
            index = rng.integers(0, min(steps, CAPACITY), BATCH)
            batch = states[index]
            with torch.no_grad():
                value = target(torch.from_numpy(following[index])).amax(1)
                bootstrap = GAMMA * torch.from_numpy(alive[index])
                goal = torch.from_numpy(rewards[index]) + bootstrap * value
            q = online(torch.from_numpy(batch))
            chosen = q.gather(1, torch.from_numpy(actions[index])).squeeze(1)
            error = goal - chosen
            loss = error.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if every and steps % every == 0:
                notes.append(figures(error.detach().numpy(), batch))
        target.load_state_dict(online.state_dict())
    return steps / (time.perf_counter() - started)


def rlmem(episodes: int, *overrides: str) -> float:
    """Env steps a second of the whole run."""
    from rlmem.config import check, compose
    from rlmem.runs.train import train

    with tempfile.TemporaryDirectory() as folder:
        study = ["experiment=er_study", "env=cartpole", "memory=uniform", "evaluation.episodes=1"]
        own = [f"trainer.max_episodes={episodes}", "log.progress=false"]
        own += [*overrides, f"paths.output_dir={folder}"]
        train(check(compose("train", [*study, *own])))
        episodes = (Path(folder) / "episodes.csv").read_text().splitlines()
    header, last = episodes[0].split(","), episodes[-1].split(",")
    row = dict(zip(header, last, strict=True))
    return int(row["env_steps"]) / float(row["seconds"])


CONTENDERS: dict[str, Callable[[int], float]] = {
    "plain PyTorch, figures each step": lambda episodes: plain(episodes, 1),
    "plain PyTorch, figures every 50 steps": lambda episodes: plain(episodes, 50),
    "plain PyTorch, no figures": lambda episodes: plain(episodes, 0),
    "rlmem, figures every 50 steps": lambda episodes: rlmem(episodes, "log.every=50"),
    "rlmem, figures each step": lambda n: rlmem(n, "log.every=1", "trainer.rounds=1"),
}


def main() -> None:
    args = command_line(CONTENDERS, short="30 episodes: does it work?")
    torch.set_num_threads(1)
    speed = CONTENDERS[args.contender](EPISODES // (10 if args.short else 1))
    result: dict[str, Any] = {"metrics": {"env_steps_per_second": round(speed, 1)}}
    result["versions"] = versions(["torch", "gymnasium", "numpy"])
    print(json.dumps({"name": args.contender, **result}))


if __name__ == "__main__":
    main()
