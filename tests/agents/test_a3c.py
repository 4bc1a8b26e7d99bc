"""A3C: returns, loss and gradients against plain sums; shared weights across processes."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlmem.agents.a3c_worker import A3CWorker, Job, LossSettings, returns_of, rollout_loss
from rlmem.agents.shared import LocalCopy, SharedWeights, flatten_weights
from rlmem.collect.config import StreamConfig
from rlmem.collect.worker import Desk, Report
from rlmem.envs import EnvSpec
from rlmem.networks.policies import Policy, make_policy
from tests.settings import settings

PLAIN = LossSettings(
    gamma=0.9,
    gae_lambda=1.0,
    value_weight=0.5,
    entropy_weight=0.01,
    reward_scale=1.0,
    max_grad_norm=None,
)


class Line(Policy):
    """Logits and value of one weight: their gradients are known."""

    def __init__(self, weight: float = 0.0) -> None:
        nn.Module.__init__(self)
        self.memory = None
        self.weight = nn.Parameter(torch.tensor([weight]))


def stepped_by(gradients: list[float], shared: SharedWeights, *copies: LocalCopy) -> None:
    """Updates with these gradients, by the copies in turn."""
    for number, gradient in enumerate(gradients):
        copy = copies[number % len(copies)]
        shared.fetch(copy)
        copy.find_gradient(gradient * copy.network.weight.sum(), None)
        shared.step(copy)


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("gradients", [[3.0, -1.0], [1.0, 0.0], [2.0, -2.0, 5.0]])
def test_updates_are_those_of_adam_given_each_gradient_once(
    gradients: list[float], copies: int
) -> None:
    """Two faults of public codes, silent since torch 2.0: local gradients pile up, or the first one
    is stepped with for ever."""
    local = [LocalCopy(Line(0.5)) for _ in range(copies)]
    shared = SharedWeights(local[0], lr=0.1, eps=1e-8)
    stepped_by(gradients, shared, *local)
    weight = nn.Parameter(torch.tensor([0.5]))
    adam = torch.optim.Adam([weight], lr=0.1)
    for gradient in gradients:
        weight.grad = torch.tensor([gradient])
        adam.step()
    assert shared.weights.item() == pytest.approx(weight.item(), abs=1e-7)
    state = adam.state[weight]
    assert shared.state["exp_avg"].item() == pytest.approx(state["exp_avg"].item(), abs=1e-7)
    assert shared.state["exp_avg_sq"].item() == pytest.approx(state["exp_avg_sq"].item())
    assert shared.state["step"].item() == len(gradients)


def test_first_moments_are_the_sum_of_the_gradients() -> None:
    """What two updates with the gradients 3 and -1 must leave: .1 (.9 * 3 - 1) = .17. Gradients
    that pile up would leave .1 (2.7 + 2) = .47, the first one for ever .57."""
    copy = LocalCopy(Line())
    shared = SharedWeights(copy, lr=0.1, eps=1e-8)
    stepped_by([3.0, -1.0], shared, copy)
    assert shared.state["exp_avg"].item() == pytest.approx(0.17)


def test_a_gradient_is_scaled_down_to_its_norm() -> None:
    copy = LocalCopy(Line())
    assert copy.find_gradient(8.0 * copy.network.weight.sum(), 2.0) == 8.0
    assert copy.gradient.item() == pytest.approx(2.0)
    assert copy.find_gradient(1.5 * copy.network.weight.sum(), 2.0) == 1.5
    assert copy.gradient.item() == 1.5


def _step_elsewhere(shared: SharedWeights, gradient: float) -> None:
    stepped_by([gradient], shared, LocalCopy(Line()))


def test_weights_and_adam_are_shared_by_processes() -> None:
    copy = LocalCopy(Line(0.5))
    shared = SharedWeights(copy, lr=0.1, eps=1e-8)
    shared.share()
    stepped_by([3.0], shared, copy)
    spawn = torch.multiprocessing.get_context("spawn")
    process = spawn.Process(target=_step_elsewhere, args=(shared, -1.0))
    process.start()
    process.join()
    assert process.exitcode == 0
    alone = SharedWeights(LocalCopy(Line(0.5)), lr=0.1, eps=1e-8)
    stepped_by([3.0, -1.0], alone, LocalCopy(Line()))
    assert torch.equal(shared.weights, alone.weights)
    assert all(torch.equal(shared.state[name], alone.state[name]) for name in alone.state)


def test_statistics_are_of_the_frames_of_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that learns while another plays, as they do side by side: what it noted stays."""
    run = settings("agent=a3c", "env=pong", "agent.workers=2", "agent.n_step=3")
    run.env.num_envs = 1
    network = make_policy("lstm42", (1, 42, 42), 6, [], 1 / 255)
    shared = SharedWeights(LocalCopy(network), lr=1e-4, eps=1e-8)
    config = StreamConfig(0, 100, 0, 1, 1, 1, 10_000, True)
    job = Job(run.env, ("lstm42", []), 3, PLAIN, config, shared, [])
    one, other = (A3CWorker(job, number, Desk.make(2), None) for number in (0, 1))
    play = one._play
    monkeypatch.setattr(one, "_play", lambda: play() + other.round(Report()))
    for _ in range(4):
        one.round(Report())
    shared.fetch(one.copy)
    assert one.copy.network.count == 4 * 2 * 3
    for worker in (one, other):
        worker.close()


