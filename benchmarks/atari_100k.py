"""Learners of 100,000 steps on RoadRunner beside bare loops, and what noisy layers cost an act.

python benchmarks/atari_100k.py --contender "rlmem, drq_eps"      # one JSON line
python benchmarks/atari_100k.py --list

A bare loop has the network, the updates and the environment of its experiment: one env, an update
each env step, minibatches of 32 drawn uniformly from a hand-written ring of frames. `drq_eps`: the
Nature network, dueling, one mean, images moved and dimmed, no target network. `der`: the small
network, dueling, double, C51, noisy, a target network; rlmem's run draws uniformly here as well.
All have one torch thread, and start learning after 1,600 random steps.

`act`: microseconds of one act at batch 1 of DER's network, with the noise of its last update and
the same network without noisy layers, in turn in one process.
"""

from __future__ import annotations

import argparse
import copy
import csv
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bare_atari import pixels
from common import MAX_FRAMES, ROOT, SCREEN, STACK, Window, versions
from frame_ring import FrameRing
from torch import nn
from torch.nn import functional

STARTS, WARM_UP, BATCH, CAPACITY = 1_600, 400, 32, 100_000
ATOMS, LOW, HIGH = 51, -10.0, 10.0
GAMMA, LR, ADAM_EPS, COPY_EVERY = 0.99, 1e-4, 1.5e-4, 2_000
DRQ = ["experiment=atari_100k_drq_eps"]
DER = ["experiment=atari_100k_der", "memory=uniform"]


