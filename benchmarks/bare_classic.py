"""DQN on CartPole in the plainest fast PyTorch: the yardstick of the CartPole training benchmark.

python benchmarks/bare_classic.py [--group 8] [--steps 20000]

`--group 8` takes 8 env steps, then 8 updates on fresh minibatches, as rlmem does with
`agent.updates_per_step=8`. As rlmem does, it leaves out Gymnasium's check of every step and flushes
denormal numbers, into which Adam's moments fade, to zero; `--denormals` keeps them.
"""

from __future__ import annotations

from itertools import pairwise

import gymnasium
import numpy as np
import torch
from common import TASKS, Window, arguments, epsilon, report
from torch import nn

task = TASKS["cartpole"]
NUM_ACTIONS = 2
OBSERVATION = 4


def make_network() -> nn.Module:
    """4-120-84-2 with rectifiers."""
    sizes = (OBSERVATION, *task.hidden)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], NUM_ACTIONS))


def main() -> None:
    args = arguments(["cartpole"])
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    torch.set_flush_denormal(not args.denormals)
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    online, target = make_network(), make_network()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=task.lr, eps=task.adam_eps, fused=True)
    observations = np.empty((task.capacity, OBSERVATION), np.float32)
    next_observations = np.empty((task.capacity, OBSERVATION), np.float32)
    actions = np.empty((task.capacity, 1), np.int64)
    rewards = np.empty(task.capacity, np.float32)
    alive = np.empty(task.capacity, np.float32)  # 0 where the episode terminated

    def update(index: np.ndarray) -> None:
        with torch.no_grad():
            next_value = target(torch.from_numpy(next_observations[index])).amax(1)
            reward, bootstrap = torch.from_numpy(rewards[index]), torch.from_numpy(alive[index])
            goal = torch.addcmul(reward, next_value, bootstrap, value=task.gamma)
        value = online(torch.from_numpy(observations[index]))
        chosen = value.gather(1, torch.from_numpy(actions[index])).squeeze(1)
        loss = nn.functional.mse_loss(chosen, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    observation, _ = env.reset(seed=args.seed)
    window = Window(task.clock_starts, args.steps)
    env_steps = 0
    while not window.tick(env_steps):
        for _ in range(args.group):
            if rng.random() < epsilon(task, env_steps):
                action = int(rng.integers(NUM_ACTIONS))
            else:
                with torch.no_grad():
                    action = int(online(torch.from_numpy(observation)).argmax())
            next_observation, reward, terminated, truncated, _ = env.step(action)
            row = env_steps % task.capacity
            observations[row], next_observations[row] = observation, next_observation
            actions[row], rewards[row], alive[row] = action, reward, not terminated
            observation = env.reset()[0] if terminated or truncated else next_observation
            env_steps += 1
        if env_steps > task.learning_starts:
            size = min(env_steps, task.capacity)
            for index in rng.integers(0, size, (args.group, task.batch_size)):
                update(index)
            if env_steps % task.target_update_every < args.group:
                target.load_state_dict(online.state_dict())
    name = "bare" if args.group == 1 else f"bare, {args.group} steps then {args.group} updates"
    report(name, args, window.env_steps_per_second)


if __name__ == "__main__":
    main()
