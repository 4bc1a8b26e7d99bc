"""A run of the experience-replay study: plain PyTorch beside `experiment=er_study`.

python benchmarks/er_study.py --contender "plain PyTorch, a batch's figures each step"
python benchmarks/er_study.py --list

CartPole, uniform replay, 300 episodes, one torch thread. The study wants the TD errors' mean,
median, largest, deviation and the correlation count of every batch; rlmem notes them every 50
steps, so the plain script is run with the study's figures and without any.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from common import versions
from torch import nn

EPISODES, BATCH, CAPACITY, GAMMA = 300, 64, 10_000, 0.8


def figures(td_error: np.ndarray, states: np.ndarray) -> tuple[float, ...]:
    """What the study notes of a batch."""
    size = np.abs(td_error)
    correlation = np.abs(np.corrcoef(states))
    count = int((np.triu(correlation, 1) > 0.8).sum())
    return float(size.mean()), float(np.median(size)), float(size.max()), float(size.std()), count


def plain(noted: bool) -> float:
    """Env steps a second of the whole run."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    env = gymnasium.make("CartPole-v1")

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2))

    online, target = network(), network()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    states, following = (np.empty((CAPACITY, 4), np.float32) for _ in range(2))
    actions = np.empty((CAPACITY, 1), np.int64)
    rewards, alive = (np.empty(CAPACITY, np.float32) for _ in range(2))
    notes = []
    steps, started = 0, time.perf_counter()
    for _ in range(EPISODES):
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
            if noted:
                notes.append(figures(error.detach().numpy(), batch))
        target.load_state_dict(online.state_dict())
    return steps / (time.perf_counter() - started)


def rlmem(*overrides: str) -> float:
    """Env steps a second of the whole run."""
    from rlmem.config import check, compose
    from rlmem.runs.train import train

    with tempfile.TemporaryDirectory() as folder:
        study = ["experiment=er_study", "env=cartpole", "memory=uniform", "evaluation.episodes=1"]
        own = [*overrides, "log.progress=false", f"paths.output_dir={folder}"]
        train(check(compose("train", [*study, *own])))
        episodes = (Path(folder) / "episodes.csv").read_text().splitlines()
    header, last = episodes[0].split(","), episodes[-1].split(",")
    row = dict(zip(header, last, strict=True))
    return int(row["env_steps"]) / float(row["seconds"])


CONTENDERS = {
    "plain PyTorch, a batch's figures each step": lambda: plain(True),
    "plain PyTorch, no figures": lambda: plain(False),
    "rlmem, figures every 50 steps": lambda: rlmem("log.every=50"),
    "rlmem, figures each step": lambda: rlmem("log.every=1", "trainer.rounds=1"),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--contender", choices=CONTENDERS, default=next(iter(CONTENDERS)))
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        print("\n".join(CONTENDERS))
        return
    torch.set_num_threads(1)
    speed = CONTENDERS[args.contender]()
    result: dict[str, Any] = {"metrics": {"env_steps_per_second": round(speed, 1)}}
    result["versions"] = versions(["torch", "gymnasium", "numpy"])
    print(json.dumps({"name": args.contender, **result}))


if __name__ == "__main__":
    main()
