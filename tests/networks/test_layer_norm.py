"""Layer norms in every kind of network that is made of images."""

from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

from rlmem.envs import EnvSpec
from rlmem.networks.base import make_network
from rlmem.networks.layer_norm import NO_NORMS, normalise_layers
from tests.settings import settings

SHAPES = {"nature": (4, 84, 84), "data_efficient": (4, 84, 84), "impala": (4, 84, 84)}
SHAPES |= {"minatar": (4, 10, 10), "mlp": (6,)}
RECTIFIERS = {"nature": 4, "data_efficient": 3, "impala": 14, "minatar": 2, "mlp": 1}


@pytest.mark.parametrize("kind", SHAPES)
def test_each_rectifier_has_a_norm_before_it(kind: str) -> None:
    network = make_network(kind, SHAPES[kind], 3, [32], False, 1.0, "torch")
    norms = normalise_layers(network, affine=False, activation=nn.LeakyReLU)
    assert norms == RECTIFIERS[kind]
    modules = list(network.modules())
    assert not any(isinstance(module, nn.ReLU) for module in modules)
    leaky = [at for at, module in enumerate(modules) if isinstance(module, nn.LeakyReLU)]
    assert len(leaky) == RECTIFIERS[kind]
    assert all(isinstance(modules[at - 1], nn.LayerNorm | nn.GroupNorm) for at in leaky)
    assert network(torch.zeros(2, *SHAPES[kind])).shape == (2, 3)


def test_a_residual_block_adds_what_its_convolutions_make() -> None:
    network: Any = make_network("impala", (4, 84, 84), 3, [32], False, 1.0, "torch")
    block = network.body[2]
    image = torch.randn(2, 16, 42, 42)
    made = block.second(torch.relu(block.first(torch.relu(image))))
    torch.testing.assert_close(block(image), image + made)
    assert sorted(name for name, _ in block.named_parameters()) == [
        "first.bias", "first.weight", "second.bias", "second.weight",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv1d(2, 4, 3), nn.ReLU()],
        [nn.ReLU()],
        [nn.Conv2d(2, 4, 3), nn.Flatten(), nn.ReLU(), nn.Linear(36, 3)],
        [nn.Linear(5, 8), nn.GLU(), nn.ReLU()],
    ],
)
def test_an_activation_of_something_else_stays_without_a_norm(layers: list[nn.Module]) -> None:
    network = nn.Sequential(*layers)
    assert normalise_layers(cast(Any, network), activation=nn.LeakyReLU) == 0
    kinds = [type(layer) for layer in layers]
    assert [type(layer) for layer in network] == [
        nn.LeakyReLU if kind is nn.ReLU else kind for kind in kinds
    ]


@pytest.mark.parametrize("agent", ["pqn", "stream_q"])
def test_an_agent_whose_network_has_no_place_for_norms_says_so(agent: str) -> None:
    spec = EnvSpec("CartPole-v1", "gym", 1, (4,), np.dtype(np.float32), 1, 2, 1)
    for hidden, said in (("[8]", ""), ("[]", NO_NORMS)):
        run = settings(f"experiment={agent}", "env=cartpole", f"agent.network.hidden={hidden}")
        assert run.agent.build(run, spec).remark == said
