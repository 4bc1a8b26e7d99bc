"""DQN as in TorchRL's sota-implementations: Collector, TensorDictReplayBuffer, DQNLoss, HardUpdate.

python benchmarks/peers/torchrl.py --task atari|cartpole --steps N [--group 8]

Pixels come from Gymnasium's AtariPreprocessing and stacking as uint8: TorchRL's image transforms
need torchvision, and its script stores float32 stacks, four times the bytes.
"""

# ruff: noqa: E402

from __future__ import annotations

import sys
from pathlib import Path

# The shared modules instead of this folder, whose names would hide the packages under test.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import warnings

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
from torch import nn

warnings.filterwarnings("ignore")
try:
    import ale_py
    import gymnasium
    from tensordict.nn import TensorDictSequential
    from torchrl.collectors import Collector
    from torchrl.data import Composite, LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.envs import DoubleToFloat, GymWrapper, RewardSum, StepCounter, TransformedEnv
    from torchrl.modules import MLP, ConvNet, EGreedyModule, QValueActor
    from torchrl.objectives import DQNLoss, HardUpdate
except ImportError as error:
    exit_not_installed(error)


class Scale(nn.Module):
    """uint8 -> float32 in [0, 1]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / 255


def make_env(name: str, env_id: str) -> TransformedEnv:
    if name == "cartpole":
        gym = gymnasium.make(env_id)
    else:
        gymnasium.register_envs(ale_py)
        gym = gymnasium.make(f"ALE/{env_id}-v5", frameskip=1, repeat_action_probability=STICKY)
        gym = gymnasium.wrappers.AtariPreprocessing(
            gym, noop_max=0, frame_skip=FRAME_SKIP, screen_size=SCREEN
        )
        gym = gymnasium.wrappers.FrameStackObservation(gym, STACK)
        gym = gymnasium.wrappers.TransformReward(gym, lambda reward: (reward > 0) - (reward < 0))
    env = TransformedEnv(GymWrapper(gym, categorical_action_encoding=True))
    env.append_transform(RewardSum())
    env.append_transform(StepCounter())
    env.append_transform(DoubleToFloat())
    return env


def make_model(name: str, env: TransformedEnv, hidden: tuple[int, ...]) -> QValueActor:
    num_actions = int(env.action_spec.space.n)
    if name == "atari":
        cnn = ConvNet(
            activation_class=nn.ReLU,
            num_cells=[32, 64, 64],
            kernel_sizes=[8, 4, 3],
            strides=[4, 2, 1],
        )
        inputs = cnn(torch.ones(1, STACK, SCREEN, SCREEN)).shape[-1]
        head = MLP(
            in_features=inputs,
            activation_class=nn.ReLU,
            out_features=num_actions,
            num_cells=list(hidden),
        )
        module = nn.Sequential(Scale(), cnn, head)
    else:
        module = MLP(
            in_features=4,
            activation_class=nn.ReLU,
            out_features=num_actions,
            num_cells=list(hidden),
        )
    spec = Composite(action=env.action_spec)
    return QValueActor(module=module, spec=spec, in_keys=["observation"])


def main() -> None:
    args = arguments(["atari", "cartpole"])
    task = TASKS[args.task]
    assert args.num_envs == 1, "the script has one env"
    torch.manual_seed(args.seed)
    env = make_env(args.task, task.env_id)
    model = make_model(args.task, env, task.hidden)
    explore = EGreedyModule(
        spec=model.spec,
        eps_init=1.0,
        eps_end=task.epsilon_end,
        annealing_num_steps=task.epsilon_decay_steps,
    )
    frames_per_batch = task.train_every * args.group
    collector = Collector(
        create_env_fn=env,
        policy=TensorDictSequential(model, explore),
        frames_per_batch=frames_per_batch,
        total_frames=-1,
        device="cpu",
        storing_device="cpu",
        max_frames_per_traj=-1,
        init_random_frames=task.learning_starts,
    )
    memory = TensorDictReplayBuffer(
        pin_memory=False, storage=LazyTensorStorage(task.capacity), batch_size=task.batch_size
    )
    loss_module = DQNLoss(value_network=model, loss_function="l2", delay_value=True)
    loss_module.make_value_estimator(gamma=task.gamma)
    updater = HardUpdate(
        loss_module, value_network_update_interval=task.target_update_every // task.train_every
    )
    optimizer = torch.optim.Adam(loss_module.parameters(), lr=task.lr, eps=task.adam_eps)
    window = Window(task.clock_starts, args.steps)
    env_steps = 0
    for data in collector:
        data = data.reshape(-1)
        env_steps += data.numel()
        explore.step(data.numel())
        memory.extend(data)
        if env_steps > task.learning_starts:
            for _ in range(args.group):
                loss = loss_module(memory.sample())["loss"]
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                updater.step()
            collector.update_policy_weights_()
        if window.tick(env_steps):
            break
    collector.shutdown()
    report("torchrl", args, window.env_steps_per_second, ["torchrl", "tensordict"])


if __name__ == "__main__":
    main()