class Noisy(nn.Module):
    """A layer with factored noise, its matrix of noise never made."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.mean, self.std = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)
        nn.init.constant_(self.std.weight, 0.1 / inputs**0.5)
        nn.init.constant_(self.std.bias, 0.1 / outputs**0.5)
        self.draw()

    def draw(self) -> None:
        noise = (torch.randn(n) for n in (self.mean.in_features, self.mean.out_features))
        self.noise_in, self.noise_out = (x.sign() * x.abs().sqrt() for x in noise)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        noise = functional.linear(features * self.noise_in, self.std.weight)
        return self.mean(features) + self.noise_out * (noise + self.std.bias)


class Dueling(nn.Module):
    """Convolutions and two streams, of `atoms` numbers an action."""

    def __init__(self, actions: int, atoms: int, nature: bool) -> None:
        super().__init__()
        layers = ((32, 8, 4), (64, 4, 2), (64, 3, 1)) if nature else ((32, 5, 5), (64, 5, 5))
        body: list[nn.Module] = []
        channels = STACK
        for width, kernel, stride in layers:
            body += [nn.Conv2d(channels, width, kernel, stride), nn.ReLU()]
            channels = width
        features, hidden = (3136, 512) if nature else (576, 256)
        layer = nn.Linear if nature else Noisy
        self.body = nn.Sequential(*body, nn.Flatten())
        self.value, self.advantage = (
            nn.Sequential(layer(features, hidden), nn.ReLU(), layer(hidden, outputs * atoms))
            for outputs in (1, actions)
        )
        self.atoms = atoms
        self.to(memory_format=torch.channels_last)

    def forward(self, stack: torch.Tensor) -> torch.Tensor:
        features = self.body(pixels(stack))
        value = self.value(features).unflatten(-1, (1, self.atoms))
        advantage = self.advantage(features).unflatten(-1, (-1, self.atoms))
        return value + advantage - advantage.mean(1, keepdim=True)

    def draw(self) -> None:
        for module in self.modules():
            if isinstance(module, Noisy):
                module.draw()


def changed(stack: torch.Tensor) -> torch.Tensor:
    """Images moved by up to four pixels and dimmed."""
    padded = functional.pad(stack.float(), (4, 4, 4, 4), mode="replicate")
    moves = torch.randint(0, 9, (len(stack), 2)).tolist()
    moved = torch.stack(
        [
            image[:, y : y + SCREEN, x : x + SCREEN]
            for image, (y, x) in zip(padded, moves, strict=True)
        ]
    )
    return moved * (1 + 0.05 * torch.randn(len(stack), 1, 1, 1).clamp(-2, 2))


class Learner:
    """A bare update of one of the two."""

    def __init__(self, actions: int, nature: bool) -> None:
        self.nature, self.n_step = nature, 10 if nature else 20
        self.online = Dueling(actions, 1 if nature else ATOMS, nature)
        self.target = copy.deepcopy(self.online)
        self.clip = None if nature else 10.0
        self.adam = torch.optim.Adam(self.online.parameters(), LR, eps=ADAM_EPS, fused=True)
        self.support = torch.linspace(LOW, HIGH, ATOMS)

    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs[..., 0] if self.nature else outputs.softmax(-1) @ self.support

    def act(self, stack: np.ndarray) -> int:
        with torch.no_grad():
            return int(self.values(self.online(torch.from_numpy(stack)))[0].argmax())

    def update(self, seen: Any, following: Any, action: Any, reward: Any, discount: Any) -> None:
        rows = torch.arange(BATCH)
        if self.nature:
            seen, following = changed(seen), changed(following)
            with torch.no_grad():
                best = self.online(following)[..., 0].amax(1)
            goal = reward + discount * best
            losses = functional.huber_loss(self.online(seen)[rows, action, 0], goal)
        else:
            self.online.draw()
            self.target.draw()
            with torch.no_grad():
                best = self.values(self.online(following)).argmax(1)
                chances = self.target(following)[rows, best].softmax(-1)
                goal = self.projected(chances, reward, discount)
            losses = -(goal * self.online(seen)[rows, action].log_softmax(-1)).sum(-1)
        self.adam.zero_grad()
        losses.mean().backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.online.parameters(), self.clip)
        self.adam.step()

    def projected(self, chances: Any, reward: Any, discount: Any) -> torch.Tensor:
        gap = (HIGH - LOW) / (ATOMS - 1)
        place = ((reward[:, None] + discount[:, None] * self.support - LOW) / gap).clamp(
            0, ATOMS - 1
        )
        below, share = place.floor().long(), place - place.floor()
        goal = torch.zeros_like(chances).scatter_add_(1, below, chances * (1 - share))
        return goal.scatter_add_(1, (below + 1).clamp(max=ATOMS - 1), chances * share)


def drawn(ring: FrameRing, rng: np.random.Generator, n_step: int) -> tuple[Any, ...]:
    """A minibatch with returns over up to n steps."""
    time_, env = rng.integers(STACK, ring.cursor - n_step, BATCH), np.zeros(BATCH, np.int64)
    steps = time_[:, None] + np.arange(n_step)
    ends = ring.terminated[steps, 0]
    before = np.cumsum(ends, 1) - ends  # episode ends before each step
    reward = (ring.reward[steps, 0] * GAMMA ** np.arange(n_step) * (before == 0)).sum(1)
    seen, _, action, *_ = ring.get(time_, env)
    following = ring.get(time_ + n_step - 1, env)[1]
    discount = np.where(ends.any(1), 0, GAMMA**n_step)
    numbers = (torch.from_numpy(x.astype(np.float32)) for x in (reward, discount))
    return seen, following, action, *numbers


def bare(nature: bool, steps: int) -> float:
    """Env steps a second."""
    from ale_py.vector_env import AtariVectorEnv

    torch.set_flush_denormal(True)
    envs = AtariVectorEnv(
        "road_runner",
        1,
        max_num_frames_per_episode=MAX_FRAMES,
        repeat_action_probability=0.0,
        autoreset_mode="SameStep",
        stack_num=1,
        noop_max=30,
        episodic_life=True,
        reward_clipping=True,
        use_fire_reset=False,
    )
    actions = int(envs.single_action_space.n)
    learner, rng = Learner(actions, nature), np.random.default_rng(0)
    ring = FrameRing(CAPACITY, 1)
    frame, _ = envs.reset(seed=0)
    ring.start(frame)
    stack = np.zeros((1, STACK, SCREEN, SCREEN), np.uint8)
    stack[:, -1] = frame[:, 0]
    window, env_steps = Window(STARTS + WARM_UP, steps), 0
    while not window.tick(env_steps):
        random = env_steps < STARTS or (nature and rng.random() < 0.01)
        action = np.array([rng.integers(actions) if random else learner.act(stack)])
        frame, reward, terminated, truncated, info = envs.step(action)
        ring.add(action, reward, terminated, truncated, frame, info.get("final_obs"))
        stack[:, :-1] = stack[:, 1:]
        if terminated[0] or truncated[0]:
            stack[:] = 0
        stack[:, -1] = frame[:, 0]
        env_steps += 1
        if env_steps >= STARTS:
            learner.update(*drawn(ring, rng, learner.n_step))
        if env_steps % COPY_EVERY == 0:
            learner.target.load_state_dict(learner.online.state_dict())
    return window.env_steps_per_second


def rlmem(experiment: list[str], steps: int) -> float:
    """`train.py` in a process of its own, speed from its rows after the warm-up."""
    first = STARTS + WARM_UP
    given = {
        "trainer.max_env_steps": first + steps,
        "trainer.accelerator": "cpu",
        "trainer.threads": 1,
        "trainer.precision": "32-true",
        "log.every": 200,
        "log.progress": "false",
        "evaluation.episodes": 1,
        "checkpoint.every": 1_000_000_000,
    }
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "train.py"), *experiment]
        command += [f"{key}={value}" for key, value in given.items()]
        done = subprocess.run(
            [*command, f"hydra.run.dir={folder}/run"], capture_output=True, text=True, cwd=folder
        )
        if done.returncode:
            sys.exit(done.stderr[-2000:])
        with Path(folder, "run", "metrics.csv").open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if int(row["env_steps"]) >= first]
    begin, end = rows[0], rows[-1]
    counted = int(end["env_steps"]) - int(begin["env_steps"])
    return counted / (float(end["seconds"]) - float(begin["seconds"]))


def acts(repeats: int) -> dict[str, float]:
    """Microseconds of an act with noise and without noisy layers."""
    from rlmem.config import check, compose
    from rlmem.runs import build

    torch.set_num_threads(1)
    agents = {}
    for noisy in ("true", "false"):
        run = check(compose("train", [*DER, f"agent.noisy={noisy}", "trainer.accelerator=cpu"]))
        env = build.build_env(run)
        agents[noisy] = build.build_agent(run, env.spec)
        shape = env.spec.observation_shape
        env.close()
    seen = np.random.default_rng(0).integers(255, size=(1, *shape), dtype=np.uint8)
    rng, times = np.random.default_rng(0), {name: [] for name in agents}
    for _ in range(repeats):
        for name, agent in agents.items():
            began = time.perf_counter()
            agent.explore(seen, 0.0, rng)
            times[name].append(time.perf_counter() - began)
    found = {name: 1e6 * statistics.median(taken) for name, taken in times.items()}
    return {"act_us": found["true"], "act_ratio": found["true"] / found["false"]}


CONTENDERS = {
    "bare, drq_eps": lambda steps: {"env_steps_per_second": bare(True, steps)},
    "rlmem, drq_eps": lambda steps: {"env_steps_per_second": rlmem(DRQ, steps)},
    "bare, der": lambda steps: {"env_steps_per_second": bare(False, steps)},
    "rlmem, der": lambda steps: {"env_steps_per_second": rlmem(DER, steps)},
    "a noisy act": lambda steps: acts(steps),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contender", choices=CONTENDERS, default="rlmem, drq_eps")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--short", action="store_true", help="a tenth: does it work?")
    args = parser.parse_args()
    if args.list:
        print("\n".join(CONTENDERS))
        return
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = CONTENDERS[args.contender](200 if args.short else 2_000)
    line = {name: round(number, 2) for name, number in found.items()}
    packages = versions(["torch", "numpy", "ale-py"])
    print(json.dumps({"name": args.contender, **line, "versions": packages}), flush=True)


if __name__ == "__main__":
    main()
