"""MeDQN's loss, the optimizers and the ways to move a target, against hand computations."""

import numpy as np
import pytest
import torch

from rlmem.agents.dqn import DQN
from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch
from tests.agents.helpers import minibatch
from tests.agents.test_dqn import ONLINE, TARGET, make_agent, make_batch, same
from tests.settings import settings


def consolidating(inner: int, weight: float, rows: int = 6, states: int = 5) -> Batch:
    """A batch [1] of `rows` transitions and `states` states for each inner step."""
    batch = make_batch(rows=rows)
    generator = torch.Generator().manual_seed(1)
    batch["consolidation"] = torch.randn(1, inner, states, 2, generator=generator)
    batch["consolidation_weight"] = torch.full((1,), weight)
    return batch


def reference(batch: Batch, lr: float) -> np.ndarray:
    """Weights after gradient descent by the paper's loss, with autograd and nothing else."""
    weight = torch.tensor(ONLINE, dtype=torch.float64, requires_grad=True)
    old = torch.tensor(TARGET)
    row = minibatch(batch)
    q_next = row["next_observation"].double() @ old.T
    target = row["reward"].squeeze(-1).double() + 0.9 * q_next.amax(1)
    for states in row["consolidation"].double():
        q = row["observation"].double() @ weight.T
        td = (target - q.gather(1, row["action"][:, None]).squeeze(1)).square().mean()
        gap = (states @ weight.T - states @ old.T).square().mean()
        (gradient,) = torch.autograd.grad(td + row["consolidation_weight"].double() * gap, weight)
        weight = (weight - lr * gradient).detach().requires_grad_()
    return weight.detach().numpy()


def plain_gradient(batch: Batch) -> np.ndarray:
    """Of the mean squared TD error, by the weights of the linear online network."""
    weight = torch.tensor(ONLINE, requires_grad=True)
    row = minibatch(batch)
    target = row["reward"].squeeze(-1) + 0.9 * (
        row["next_observation"].double() @ torch.tensor(TARGET).T
    ).amax(1)
    q = (row["observation"].double() @ weight.T).gather(1, row["action"][:, None]).squeeze(1)
    (gradient,) = torch.autograd.grad((target - q).square().mean(), weight)
    return gradient.numpy()


@pytest.mark.parametrize("inner", [1, 2, 4])
def test_each_inner_step_descends_the_td_loss_and_the_weighted_gap(inner: int) -> None:
    agent, batch = make_agent(), consolidating(inner, 0.7)
    # The bias is no part of the reference: it is held at 0.
    agent.online.head[0].bias.requires_grad_(False)
    agent.optimizer = torch.optim.SGD([agent.online.head[0].weight], lr=0.05)
    agent.update(batch)
    found = agent.online.head[0].weight.detach().numpy()
    np.testing.assert_allclose(found, reference(batch, 0.05), rtol=1e-4, atol=1e-6)
    assert agent.grad_steps == 1


def test_without_weight_a_consolidating_step_is_a_plain_one() -> None:
    plain, other = make_agent(), make_agent()
    batch = consolidating(1, 0.0)
    outputs = other.update(batch)
    expected = plain.update(make_batch())
    np.testing.assert_allclose(outputs["td_error"], expected["td_error"], rtol=1e-6)
    left, right = plain.online.state_dict(), other.online.state_dict()
    assert all(torch.allclose(left[n], right[n], atol=1e-7) for n in left)


def test_what_is_returned_is_from_before_the_first_step() -> None:
    once, often = make_agent(), make_agent()
    batch = consolidating(3, 2.0)
    few = consolidating(3, 2.0)
    few["consolidation"] = few["consolidation"][:, :1]
    a, b = often.update(batch), once.update(few)
    for name in ("td_error", "consolidation_loss"):
        assert torch.equal(a[name], b[name])
    td_loss = a["td_error"].square().mean()  # weights are ones
    assert torch.allclose(often.losses(batch, a), td_loss + 2.0 * a["consolidation_loss"])
    states = batch["consolidation"][0, 0].numpy()
    gap = np.square(states @ (ONLINE - TARGET).T).mean()
    assert a["consolidation_loss"].tolist() == pytest.approx([gap], rel=1e-5)


