"""DQN as a Stable-Baselines3 user runs it: `make_atari_env` + `VecFrameStack`, or a `CartPole-v1`.

python benchmarks/peers/sb3.py --task atari|cartpole --steps N [--num-envs 4] [--group 8] [--bf16]

SB3 has neither a mean squared error nor a switch that turns gradient clipping off: its Huber loss
and max_grad_norm=10 stay.
"""

# ruff: noqa: E402

from __future__ import annotations

import sys
from pathlib import Path

# The shared modules instead of this folder, whose names would hide the packages under test.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import torch
from common import (
    FRAME_SKIP,
    SCREEN,
    STACK,
    STICKY,
    TASKS,
    Window,
    arguments,
    exit_not_installed,
    report,
)

try:
    import ale_py
    import gymnasium
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack
except ImportError as error:
    exit_not_installed(error)


class Clock(BaseCallback):
    """Ends training when the window is over."""

    def __init__(self, window: Window) -> None:
        super().__init__()
        self.window = window

    def _on_step(self) -> bool:
        return not self.window.tick(self.num_timesteps)


def main() -> None:
    args = arguments(["atari", "cartpole"])
    task = TASKS[args.task]
    if args.task == "atari":
        gymnasium.register_envs(ale_py)
        env = make_atari_env(
            "RoadRunnerNoFrameskip-v4",
            n_envs=args.num_envs,
            seed=args.seed,
            wrapper_kwargs={
                "noop_max": 0,
                "frame_skip": FRAME_SKIP,
                "screen_size": SCREEN,
                "terminal_on_life_loss": False,
                "clip_reward": True,
                "action_repeat_probability": STICKY,
            },
        )
        env = VecFrameStack(env, n_stack=STACK)
        policy, net_arch = "CnnPolicy", []  # its feature extractor ends in 512 units
        # train_freq counts calls of the vector env
        train_freq, gradient_steps = max(1, task.train_every // args.num_envs), 1
    else:
        env = make_vec_env(task.env_id, n_envs=1, seed=args.seed)
        policy, net_arch = "MlpPolicy", list(task.hidden)
        train_freq, gradient_steps = args.group, args.group
    total = task.clock_starts + args.steps + 1_000
    model = DQN(
        policy,
        env,
        learning_rate=task.lr,
        buffer_size=task.capacity,
        learning_starts=task.learning_starts,
        batch_size=task.batch_size,
        gamma=task.gamma,
        train_freq=train_freq,
        gradient_steps=gradient_steps,
        target_update_interval=task.target_update_every,
        exploration_fraction=task.epsilon_decay_steps / total,
        exploration_final_eps=task.epsilon_end,
        policy_kwargs={"net_arch": net_arch, "optimizer_kwargs": {"eps": task.adam_eps}},
        seed=args.seed,
        device="cpu",
    )
    window = Window(task.clock_starts, args.steps)
    with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
        model.learn(total, callback=Clock(window), log_interval=None)
    report("sb3", args, window.env_steps_per_second, ["stable-baselines3"])


if __name__ == "__main__":
    main()
