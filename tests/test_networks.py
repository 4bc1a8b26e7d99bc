"""Q networks: shapes, scaling, dueling heads."""

import pytest
import torch

from rlmem.errors import UserError
from rlmem.networks import make_network, network_class
from rlmem.networks.heads import DuelingHead


def make(kind: str = "auto", shape: tuple[int, ...] = (4, 84, 84), **changes: object) -> object:
    settings = {"num_actions": 4, "hidden": [512], "dueling": False, "input_scale": 1.0}
    return make_network(kind, shape, **{**settings, **changes})


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((4,), "MLP"),
        ((4, 84, 84), "NatureNet"),
        ((6, 10, 10), "MinatarNet"),
        ((1, 36, 36), "NatureNet"),
    ],
)
def test_the_network_fits_the_observation(shape: tuple[int, ...], kind: str) -> None:
    assert network_class("auto", shape).__name__ == kind


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((4,), torch.float32), ((4, 84, 84), torch.uint8), ((6, 10, 10), torch.uint8)],
)
def test_a_q_value_for_each_action(
    shape: tuple[int, ...], dtype: torch.dtype, dueling: bool
) -> None:
    net = make(shape=shape, hidden=[32, 16], dueling=dueling, num_actions=5)
    q = net(torch.ones((3, *shape), dtype=dtype))
    assert q.shape == (3, 5)
    assert q.dtype == torch.float32


def test_the_nature_network_has_its_papers_size() -> None:
    assert sum(p.numel() for p in make().parameters()) == 1_686_180


def test_dueling_q_averages_to_the_value() -> None:
    head, features = DuelingHead(7, 16, 5), torch.randn(9, 7)
    torch.testing.assert_close(head(features).mean(-1, keepdim=True), head.value(features))


def test_dueling_q_differs_between_actions_as_the_advantage_does() -> None:
    head, features = DuelingHead(7, 16, 5), torch.randn(9, 7)
    q, advantage = head(features), head.advantage(features)
    torch.testing.assert_close(q - q[:, :1], advantage - advantage[:, :1])


@pytest.mark.parametrize("shape", [(4, 84, 84), (12,)])
def test_stored_bytes_are_scaled_inside(shape: tuple[int, ...]) -> None:
    scaled, plain = (make(shape=shape, input_scale=s, hidden=[16]) for s in (1 / 255, 1.0))
    plain.load_state_dict(scaled.state_dict())
    stored = torch.randint(256, (2, *shape), dtype=torch.uint8)
    torch.testing.assert_close(scaled(stored), plain(stored.float() / 255))


def test_a_view_into_longer_stacks_gives_the_same_values() -> None:
    net, frames = make(hidden=[16]), torch.randint(256, (2, 5, 84, 84), dtype=torch.uint8)
    view = frames.narrow(1, 1, 4)
    torch.testing.assert_close(net(view), net(view.contiguous()))


def test_a_frame_too_small_for_nature_takes_the_small_network() -> None:
    assert sum(p.numel() for p in make(shape=(4, 10, 10), hidden=[128]).parameters()) == (
        4 * 16 * 9 + 16 + 16 * 64 * 128 + 128 + 128 * 4 + 4
    )


def test_a_board_too_small_for_any_convolution_is_named() -> None:
    with pytest.raises(UserError, match=r"\(4, 2, 2\)"):
        make("minatar", shape=(4, 2, 2))


def test_an_mlp_without_hidden_layers_is_linear() -> None:
    net = make(shape=(3,), hidden=[])
    a, b = torch.randn(1, 3), torch.randn(1, 3)
    torch.testing.assert_close(net(a + b) + net(torch.zeros(1, 3)), net(a) + net(b))


@pytest.mark.parametrize("shape", [(3,), (4, 84, 84), (6, 10, 10)])
def test_kaiming_weights_keep_the_variance_of_what_passes_a_relu(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    net = make(shape=shape, hidden=[256, 256], dueling=True, init="kaiming")
    layers = [m for m in net.modules() if isinstance(m, torch.nn.Linear | torch.nn.Conv2d)]
    assert len(layers) >= 5
    for layer in layers:
        bound = (6 / layer.weight[0].numel()) ** 0.5
        assert 0.8 * bound < layer.weight.abs().max() <= bound
        assert not layer.bias.any()


def test_first_weights_are_pytorchs_own_unless_asked_otherwise() -> None:
    torch.manual_seed(0)
    net = make(shape=(3,), hidden=[8])
    torch.manual_seed(0)
    assert torch.equal(net.head[0].weight, torch.nn.Linear(3, 8).weight)