def test_a_strong_consolidation_holds_q_to_the_target_network() -> None:
    given = ["agent.lr=0.01", "agent.target_update_every=episode"]
    free, held = make_agent(*given), make_agent(*given)
    batch = consolidating(1, 1000.0, states=64)
    for _ in range(1000):
        held.update(batch)
        free.update(make_batch())

    def gap(agent: DQN) -> float:
        return float((agent.online.head[0].weight.detach() - torch.tensor(TARGET)).abs().max())

    assert gap(held) < 0.1 < gap(free)


def test_a_share_tau_of_the_way_is_gone_at_each_update_of_the_target() -> None:
    agent = make_agent("agent.tau=0.05", "agent.target_update_every=1", "agent.train_every=1")
    before = {name: value.clone() for name, value in agent.target.state_dict().items()}
    agent.update(make_batch())
    online = agent.online.state_dict()
    for name, value in agent.target.state_dict().items():
        assert torch.allclose(value, before[name] + 0.05 * (online[name] - before[name]))


def test_what_is_no_weight_of_a_network_is_copied_to_its_target() -> None:
    agent = make_agent("agent.tau=0.05", "agent.target_update_every=1", "agent.train_every=1")
    for network in (agent.online, agent.target):
        network.register_buffer("running_mean", torch.zeros(1))
    agent.online.running_mean += 5.0
    agent.update(make_batch())
    assert agent.target.running_mean == 5.0


def test_a_target_of_episodes_waits_to_be_told() -> None:
    agent = make_agent("agent.target_update_every=episode")
    for _ in range(300):
        agent.update(make_batch())
        agent.round_ended(0)
    np.testing.assert_allclose(agent.target.head[0].weight, TARGET)
    agent.round_ended(2)
    assert same(agent.target, agent.online)


def test_a_target_of_env_steps_does_not_follow_episodes() -> None:
    agent = make_agent("agent.target_update_every=1000000")
    agent.update(make_batch())
    agent.round_ended(1)
    np.testing.assert_allclose(agent.target.head[0].weight, TARGET)


def test_targets_are_clipped() -> None:
    batch = make_batch(rows=200)
    wide = make_agent().update(batch)["td_error"]
    clipped = make_agent("agent.target_clip=[-1,0]").update(batch)["td_error"]
    taken = (batch["observation"][0].numpy() @ ONLINE.T)[np.arange(200), batch["action"][0]]
    assert ((wide + taken)[0] > 0).any()
    np.testing.assert_allclose(clipped, np.clip(wide + taken, -1, 0) - taken, atol=1e-5)


def test_rmsprop_steps_as_torchs_centred_one() -> None:
    agent = make_agent("agent.optimizer=rmsprop", "agent.lr=0.01")
    batch = make_batch()
    gradient = plain_gradient(batch)
    agent.update(batch)
    mean, square = 0.05 * gradient, 0.05 * gradient**2
    expected = ONLINE - 0.01 * gradient / (np.sqrt(square - mean**2) + 0.01)
    found = agent.online.head[0].weight.detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("agent.target_update_every=0", "whole number of env steps from 1, or episode"),
        ("agent.target_update_every=often", "whole number of env steps from 1, or episode"),
        ("agent.target_clip=[0,-50]", "two rising numbers"),
        ("agent.target_clip=[1]", "two rising numbers"),
        ("agent.tau=0", "agent.tau=0"),
        ("agent.optimizer=sgd", "agent.optimizer=sgd"),
        ("memory.consolidation.states=seen", "memory.consolidation.states=seen"),
        ("memory.consolidation.inner_steps=0", "memory.consolidation.inner_steps=0"),
        ("env=pong", "use memory=medqn_r"),
        ("memory/storage=map", "memory/storage=map"),
    ],
)
def test_a_wrong_value_is_named(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message.replace("[", r"\[")):
        settings("memory=medqn_u", "paths.output_dir=x", override)


def test_consolidation_wants_an_agent_of_q_values() -> None:
    given = ["memory=medqn_u", "agent=ddpg", "env=reacher", "paths.output_dir=x"]
    with pytest.raises(UserError, match="use agent=dqn"):
        settings(*given)
