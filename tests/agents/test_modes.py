"""Networks learn in training mode and play in evaluation mode."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlmem.agents.dqn import DQN
from tests.agents.test_dqn import make_agent, make_batch


class Noted(nn.Module):
    """Passes on and notes its mode."""

    def __init__(self) -> None:
        super().__init__()
        self.modes: list[bool] = []

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.modes.append(self.training)
        return values


class Frozen(Noted):
    """Stays in evaluation mode whatever it is told."""

    def train(self, mode: bool = True) -> "Frozen":
        return super().train(False)


class OneRound(list):
    """A Trainer step of one batch, after which the agent plays."""

    episodes_ended = 0

    def learned(self, batch: Any, outputs: Any) -> None:
        pass


def noted(agent: DQN, layer: Noted) -> Noted:
    agent.online.head.append(layer)
    agent.on_train_start()
    return layer


@pytest.mark.parametrize("own", [False, True])
def test_a_layer_is_in_training_mode_while_its_agent_learns_only(own: bool) -> None:
    agent = make_agent()
    layer = noted(agent, Frozen() if own else Noted())
    observation, rng = np.zeros((1, 2), np.float32), np.random.default_rng(0)
    for _ in range(2):
        agent.explore(observation, 0.0, rng)
        agent.training_step(OneRound([make_batch()]), 0)
    assert layer.modes == [False, not own] * 2
    assert not any(module.training for module in agent.modules())


def test_a_round_without_a_batch_leaves_the_mode() -> None:
    agent = make_agent()
    noted(agent, Noted())
    assert agent.training_step(OneRound([{}]), 0) == {}
    assert not agent.training