def test_a_loaded_optimizer_is_gone_on_with() -> None:
    copy = LocalCopy(Line(0.5))
    saved = SharedWeights(copy, lr=0.1, eps=1e-8)
    stepped_by([3.0], saved, copy)
    fresh = SharedWeights(copy, lr=0.1, eps=1e-8)
    optimizer = fresh.as_optimizer()
    optimizer.load_state_dict(saved.as_optimizer().state_dict())
    saved.fetch(copy)
    fresh.take(copy, optimizer)
    for shared in (saved, fresh):
        stepped_by([-1.0], shared, copy)
    assert torch.equal(saved.weights, fresh.weights)
    assert torch.equal(saved.state["exp_avg"], fresh.state["exp_avg"])


def test_an_agent_that_is_stopped_before_its_workers_start_keeps_what_was_loaded() -> None:
    spec = EnvSpec("Vectors", "gym", 1, (4,), np.dtype(np.float32), 1, 3, 1)
    agent = settings("agent=a3c", "env=cartpole", "agent.workers=1").agent.build(None, spec)
    agent._stream = SimpleNamespace(updates=7)
    flatten = torch.nn.utils.parameters_to_vector
    with torch.no_grad():
        for weight in agent.online.parameters():
            weight += 1
    loaded = flatten(agent.online.parameters()).clone()
    agent.on_train_start()
    agent.on_train_end()
    assert torch.equal(flatten(agent.online.parameters()), loaded)
    assert agent.grad_steps == 7


def test_returns_bootstrap_and_advantages_with_lambda_1_are_returns_less_values() -> None:
    rewards, values = np.array([1.0, 0.0, 2.0]), np.array([0.5, -1.0, 3.0, 4.0])
    returns, advantages = returns_of(rewards, values, PLAIN)
    assert returns == pytest.approx([1 + 0.81 * 2 + 0.729 * 4, 0.9 * 2 + 0.81 * 4, 2 + 0.9 * 4])
    assert advantages == pytest.approx(returns - values[:3])


def test_advantages_with_lambda_0_are_td_errors() -> None:
    rewards, values = np.array([1.0, 0.0]), np.array([0.5, -1.0, 3.0])
    _, advantages = returns_of(rewards, values, replace(PLAIN, gae_lambda=0.0))
    assert advantages == pytest.approx([1 - 0.9 - 0.5, 0.9 * 3 + 1])


def rollout(terminated: bool, shape: tuple[int, ...] = (4,), steps: int = 3) -> Any:
    rng = np.random.default_rng(0)
    return SimpleNamespace(
        length=steps,
        terminated=terminated,
        observations=rng.standard_normal((steps + 1, *shape)).astype(np.float32),
        actions=np.array([1, 0, 2, 9])[: steps + 1],
        rewards=np.array([1.0, 0.0, 2.0, 99.0], np.float32),
    )


@pytest.mark.parametrize("terminated", [True, False])
def test_the_loss_is_the_papers_sum_over_the_steps(terminated: bool) -> None:
    torch.manual_seed(0)
    network, played = make_policy("mlp", (4,), 3, [8], 1.0), rollout(terminated)
    network.actor.weight.data.normal_()  # far from uniform
    loss, found = rollout_loss(network, played, network.first_state(1), PLAIN)
    wanted = torch.zeros(())
    logits, values, _ = network(torch.from_numpy(played.observations)[:, None], torch.zeros(1, 0))
    following = 0.0 if terminated else float(values[3, 0].detach())
    for n in (2, 1, 0):
        following = float(played.rewards[n]) + 0.9 * following
        log_policy = torch.log_softmax(logits[n, 0], -1)
        error = following - values[n, 0]
        wanted = wanted - log_policy[played.actions[n]] * error.detach() + 0.5 * error**2
        wanted = wanted + 0.01 * (log_policy.exp() * log_policy).sum()
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    gradients = torch.autograd.grad(wanted, [*network.parameters()])
    copy = LocalCopy(network)
    copy.find_gradient(loss, None)
    for gradient, parameter in zip(gradients, network.parameters(), strict=True):
        assert parameter.grad is not None
        assert torch.allclose(gradient, parameter.grad, atol=1e-5)
    assert found["loss"] == pytest.approx(loss.item() / 3, rel=1e-5)


def test_nothing_is_read_beyond_a_termination() -> None:
    torch.manual_seed(0)
    network, played = make_policy("mlp", (4,), 3, [8], 1.0), rollout(terminated=True)
    before = rollout_loss(network, played, network.first_state(1), PLAIN)[1]
    played.observations[3] = np.nan
    assert rollout_loss(network, played, network.first_state(1), PLAIN)[1] == before


def test_rewards_are_scaled() -> None:
    torch.manual_seed(0)
    network, played = make_policy("mlp", (4,), 3, [8], 1.0), rollout(terminated=True)
    scaled = rollout_loss(network, played, network.first_state(1), replace(PLAIN, reward_scale=0.1))
    played.rewards = played.rewards * np.float32(0.1)
    plain = rollout_loss(network, played, network.first_state(1), PLAIN)
    assert scaled[1] == pytest.approx(plain[1])


def test_flat_weights_are_the_weights() -> None:
    network = make_policy("mlp", (5,), 3, [8], 1.0)
    before = [p.detach().clone() for p in network.parameters()]
    flat = flatten_weights(network.parameters())
    assert torch.equal(flat, torch.cat([p.flatten() for p in before]))
    flat += 1
    for parameter, was in zip(network.parameters(), before, strict=True):
        assert torch.equal(parameter, was + 1)
