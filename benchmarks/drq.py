"""DrQ(eps) on Road Runner: plain PyTorch beside `experiment=atari_100k_drq_eps`.

python benchmarks/drq.py --contender rlmem [--short]
python benchmarks/drq.py --list

One environment, an update each env step, one torch thread. "bare" is the same network, updates and
environment in the plainest fast loop, over a hand-written ring of uncompressed frames; denormal
numbers are flushed to zero and the allocator keeps freed memory, as in rlmem. The clock starts 400
updates after the first.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from bare_atari import make_envs, pixels
from common import SCREEN, STACK, Window, answer
from frame_ring import FrameRing
from numba import njit
from rlmem_train import measured
from torch import nn

from rlmem.allocator import keep_freed_memory

CAPACITY, BATCH, N_STEP, GAMMA = 100_000, 32, 10, 0.99
LR, ADAM_EPS, SHIFT, INTENSITY = 1e-4, 1.5e-4, 4, 0.05
STARTS, CLOCK, DECAYED, LEAST = 1_600, 2_000, 6_600, 0.01  # env steps, and epsilon in the end


class Network(nn.Module):
    """The convolutions of Mnih et al. 2015 and two streams of 512 units."""

    def __init__(self, num_actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(STACK, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()),
            *(nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten()),
        )
        self.value, self.advantage = (
            nn.Sequential(nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, outputs))
            for outputs in (1, num_actions)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.body(images)
        advantage = self.advantage(features)
        return self.value(features) + advantage - advantage.mean(1, keepdim=True)


@njit(cache=True)
def returns(reward, done, time, cursor, steps, total):
    """Steps that the returns of rows `time` have, N_STEP where neither an end nor the newest row is
    nearer, and their discounted sums."""
    for b in range(len(time)):
        total[b], steps[b], power = 0.0, 0, 1.0
        while steps[b] < N_STEP and time[b] + steps[b] < cursor:
            row = time[b] + steps[b]
            total[b] += power * reward[row, 0]
            power *= GAMMA
            steps[b] += 1
            if done[row, 0]:
                break


def augmented(images: torch.Tensor) -> torch.Tensor:
    """uint8 [B, 4, 84, 84] moved by up to 4 pixels, the edge repeated, and brightened."""
    down, right = torch.randint(-SHIFT, SHIFT + 1, (2, len(images), 1))
    places = torch.arange(SCREEN)
    rows, columns = ((places + move).clamp_(0, SCREEN - 1) for move in (down, right))
    at = (rows[:, :, None] * SCREEN + columns[:, None, :]).view(len(images), 1, -1)
    moved = images.flatten(2).gather(2, at.expand(-1, STACK, -1)).view_as(images)
    return moved * (1 + INTENSITY * torch.randn(len(images), 1, 1, 1).clamp_(-2, 2))


def bare(steps: int) -> float:
    """The plainest fast loop."""
    torch.set_flush_denormal(True)
    keep_freed_memory()
    rng = np.random.default_rng(0)
    # The rules of env/protocol=atari_100k.
    env = make_envs(1, repeat_action_probability=0.0, noop_max=30, episodic_life=True)
    num_actions = int(env.single_action_space.n)
    online = Network(num_actions).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(online.parameters(), lr=LR, eps=ADAM_EPS, fused=True)
    ring = FrameRing(CAPACITY, 1)
    lasts, totals = np.empty(BATCH, np.int64), np.empty(BATCH, np.float32)
    columns = np.zeros(BATCH, np.int64)

    def update() -> None:
        time = rng.integers(0, ring.cursor, BATCH)
        returns(ring.reward, ring.terminated, time, ring.cursor, lasts, totals)
        observation, _, action, _, _ = ring.get(time, columns)
        _, following, _, _, terminated = ring.get(time + lasts - 1, columns)
        with torch.no_grad():
            value = online(pixels(augmented(following))).amax(1)
            discount = torch.from_numpy(GAMMA**lasts).float() * ~terminated
            goal = torch.from_numpy(totals) + discount * value
        values = online(pixels(augmented(observation)))
        chosen = values.gather(1, action[:, None]).squeeze(1)
        loss = nn.functional.huber_loss(chosen, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    frame, _ = env.reset(seed=0)
    ring.start(frame)
    stack = np.zeros((1, STACK, SCREEN, SCREEN), np.uint8)
    stack[:, -1] = frame[:, 0]
    never = np.zeros(1, np.bool_)  # cut off: no game is so long here
    window, env_steps = Window(CLOCK, steps), 0
    while not window.tick(env_steps):
        fallen = max(0, env_steps - STARTS) / (DECAYED - STARTS)
        epsilon = max(LEAST, 1 - (1 - LEAST) * fallen)
        if env_steps < STARTS or rng.random() < epsilon:
            action = rng.integers(0, num_actions, 1)
        else:
            with torch.no_grad():
                action = online(pixels(torch.from_numpy(stack))).argmax(1).numpy()
        frame, reward, terminated, _, _ = env.step(action)
        ring.add(action, reward, terminated, never, frame)
        stack[:, :-1] = stack[:, 1:]
        if terminated[0]:
            stack[:] = 0
        stack[:, -1] = frame[:, 0]
        env_steps += 1
        if env_steps > STARTS:
            update()
    return window.env_steps_per_second


def rlmem(steps: int, storage: str) -> float:
    """`train.py` in a process of its own, speed from its rows."""
    given = {
        "experiment": "atari_100k_drq_eps",
        "memory/storage": storage,
        "trainer.max_env_steps": CLOCK + steps,
        "log.every": min(steps, 500),
    }
    return measured(given, CLOCK)


CONTENDERS = {
    "bare": bare,
    "rlmem": partial(rlmem, storage="compressed"),
    "rlmem, frames": partial(rlmem, storage="frames"),
}


if __name__ == "__main__":
    answer(CONTENDERS, 2_000, ["torch", "numpy", "ale-py"])
