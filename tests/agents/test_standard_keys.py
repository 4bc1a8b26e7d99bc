"""Keys of a network with statistics that stay."""

import torch
from torch import nn

from rlmem.networks.keys import StandardKeys


def outputs(n: int) -> torch.Tensor:
    """Far from 0 and close together, as those of an untrained network are."""
    generator = torch.Generator().manual_seed(0)
    return 5 + 1e-2 * torch.randn(n, 8, generator=generator)


def test_keys_have_mean_0_and_variance_1_over_d_over_a_minibatch() -> None:
    keys = StandardKeys(nn.Identity(), 8).train()(outputs(64))
    torch.testing.assert_close(keys.mean(0), torch.zeros(8), atol=1e-3, rtol=0)
    spread = keys.var(0, correction=0)
    torch.testing.assert_close(spread, torch.full((8,), 1 / 8), rtol=1e-3, atol=0)


def test_outside_training_keys_are_made_with_what_was_observed() -> None:
    network = StandardKeys(nn.Identity(), 8).eval()
    for row in outputs(400):
        network.observe(row[None])
    keys = network(outputs(400))
    assert keys.mean(0).abs().max() < 0.1
    assert ((8 * keys.var(0)).sqrt() - 1).abs().max() < 0.3
    torch.testing.assert_close(network(outputs(400)[:1]), keys[:1])  # whatever comes beside it


def test_what_was_observed_before_learning_counts_alike_however_slowly_it_changes() -> None:
    network, rows = StandardKeys(nn.Identity(), 8).eval(), outputs(400).sort(0).values
    for row in rows:
        network.observe(row[None])
    torch.testing.assert_close(network.mean, rows.double().mean(0))
    torch.testing.assert_close(network.square, rows.double().square().mean(0))


def test_neither_a_common_way_nor_a_scale_moves_keys() -> None:
    network = StandardKeys(nn.Identity(), 8).train()
    keys = network(outputs(64))
    torch.testing.assert_close(network(outputs(64) + 3), keys, rtol=0, atol=1e-3)
    torch.testing.assert_close(network(5 * outputs(64)), keys, rtol=0, atol=1e-3)
