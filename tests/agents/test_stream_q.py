"""Stream Q: one step by hand, when traces are forgotten, and what is normalised by what."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlmem.agents.running import RunningStatistics
from rlmem.agents.stream_q import StreamQ, obgd_step
from rlmem.memories.base.batch import Batch
from rlmem.networks import make_network
from rlmem.networks.sparse import sparse_init
from rlmem.runs import build
from tests.settings import settings

STREAM = ["agent=stream_q", "memory=trace", "env=cartpole"]


def made(*overrides: str) -> StreamQ:
    cfg = settings(*STREAM, *overrides)
    agent: Any = build.build_agent(cfg, build.build_env(cfg).spec)
    return agent


def step(rng: np.random.Generator, **flags: bool) -> Batch:
    """A batch of one transition, columns [1, 1, ...]."""
    states = torch.from_numpy(rng.normal(size=(2, 1, 1, 4)).astype(np.float32))
    flags = {"terminated": False, "truncated": False, "greedy": True} | flags
    return {
        "observation": states[0],
        "next_observation": states[1],
        "action": torch.tensor([[1]]),
        "reward": torch.tensor([[[1.5]]]),
        "terminated": torch.tensor([[[flags["terminated"]]]]),
        "truncated": torch.tensor([[[flags["truncated"]]]]),
        "greedy": torch.tensor([[flags["greedy"]]]),
        "index": torch.tensor([[0]]),
        "weight": torch.ones(1, 1, 1),
    }


@pytest.mark.parametrize(
    ("delta", "step_size"),
    [
        (0.5, 1 / 12),  # 1 / (kappa 1 |z|), |z| = 6: an error below 1 counts as 1
        (-3.0, 1 / 36),
        (30.0, 1 / 360),
    ],
)
def test_a_step_is_bounded(delta: float, step_size: float) -> None:
    z = torch.tensor([1.0, -2.0, 3.0])
    weights = [torch.tensor([10.0]), torch.tensor([20.0, 30.0])]
    obgd_step(weights, [z[:1], z[1:]], z, torch.tensor(delta), lr=1.0, kappa=2.0)
    found = torch.cat(weights)
    wanted = torch.tensor([10.0, 20.0, 30.0]) + step_size * delta * z
    torch.testing.assert_close(found, wanted)


def test_a_step_beyond_float32_is_infinite_and_no_error_of_torch() -> None:
    z, weights = torch.tensor([2.0]), [torch.tensor([1.0])]
    obgd_step(weights, [z], z, torch.tensor(1e3), lr=1e38, kappa=1e-45)
    assert torch.isinf(weights[0])


def test_a_small_trace_takes_the_whole_step() -> None:
    z, weights = torch.tensor([0.1]), [torch.tensor([1.0])]
    obgd_step(weights, [z], z, torch.tensor(0.5), lr=0.25, kappa=2.0)
    torch.testing.assert_close(weights[0], torch.tensor([1 + 0.25 * 0.5 * 0.1]))


def test_updates_are_the_equations() -> None:
    agent, rng = made(), np.random.default_rng(0)
    z = torch.zeros_like(agent.z)
    returned, seen = 0.0, []
    flags = [{}, {"greedy": False}, {}, {"truncated": True}, {}, {"terminated": True}, {}]
    for own in flags:
        batch = step(rng, **own)
        agent.explore(batch["observation"][0].numpy(), 0.0, rng)
        norm = agent.observations.normalise
        returned = 0.99 * returned + 1.5
        seen.append(returned)
        scaled = 1.5 / np.sqrt(np.var(seen, ddof=1) + 1e-8) if len(seen) > 1 else 1.5
        newest = batch["next_observation"][0]
        q = agent.online(norm(batch["observation"][0], newest))[0, 1]
        gradients = torch.autograd.grad(q, [*agent.online.parameters()])
        with torch.no_grad():
            best = agent.online(norm(newest, newest)).max()
            error = scaled + 0.99 * best * (not own.get("terminated", False)) - q.detach()
            z = 0.99 * 0.8 * z + torch.cat([g.flatten() for g in gradients])
            size = 1 / max(1.0, 2 * max(abs(float(error)), 1.0) * float(z.abs().sum()))
            before = torch.cat([w.flatten() for w in agent.online.parameters()])
            wanted = before + size * error * z
        outputs = agent.update(batch)
        torch.testing.assert_close(outputs["td_error"][0, 0], error.float(), rtol=1e-4, atol=1e-5)
        found = torch.cat([w.detach().flatten() for w in agent.online.parameters()])
        torch.testing.assert_close(found, wanted.float(), rtol=1e-4, atol=1e-5)
        if own:  # an action that was not the best, or an episode's end
            z.zero_()
        if own.get("truncated") or own.get("terminated"):
            returned = 0.0
        torch.testing.assert_close(agent.z, z, rtol=1e-4, atol=1e-5)
    assert agent.grad_steps == len(flags)


def test_exploration_says_whether_it_was_greedy() -> None:
    agent, rng = made(), np.random.default_rng(0)
    observation = rng.normal(size=(1, 4)).astype(np.float32)
    agent.explore(rng.normal(size=(1, 4)).astype(np.float32), 0.0, rng)  # before it, statistics
    greedy = []
    for _ in range(200):
        count, best = int(agent.observations.count), None
        action, columns = agent.explore(observation, 1.0, rng)
        best = agent.act(observation, 0.0, rng)
        assert int(agent.observations.count) == count + 1  # counted by explore alone
        assert columns["greedy"][0] == (action[0] == best[0])
        greedy.append(bool(columns["greedy"][0]))
    assert 0.4 < np.mean(greedy) < 0.6  # of two actions


def test_statistics_are_those_of_all_samples() -> None:
    rng = np.random.default_rng(0)
    samples = rng.normal(1e6, 3.0, (500, 4))  # far from 0: single precision would lose it
    statistics = RunningStatistics((4,))
    torch.testing.assert_close(statistics.deviation(), torch.ones(4, dtype=torch.float64))
    for sample in torch.from_numpy(samples):
        statistics.note(sample)
    np.testing.assert_allclose(statistics.mean, samples.mean(0), rtol=1e-12)
    np.testing.assert_allclose(statistics.deviation(), samples.std(0, ddof=1), rtol=1e-6)
    found = statistics.normalise(torch.from_numpy(samples))
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.mean(0), np.zeros(4), atol=1e-4)


def test_what_varies_for_the_first_time_is_counted_before_it_is_normalised() -> None:
    """As the authors' wrapper does: by the deviation of before, 1e-4, it would be 10,000."""
    samples, newest = torch.zeros(100, 2), torch.tensor([[1.0, 0.0]])
    statistics = RunningStatistics((2,))
    for sample in samples:
        statistics.note(sample)
    found = statistics.normalise(torch.cat((samples[:1], newest)), newest)
    assert int(statistics.count) == 100
    statistics.note(newest[0])
    torch.testing.assert_close(found, statistics.normalise(torch.cat((samples[:1], newest))))
    assert 9 < float(found[1, 0]) < 101**0.5
    agent = made()
    shape = torch.zeros(1, 4)
    for _ in range(100):
        agent.explore(shape.numpy(), 0.0, np.random.default_rng(0))
    seen = []
    agent.online.register_forward_pre_hook(lambda _, given: seen.append(given[0].abs().max()))
    batch = step(np.random.default_rng(0))
    batch["observation"][:] = 0
    batch["next_observation"][:] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    agent.update(batch)
    agent.act(batch["next_observation"][0].numpy(), 0.0, np.random.default_rng(0))
    assert [9 < float(largest) < 101**0.5 for largest in seen] == [True, True]


