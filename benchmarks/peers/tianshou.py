"""DQN as in Tianshou's examples: Collector, VectorReplayBuffer with frames stored once, DQN.

python benchmarks/peers/tianshou.py --task atari|cartpole --steps N [--num-envs 4] [--group 8]

The loop is its procedural form (collect, then update). Its trainer searches the whole buffer for
NaN after every collect, which costs more the fuller the buffer is.
"""

# ruff: noqa: E402

from __future__ import annotations

import sys
from pathlib import Path

# The shared modules instead of this folder, whose names would hide the packages under test.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
import torch
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

try:
    import ale_py
    import gymnasium
    from tianshou.algorithm import DQN
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, CollectStats, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.env.atari.atari_network import DQNet, ScaledObsInputActionReprNet
    from tianshou.utils.net.common import Net
    from tianshou.utils.torch_utils import policy_within_training_step
except ImportError as error:
    exit_not_installed(error)


def make_env(name: str, env_id: str) -> gymnasium.Env:
    if name == "cartpole":
        return gymnasium.make(env_id)
    gymnasium.register_envs(ale_py)
    env = gymnasium.make(f"ALE/{env_id}-v5", frameskip=1, repeat_action_probability=STICKY)
    env = gymnasium.wrappers.AtariPreprocessing(
        env, noop_max=0, frame_skip=FRAME_SKIP, screen_size=SCREEN
    )
    env = gymnasium.wrappers.TransformReward(env, lambda reward: float(np.sign(reward)))
    return gymnasium.wrappers.FrameStackObservation(env, STACK)


def main() -> None:
    args = arguments(["atari", "cartpole"])
    task = TASKS[args.task]
    np.random.seed(args.seed)  # noqa: NPY002  (Tianshou draws from numpy's global generator)
    torch.manual_seed(args.seed)
    envs = DummyVectorEnv([lambda: make_env(args.task, task.env_id)] * args.num_envs)
    action_space = envs.action_space[0]
    if args.task == "atari":
        net = ScaledObsInputActionReprNet(DQNet(STACK, SCREEN, SCREEN, int(action_space.n)))
        options = {"ignore_obs_next": True, "save_only_last_obs": True, "stack_num": STACK}
        collect, updates = task.train_every, 1
    else:
        net = Net(state_shape=4, action_shape=int(action_space.n), hidden_sizes=task.hidden)
        options = {}
        collect, updates = args.group, args.group
    algorithm = DQN(
        policy=DiscreteQLearningPolicy(model=net, action_space=action_space, eps_training=1.0),
        optim=AdamOptimizerFactory(lr=task.lr, eps=task.adam_eps),
        gamma=task.gamma,
        target_update_freq=task.target_update_every // task.train_every,
        is_double=False,
    )
    memory = VectorReplayBuffer(task.capacity, args.num_envs, **options)
    collector = Collector[CollectStats](algorithm, envs, memory, exploration_noise=True)
    collector.reset()
    collector.collect(n_step=task.learning_starts, random=True)
    window = Window(task.clock_starts, args.steps)

    env_steps = task.learning_starts
    with policy_within_training_step(algorithm.policy):
        while not window.tick(env_steps):
            algorithm.policy.set_eps_training(epsilon(task, env_steps))
            env_steps += collector.collect(n_step=collect).n_collected_steps
            for _ in range(updates):
                algorithm.update(memory, task.batch_size)
    report("tianshou", args, window.env_steps_per_second, ["tianshou"])


if __name__ == "__main__":
    main()
