"""DQN in CleanRL's single-file style: one env in a SyncVectorEnv, SB3's buffer, default Adam.

python benchmarks/peers/cleanrl.py --task atari|cartpole --steps N [--bf16]

Written for this benchmark after the structure of CleanRL's dqn.py and dqn_atari.py, with these
versions of Gymnasium and ale-py. It writes to TensorBoard every 100 steps, so does this.
"""

# ruff: noqa: E402

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

# The shared modules instead of this folder, whose names would hide the packages under test.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from common import (
    FRAME_SKIP,
    SCREEN,
    STACK,
    STICKY,
    TASKS,
    Window,
    arguments,
    epsilon,
    exit_not_installed,
    report,
)
from torch import nn

try:
    import ale_py
    from stable_baselines3.common.atari_wrappers import (
        ClipRewardEnv,
        MaxAndSkipEnv,
        StickyActionEnv,
    )
    from stable_baselines3.common.buffers import ReplayBuffer
    from torch.utils.tensorboard import SummaryWriter
except ImportError as error:
    exit_not_installed(error)


def make_env(name: str, env_id: str):
    """Return a function that makes one wrapped env."""

    def thunk() -> gym.Env:
        if name == "cartpole":
            return gym.wrappers.RecordEpisodeStatistics(gym.make(env_id))
        env = gym.wrappers.RecordEpisodeStatistics(gym.make(f"{env_id}NoFrameskip-v4"))
        env = StickyActionEnv(env, STICKY)
        env = MaxAndSkipEnv(env, skip=FRAME_SKIP)
        env = ClipRewardEnv(env)
        env = gym.wrappers.ResizeObservation(env, (SCREEN, SCREEN))
        env = gym.wrappers.GrayscaleObservation(env)
        return gym.wrappers.FrameStackObservation(env, STACK)

    return thunk


class QNetwork(nn.Module):
    def __init__(self, name: str, hidden: tuple[int, ...], num_actions: int) -> None:
        super().__init__()
        self.scale = 255.0 if name == "atari" else 1.0
        if name == "atari":
            self.network = nn.Sequential(
                nn.Conv2d(STACK, 32, 8, stride=4),
                nn.ReLU(),
                nn.Conv2d(32, 64, 4, stride=2),
                nn.ReLU(),
                nn.Conv2d(64, 64, 3, stride=1),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(3136, hidden[0]),
                nn.ReLU(),
                nn.Linear(hidden[0], num_actions),
            )
        else:
            self.network = nn.Sequential(
                nn.Linear(4, hidden[0]),
                nn.ReLU(),
                nn.Linear(hidden[0], hidden[1]),
                nn.ReLU(),
                nn.Linear(hidden[1], num_actions),
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(x / self.scale if self.scale != 1.0 else x)


def main() -> None:
    args = arguments(["atari", "cartpole"])
    task = TASKS[args.task]
    assert args.num_envs == 1, "the script has one env"
    assert args.group == 1, "the script updates as it steps"
    gym.register_envs(ale_py)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    device = torch.device("cpu")
    envs = gym.vector.SyncVectorEnv(
        [make_env(args.task, task.env_id)], autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )
    num_actions = int(envs.single_action_space.n)
    q_network = QNetwork(args.task, task.hidden, num_actions).to(device)
    optimizer = torch.optim.Adam(q_network.parameters(), lr=task.lr, eps=task.adam_eps)
    target_network = QNetwork(args.task, task.hidden, num_actions).to(device)
    target_network.load_state_dict(q_network.state_dict())
    memory = ReplayBuffer(
        task.capacity,
        envs.single_observation_space,
        envs.single_action_space,
        device,
        optimize_memory_usage=args.task == "atari",
        handle_timeout_termination=False,
    )
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=args.bf16)
    window = Window(task.clock_starts, args.steps)
    with tempfile.TemporaryDirectory() as folder:
        writer = SummaryWriter(folder)
        obs, _ = envs.reset(seed=args.seed)
        step, started = 0, time.time()
        while not window.tick(step):
            if rng.random() < epsilon(task, step):
                actions = np.array([envs.single_action_space.sample()])
            else:
                actions = torch.argmax(q_network(torch.Tensor(obs).to(device)), dim=1).cpu().numpy()
            next_obs, rewards, terminations, truncations, infos = envs.step(actions)
            real_next_obs = next_obs.copy()
            for i, done in enumerate(terminations | truncations):
                if done:
                    real_next_obs[i] = infos["final_obs"][i]
                    writer.add_scalar(
                        "charts/episodic_return", infos["final_info"]["episode"]["r"][i], step
                    )
            memory.add(obs, real_next_obs, actions, rewards, terminations, [infos])
            obs = next_obs
            step += 1
            if step <= task.learning_starts:
                continue
            if step % task.train_every == 0:
                data = memory.sample(task.batch_size)
                with torch.no_grad(), autocast:
                    target_max, _ = target_network(data.next_observations).max(dim=1)
                    td_target = data.rewards.flatten() + task.gamma * target_max * (
                        1 - data.dones.flatten()
                    )
                with autocast:
                    old_val = q_network(data.observations).gather(1, data.actions).squeeze()
                    loss = F.mse_loss(td_target, old_val)
                if step % 100 == 0:
                    writer.add_scalar("losses/td_loss", loss, step)
                    writer.add_scalar("losses/q_values", old_val.mean().item(), step)
                    writer.add_scalar("charts/SPS", int(step / (time.time() - started)), step)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if step % task.target_update_every == 0:
                target_network.load_state_dict(q_network.state_dict())
        writer.close()
    packages = ["stable-baselines3", "tensorboard", "opencv-python-headless"]
    report("cleanrl style", args, window.env_steps_per_second, packages)


if __name__ == "__main__":
    main()