@pytest.mark.parametrize("shape", [(4,), (100,), (4, 10, 10)])
def test_first_weights_are_sparse(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    network = make_network("auto", shape, 3, [128], False, 1.0)
    sparse_init(network, 0.9)
    layers = [m for m in network.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    for layer in layers:
        rows = layer.weight.detach().flatten(1)
        fan_in = rows.shape[1]
        zeros = (rows == 0).sum(1)
        assert (zeros == min(int(np.ceil(0.9 * fan_in)), fan_in - 1)).all()
        assert float(rows.abs().max()) <= fan_in**-0.5
        assert layer.bias is not None
        assert not layer.bias.any()


@pytest.mark.parametrize("env", ["cartpole", "minatar_breakout"])
def test_norms_have_no_weights(env: str) -> None:
    agent = made(f"env={env}", "env.num_envs=1")
    kinds = [type(m).__name__ for m in agent.online.modules() if not [*m.children()]]
    fully = ["Linear", "LayerNorm", "LeakyReLU"]
    torso = fully if env == "cartpole" else ["Conv2d", "GroupNorm", "LeakyReLU"]
    assert kinds == [*torso, *fully, "Linear"]
    names = [name for name, p in agent.online.named_parameters() if p.dim() > 1]
    assert len([*agent.online.parameters()]) == 2 * len(names)  # weights and biases of layers only
    assert len(agent.z) == sum(p.numel() for p in agent.online.parameters())
