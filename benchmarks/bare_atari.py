"""Nature DQN on RoadRunner in the plainest fast PyTorch: the yardstick of the Atari benchmark.

python benchmarks/bare_atari.py --num-envs 4 [--bf16] [--steps 4000] [--stored 100000]

Denormal numbers are flushed to zero, as in rlmem; `--denormals` keeps them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from ale_py.vector_env import AtariVectorEnv
from common import (
    FRAME_SKIP,
    MAX_FRAMES,
    SCREEN,
    STACK,
    STICKY,
    TASKS,
    Task,
    Window,
    arguments,
    epsilon,
    report,
)
from frame_ring import FrameRing
from torch import nn

from rlmem.allocator import keep_freed_memory

HIDDEN = TASKS["atari"].hidden


def make_envs(num_envs: int, **rules: Any) -> AtariVectorEnv:
    """RoadRunner, single frames, every option named; `rules` in place of some."""
    options = {
        "max_num_frames_per_episode": MAX_FRAMES,
        "repeat_action_probability": STICKY,
        "full_action_space": False,
        "autoreset_mode": "SameStep",
        "img_height": SCREEN,
        "img_width": SCREEN,
        "grayscale": True,
        "stack_num": 1,
        "frameskip": FRAME_SKIP,
        "maxpool": True,
        "noop_max": 0,
        "episodic_life": False,
        "life_loss_info": False,
        "reward_clipping": True,
        "use_fire_reset": False,
    }
    return AtariVectorEnv("road_runner", num_envs, **{**options, **rules})


def make_network(num_actions: int) -> nn.Module:
    """Mnih et al. 2015."""
    return nn.Sequential(
        nn.Conv2d(STACK, 32, 8, 4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, 2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3136, *HIDDEN),
        nn.ReLU(),
        nn.Linear(*HIDDEN, num_actions),
    ).to(memory_format=torch.channels_last)


def pixels(stack: torch.Tensor) -> torch.Tensor:
    """uint8 [B, 4, 84, 84] -> float32 in [0, 1], channels last."""
    return (stack / 255).contiguous(memory_format=torch.channels_last)


def main() -> None:
    args = arguments(["atari"])
    task: Task = args.settings
    torch.set_flush_denormal(not args.denormals)
    keep_freed_memory()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    envs = make_envs(args.num_envs)
    num_actions = int(envs.single_action_space.n)
    online, target = make_network(num_actions), make_network(num_actions)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=task.lr, eps=task.adam_eps, fused=True)
    ring = FrameRing(task.capacity, args.num_envs)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=args.bf16)

    def update() -> None:
        index = ring.sample_index(rng, task.batch_size)
        observation, next_observation, action, reward, terminated = ring.get(*index)
        with torch.no_grad(), autocast:
            next_value = target(pixels(next_observation)).amax(1).float()
            goal = reward + task.gamma * next_value * ~terminated
        with autocast:
            value = online(pixels(observation))
        chosen = value.float().gather(1, action[:, None]).squeeze(1)
        loss = nn.functional.mse_loss(chosen, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    frame, _ = envs.reset(seed=args.seed)
    ring.start(frame)
    stack = np.zeros((args.num_envs, STACK, SCREEN, SCREEN), np.uint8)
    stack[:, -1] = frame[:, 0]
    window = Window(task.clock_starts, args.steps)
    env_steps = 0
    while not window.tick(env_steps):
        action = rng.integers(0, num_actions, args.num_envs)
        random = env_steps < task.learning_starts
        greedy = rng.random(args.num_envs) >= (1.0 if random else epsilon(task, env_steps))
        if greedy.any():
            with torch.no_grad(), autocast:
                best = online(pixels(torch.from_numpy(stack))).argmax(1).numpy()
            action = np.where(greedy, best, action)
        frame, reward, terminated, truncated, info = envs.step(action)
        done = terminated | truncated
        ring.add(action, reward, terminated, truncated, frame, info.get("final_obs"))
        stack[:, :-1] = stack[:, 1:]
        if done.any():
            stack[done] = 0
        stack[:, -1] = frame[:, 0]
        before, env_steps = env_steps, env_steps + args.num_envs
        if env_steps > task.learning_starts:
            for _ in range(env_steps // task.train_every - before // task.train_every):
                update()
            if env_steps // task.target_update_every > before // task.target_update_every:
                target.load_state_dict(online.state_dict())
    name = f"bare {args.num_envs} env{'s' * (args.num_envs > 1)}{' bf16' * args.bf16}"
    report(name, args, window.env_steps_per_second, ["numba"])


if __name__ == "__main__":
    main()
