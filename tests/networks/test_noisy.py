"""Noisy layers, against weights with their noise written out."""

import pytest
import torch
from torch.nn import functional

from rlmem.networks.base import make_network
from rlmem.networks.noisy import NoisyLinear, draw_noise, noisy_layers


def make() -> NoisyLinear:
    torch.manual_seed(0)
    layer = NoisyLinear(6, 4, std=0.5)
    draw_noise([layer])
    return layer


def test_is_a_linear_layer_whose_weights_have_factored_noise() -> None:
    layer, features = make(), torch.randn(3, 6)
    weight = layer.weight + layer.weight_std * torch.outer(layer.noise_out, layer.noise_in)
    bias = layer.bias + layer.bias_std * layer.noise_out
    torch.testing.assert_close(layer(features), functional.linear(features, weight, bias))
    layer.quiet = True
    plain = functional.linear(features, layer.weight, layer.bias)
    torch.testing.assert_close(layer(features), plain)


def test_noise_is_new_at_each_draw_and_has_the_moments_of_the_paper() -> None:
    layers = [NoisyLinear(200, 100), NoisyLinear(100, 50)]
    draws = []
    for _ in range(200):
        draw_noise(layers)
        draws.append(torch.cat([layers[0].noise_in, layers[1].noise_out]))
    noise = torch.stack(draws)
    assert (noise[0] != noise[1]).all()
    # sign(x) sqrt(|x|) has mean 0 and variance E|x| = sqrt(2 / pi).
    assert abs(noise.mean()) < 0.02
    assert abs(noise.var() - (2 / torch.pi) ** 0.5) < 0.02
    assert layers[0].weight_std[0, 0].item() == torch.tensor(0.5 / 200**0.5).item()


def test_both_means_and_deviations_learn() -> None:
    layer = make()
    layer(torch.randn(3, 6)).square().sum().backward()
    for name, weight in layer.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().sum() > 0, name


@pytest.mark.parametrize("init", ["kaiming", "orthogonal"])
def test_what_draws_the_first_weights_draws_those_of_noisy_layers(init: str) -> None:
    torch.manual_seed(0)
    shape, actions, widths = (8,), 4, [64]
    network = make_network("mlp", shape, actions, widths, False, 1.0, init, layer=NoisyLinear)
    first = noisy_layers(network)[0]
    wide = {"kaiming": (2 / 8) ** 0.5, "orthogonal": 2**0.5 / 8}[init]
    assert first.weight.std().item() == pytest.approx(wide, rel=0.2)
    assert not first.bias.any()
    assert (first.weight_std == 0.5 / 8**0.5).all()  # the noise's own is left
