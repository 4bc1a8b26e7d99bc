"""Actors with critics: all steps at once as one by one, what observations they take, statistics."""

import numpy as np
import pytest
import torch

from rlmem.errors import UserError
from rlmem.networks.policies import LSTM42, make_policy

SHAPES = {
    "mlp": (5,),
    "minatar": (4, 10, 10),
    "nature": (4, 84, 84),
    "lstm42": (1, 42, 42),
    "gru160": (1, 160, 160),
    "stack160": (4, 160, 160),
}


def observations(kind: str, *leading: int) -> torch.Tensor:
    high = 256 if kind != "minatar" else 2
    rows = torch.randint(0, high, (*leading, *SHAPES[kind]), dtype=torch.uint8)
    return rows.float() / 256 if kind == "mlp" else rows


@pytest.mark.parametrize("kind", SHAPES)
def test_steps_at_once_are_steps_one_by_one(kind: str) -> None:
    torch.manual_seed(0)
    network = make_policy(kind, SHAPES[kind], 3, [32], 1 / 255)
    seen, state = observations(kind, 3, 2), network.first_state(2)
    network.observe(observations(kind, 4))
    logits, values, after = network(seen, state)
    assert (logits.shape, values.shape) == ((3, 2, 3), (3, 2))
    for step, row in enumerate(seen):
        one_logits, one_values, state = network(row[None], state)
        assert torch.allclose(one_logits[0], logits[step], atol=1e-5)
        assert torch.allclose(one_values[0], values[step], atol=1e-4)
    assert torch.allclose(state, after, atol=1e-5)


@pytest.mark.parametrize("kind", ["lstm42", "gru160"])
def test_a_state_matters_and_environments_do_not_mix(kind: str) -> None:
    torch.manual_seed(0)
    network = make_policy(kind, SHAPES[kind], 3, [], 1 / 255)
    seen = observations(kind, 1, 2)
    state = torch.randn(2, network.state_size)
    other = state.clone()
    other[1] += 1
    first, second = network(seen, state)[1], network(seen, other)[1]
    assert torch.equal(first[0, 0], second[0, 0])
    assert not torch.equal(first[0, 1], second[0, 1])


@pytest.mark.parametrize("kind", SHAPES)
def test_the_first_policy_is_nearly_uniform(kind: str) -> None:
    torch.manual_seed(0)
    network = make_policy(kind, SHAPES[kind], 6, [32], 1 / 255)
    logits, *_ = network(observations(kind, 2, 1), network.first_state(1))
    assert torch.softmax(logits, -1).sub(1 / 6).abs().max() < 0.05


@pytest.mark.parametrize(
    ("kind", "shape", "suited"),
    [("lstm42", (1, 84, 84), "nature"), ("gru160", (4, 160, 160), "nature"),
     ("stack160", (1, 160, 160), "nature"), ("nature", (5,), "mlp")],
)  # fmt: skip
def test_a_network_refuses_other_observations(
    kind: str, shape: tuple[int, ...], suited: str
) -> None:
    with pytest.raises(UserError, match=f"kind={kind}.*use agent.network.kind={suited}"):
        make_policy(kind, shape, 3, [8], 1.0)


def test_running_statistics_are_those_of_the_frames_one_by_one() -> None:
    """Running means of the frames' own means and deviations, corrected for beginning at 0."""
    torch.manual_seed(0)
    network = make_policy("lstm42", (1, 42, 42), 3, [], 1 / 255)
    assert isinstance(network, LSTM42)
    frames = observations("lstm42", 30)
    network.observe(frames[:10])
    network.observe(frames[10:])
    mean = deviation = 0.0
    for frame in frames.numpy() / 255:
        mean = 0.9999 * mean + 0.0001 * float(frame.mean())
        deviation = 0.9999 * deviation + 0.0001 * float(frame.std())
    unbiased = 1 - 0.9999**30
    wanted = (frames[:1].numpy() / 255 - mean / unbiased) / (deviation / unbiased + 1e-8)
    assert np.allclose(network.scaled(frames[:1]).numpy(), wanted, atol=1e-3)
