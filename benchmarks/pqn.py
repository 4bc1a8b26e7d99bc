"""PQN on CartPole: plain PyTorch beside `experiment=pqn env=cartpole`.

python benchmarks/pqn.py --contender rlmem [--short]
python benchmarks/pqn.py --list

4 envs x 128 steps, 4 epochs x 4 minibatches, 120-84 with layer norm, RAdam, one torch thread. "in
CleanRL's form" is a single-file loop as CleanRL publishes one: Gymnasium's vector env with its
checks and episode statistics, torch tensors of a rollout, torch's own optimizer step. "bare" has
what makes rlmem fast and costs a plain script a word: no check of every step, a rollout in numpy,
RAdam over all tensors at once, denormal numbers flushed. The clock starts after two rollouts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from common import answer
from rlmem_train import measured
from torch import nn

ENVS, STEPS, EPOCHS, BATCH = 4, 128, 4, 128
GAMMA, LAMBDA, LR, CLIP = 0.99, 0.65, 2.5e-4, 10.0
ROLLOUT, WARMUP = ENVS * STEPS, 2  # env steps, rollouts
FORM = "in CleanRL's form"


def network() -> nn.Module:
    """4-120-84-2, layer norms before rectifiers."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((4, 120), (120, 84)):
        layers += [nn.Linear(inputs, outputs), nn.LayerNorm(outputs), nn.ReLU()]
    layers.append(nn.Linear(84, 2))
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, 2**0.5)
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


def timed(rollouts: int, play_and_learn: Callable[[int], Any]) -> float:
    """Env steps a second of all rollouts but the first ones."""
    started = 0.0
    for number in range(rollouts + WARMUP):
        if number == WARMUP:
            started = time.perf_counter()
        play_and_learn(number)
    return rollouts * ROLLOUT / (time.perf_counter() - started)


def published(rollouts: int) -> float:
    """A single-file loop over torch tensors."""

    def make() -> gymnasium.Env:
        return gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))

    envs = gymnasium.vector.SyncVectorEnv([make] * ENVS)
    rng = np.random.default_rng(0)
    q_network = network()
    optimizer = torch.optim.RAdam(q_network.parameters(), lr=LR)
    states = torch.zeros(STEPS, ENVS, 4)
    actions, rewards, ends, values = (torch.zeros(STEPS, ENVS) for _ in range(4))
    now = {"state": torch.tensor(envs.reset(seed=0)[0]), "end": torch.zeros(ENVS)}

    def one(number: int) -> None:
        optimizer.param_groups[0]["lr"] = LR * (1 - number / (rollouts + WARMUP))
        for t in range(STEPS):
            states[t], ends[t] = now["state"], now["end"]
            epsilon = max(0.05, 1 - number / rollouts)
            with torch.no_grad():
                q = q_network(now["state"])
                best = q.argmax(1)
                values[t] = q[torch.arange(ENVS), best]
            explores = torch.rand(ENVS) < epsilon
            action = torch.where(explores, torch.randint(0, 2, (ENVS,)), best)
            actions[t] = action
            state, reward, terminated, truncated, _ = envs.step(action.numpy())
            rewards[t] = torch.tensor(reward)
            now["state"] = torch.tensor(state)
            now["end"] = torch.tensor(np.logical_or(terminated, truncated), dtype=torch.float32)
        targets = torch.zeros(STEPS, ENVS)
        with torch.no_grad():
            for t in reversed(range(STEPS)):
                if t == STEPS - 1:
                    going, value = 1 - now["end"], q_network(now["state"]).amax(1)
                    targets[t] = rewards[t] + GAMMA * value * going
                else:
                    mixed = LAMBDA * targets[t + 1] + (1 - LAMBDA) * values[t + 1]
                    targets[t] = rewards[t] + GAMMA * mixed * (1 - ends[t + 1])
        flat = states.reshape(-1, 4), actions.reshape(-1).long(), targets.reshape(-1)
        for _ in range(EPOCHS):
            order = rng.permutation(ROLLOUT)
            for first in range(0, ROLLOUT, BATCH):
                rows = order[first : first + BATCH]
                chosen = q_network(flat[0][rows]).gather(1, flat[1][rows].unsqueeze(1)).squeeze(1)
                loss = nn.functional.mse_loss(flat[2][rows], chosen)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(q_network.parameters(), CLIP)
                optimizer.step()

    return timed(rollouts, one)


def bare(rollouts: int) -> float:
    """The plainest fast loop."""
    torch.set_flush_denormal(True)
    rng = np.random.default_rng(0)
    envs = [gymnasium.make("CartPole-v1", disable_env_checker=True) for _ in range(ENVS)]
    online = network()
    weights = [*online.parameters()]
    optimizer = torch.optim.RAdam(weights, lr=LR, foreach=True)
    states = np.empty((STEPS + 1, ENVS, 4), np.float32)
    actions = np.empty((STEPS, ENVS), np.int64)
    rewards, values = (np.empty((STEPS, ENVS), np.float32) for _ in range(2))
    going = np.empty((STEPS, ENVS), np.float32)
    for e, env in enumerate(envs):
        states[STEPS, e] = env.reset(seed=e)[0]

    def q_of(state: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return online(torch.from_numpy(state)).numpy()

    def one(number: int) -> None:
        optimizer.param_groups[0]["lr"] = LR * (1 - number / (rollouts + WARMUP))
        states[0] = states[STEPS]
        for t in range(STEPS):
            q = q_of(states[t])
            values[t] = q.max(1)
            explores = rng.random(ENVS) < max(0.05, 1 - number / rollouts)
            actions[t] = np.where(explores, rng.integers(2, size=ENVS), q.argmax(1))
            for e, env in enumerate(envs):
                state, rewards[t, e], terminated, truncated, _ = env.step(int(actions[t, e]))
                going[t, e] = not (terminated or truncated)
                states[t + 1, e] = state if going[t, e] else env.reset()[0]
        targets = np.empty((STEPS, ENVS), np.float32)
        following = q_of(states[STEPS]).max(1)
        for t in reversed(range(STEPS)):
            targets[t] = rewards[t] + GAMMA * following * going[t]
            following = LAMBDA * targets[t] + (1 - LAMBDA) * values[t]
        flat = states[:-1].reshape(-1, 4), actions.reshape(-1, 1), targets.reshape(-1, 1)
        for _ in range(EPOCHS):
            order = rng.permutation(ROLLOUT)
            for first in range(0, ROLLOUT, BATCH):
                state, action, target = (
                    torch.from_numpy(column[order[first : first + BATCH]]) for column in flat
                )
                loss = nn.functional.mse_loss(online(state).gather(1, action), target)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(weights, CLIP)
                optimizer.step()

    return timed(rollouts, one)


def rlmem(rollouts: int) -> float:
    """`train.py` in a process of its own, speed from its rows."""
    given = {
        "experiment": "pqn",
        "env": "cartpole",
        "trainer.max_env_steps": (rollouts + WARMUP) * ROLLOUT,
        "log.every": WARMUP * ROLLOUT,
    }
    return measured(given, WARMUP * ROLLOUT)


CONTENDERS = {FORM: published, "bare": bare, "rlmem": rlmem}


if __name__ == "__main__":
    answer(CONTENDERS, 200, ["torch", "numpy", "gymnasium"])
