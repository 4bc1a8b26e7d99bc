"""DQN against hand computations with a linear network."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from rlmem.agents.dqn import DQN
from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch
from tests.agents.helpers import minibatch, part
from tests.settings import settings

GAMMA = 0.9
ONLINE = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])  # Q = ONLINE @ observation
TARGET = np.array([[0.0, 2.0], [3.0, 0.0], [1.0, 1.0]])


def make_agent(*overrides: str) -> DQN:
    """Two inputs, three actions, no hidden layer, no bias; online and target differ."""
    defaults = ["agent.network.hidden=[]", f"agent.gamma={GAMMA}", "agent.max_grad_norm=null"]
    cfg = settings(*defaults, *overrides).agent
    agent = DQN(cfg, (2,), 3)
    if not cfg.dueling:
        for net, weight in ((agent.online, ONLINE), (agent.target, TARGET)):
            linear = net.head[0]
            with torch.no_grad():
                linear.weight.copy_(torch.from_numpy(weight))
                linear.bias.zero_()
    return agent


def make_batch(updates: int = 1, rows: int = 6, **columns: Any) -> Batch:
    """A random batch [U, B]; keywords fill whole columns."""
    rng = np.random.default_rng(0)
    shape = (updates, rows)
    batch = {
        "observation": torch.from_numpy(rng.normal(size=(*shape, 2)).astype(np.float32)),
        "action": torch.from_numpy(rng.integers(3, size=shape)),
        "steps_to_next": torch.ones(*shape, 1, dtype=torch.int64),
        "weight": torch.ones(*shape, 1),
        "next_observation": torch.from_numpy(rng.normal(size=(*shape, 2)).astype(np.float32)),
        "reward": torch.from_numpy(rng.normal(size=(*shape, 1)).astype(np.float32)),
        "terminated": torch.zeros(*shape, 1, dtype=torch.bool),
        "truncated": torch.zeros(*shape, 1, dtype=torch.bool),
    }
    for name, value in columns.items():
        batch[name] = torch.full_like(batch[name], value)
    return batch


def expected_td_error(batch: Batch, discount: float, double: bool = False) -> np.ndarray:
    """r + discount Q_target(s', a*) - Q(s, a), [B]."""
    row = minibatch(batch)
    following = row["next_observation"].numpy().astype(np.float64)
    q_next = following @ TARGET.T
    best = (following @ ONLINE.T if double else q_next).argmax(1)
    value = q_next[np.arange(len(best)), best]
    q = row["observation"].numpy().astype(np.float64) @ ONLINE.T
    taken = q[np.arange(len(best)), row["action"].numpy()]
    return row["reward"].squeeze(-1).numpy() + discount * value - taken


def td_error_of(agent: DQN, batch: Batch) -> np.ndarray:
    return agent.update(batch)["td_error"][0].numpy()


def same(left: Any, right: Any) -> bool:
    pairs = zip(left.state_dict().values(), right.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_the_td_error_bootstraps_from_the_targets_largest_value() -> None:
    batch = make_batch()
    error = td_error_of(make_agent(), batch)
    np.testing.assert_allclose(error, expected_td_error(batch, GAMMA), rtol=1e-5)


def test_double_values_the_online_networks_choice_by_the_target_network() -> None:
    batch = make_batch(rows=30)
    error = td_error_of(make_agent("agent.double=true"), batch)
    np.testing.assert_allclose(error, expected_td_error(batch, GAMMA, double=True), rtol=1e-4)
    assert not np.allclose(error, expected_td_error(batch, GAMMA))


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_an_n_step_return_is_bootstrapped_by_gamma_to_the_steps_taken(steps: int) -> None:
    batch = make_batch(steps_to_next=steps)
    error = td_error_of(make_agent("agent.n_step=3"), batch)
    np.testing.assert_allclose(error, expected_td_error(batch, GAMMA**steps), rtol=1e-5)


def test_a_termination_is_not_bootstrapped() -> None:
    batch = make_batch(terminated=True)
    np.testing.assert_allclose(
        td_error_of(make_agent(), batch), expected_td_error(batch, 0.0), rtol=1e-5
    )


def test_a_truncation_is_bootstrapped() -> None:
    batch = make_batch(truncated=True)
    np.testing.assert_allclose(
        td_error_of(make_agent(), batch), expected_td_error(batch, GAMMA), rtol=1e-5
    )


def test_the_loss_is_the_weighted_mean_square() -> None:
    batch = make_batch()
    batch["weight"] = torch.rand(1, 6, 1, generator=torch.Generator().manual_seed(0))
    agent = make_agent()
    loss = agent.losses(batch, agent.update(batch))
    weight = batch["weight"][0, :, 0].numpy()
    expected = (weight * expected_td_error(batch, GAMMA) ** 2).mean()
    assert loss.tolist() == pytest.approx([expected], rel=1e-5)


def test_the_huber_loss_is_quadratic_to_one_and_linear_beyond() -> None:
    batch = make_batch(rows=50)
    agent = make_agent("agent.loss=huber")
    loss = agent.losses(batch, agent.update(batch))
    size = np.abs(expected_td_error(batch, GAMMA))
    expected = np.where(size < 1, 0.5 * size**2, size - 0.5).mean()
    assert loss.tolist() == pytest.approx([expected], rel=1e-5)


@pytest.mark.parametrize("loss", ["mse", "huber"])
def test_the_gradient_of_the_loss_is_autograds_bit_for_bit(loss: str) -> None:
    agent, batch = make_agent(f"agent.loss={loss}"), make_batch(rows=50)
    batch["weight"] = torch.rand(1, 50, 1, generator=torch.Generator().manual_seed(0))
    row = minibatch(batch)
    q = (3 * torch.randn(50, 3, generator=torch.Generator().manual_seed(1))).requires_grad_()
    target = torch.zeros(50, 1)
    td_error, gradient = agent._slope(q.detach(), target, row)
    [value] = agent.losses(batch, {"td_error": td_error.squeeze(-1)[None]})
    taken = q.gather(-1, row["action"].unsqueeze(-1))
    each = {"mse": F.mse_loss, "huber": F.huber_loss}[loss](taken, target, reduction="none")
    expected = (row["weight"] * each).mean()
    assert value == expected
    assert torch.equal(gradient, torch.autograd.grad(expected, q)[0])


def test_transitions_of_weight_zero_teach_nothing() -> None:
    agent = make_agent()
    agent.update(make_batch(weight=0.0))
    np.testing.assert_array_equal(agent.online.head[0].weight.detach().numpy(), ONLINE)


def test_an_update_moves_q_towards_its_target() -> None:
    agent, batch = make_agent("agent.lr=0.001"), make_batch()
    first = np.abs(td_error_of(agent, batch)).mean()
    for _ in range(20):
        last = np.abs(td_error_of(agent, batch)).mean()
    assert last < first


def test_the_gradient_is_clipped_to_its_largest_norm() -> None:
    agent = make_agent("agent.max_grad_norm=0.01")
    agent.optimizer = torch.optim.SGD(agent.online.parameters(), lr=1.0)
    before = [p.detach().clone() for p in agent.online.parameters()]
    agent.update(make_batch())
    moved = [p.detach() - b for p, b in zip(agent.online.parameters(), before, strict=True)]
    assert float(torch.nn.utils.get_total_norm(moved)) == pytest.approx(0.01, rel=1e-3)


def test_two_minibatches_are_two_updates_one_after_the_other() -> None:
    together, apart = make_agent(), make_agent()
    batch = make_batch(updates=2)
    outputs = together.update(batch)
    parts = [apart.update(part(batch, slice(i, i + 1))) for i in range(2)]
    assert together.grad_steps == apart.grad_steps == 2
    assert outputs["td_error"].shape == (2, 6)
    assert torch.equal(outputs["td_error"], torch.cat([p["td_error"] for p in parts]))
    losses = [apart.losses(part(batch, slice(i, i + 1)), p) for i, p in enumerate(parts)]
    assert torch.equal(together.losses(batch, outputs), torch.cat(losses))
    assert same(together.online, apart.online)


@pytest.mark.parametrize(("every", "train_every", "updates"), [(12, 4, 3), (1, 4, 1), (5, 1, 5)])
def test_the_target_is_copied_every_so_many_env_steps_worth_of_updates(
    every: int, train_every: int, updates: int
) -> None:
    overrides = [f"agent.target_update_every={every}", f"agent.train_every={train_every}"]
    agent = make_agent(*overrides)
    for step in range(1, 2 * updates + 1):
        before = {name: value.clone() for name, value in agent.target.state_dict().items()}
        agent.update(make_batch())
        if step % updates == 0:
            assert same(agent.target, agent.online)
        else:
            assert all(torch.equal(agent.target.state_dict()[n], v) for n, v in before.items())


def test_the_target_network_gets_no_gradient() -> None:
    assert not any(p.requires_grad for p in make_agent().target.parameters())


def test_exploration_is_full_before_learning_starts_then_linear() -> None:
    agent = make_agent(
        "agent.learning_starts=100", "agent.epsilon.decay_steps=1000", "agent.epsilon.end=0.1"
    )
    rates = [agent.epsilon(s) for s in (0, 99, 100, 500, 1000, 9999)]
    assert rates == pytest.approx([1.0, 1.0, 0.91, 0.55, 0.1, 0.1])


def test_exploration_may_begin_to_fall_later() -> None:
    line = ["agent.epsilon.decay_from=200", "agent.epsilon.decay_steps=1000"]
    agent = make_agent("agent.learning_starts=100", "agent.epsilon.end=0", *line)
    rates = [agent.epsilon(s) for s in (0, 100, 200, 600, 1000, 9999)]
    assert rates == pytest.approx([1.0, 1.0, 1.0, 0.5, 0.0, 0.0])
    with pytest.raises(
        UserError, match=r"agent\.epsilon\.decay_from=1000: use less than agent\.ep"
    ):
        make_agent("agent.epsilon.decay_from=1000", "agent.epsilon.decay_steps=1000")


def test_without_exploration_the_best_action_is_taken() -> None:
    observation = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    action = make_agent().act(observation, 0.0, np.random.default_rng(0))
    assert action.dtype == np.int64
    np.testing.assert_array_equal(action, (observation @ ONLINE.T).argmax(1))


def test_with_full_exploration_every_action_is_as_likely() -> None:
    observation = np.tile(np.array([[5.0, 0.0]], np.float32), (30_000, 1))
    action = make_agent().act(observation, 1.0, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(action) / 30_000, 1 / 3, atol=0.02)


def test_epsilon_is_the_share_of_random_actions() -> None:
    observation = np.tile(np.array([[5.0, 0.0]], np.float32), (30_000, 1))
    action = make_agent().act(observation, 0.3, np.random.default_rng(0))
    assert (action == 0).mean() == pytest.approx(0.7 + 0.3 / 3, abs=0.02)


def test_the_generator_decides_the_actions() -> None:
    agent, observation = make_agent(), np.ones((100, 2), np.float32)
    first, again = (agent.act(observation, 0.5, np.random.default_rng(4)) for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_double_dueling_n_step_learns_on_frames() -> None:
    overrides = ["env=pong", "agent.double=true", "agent.dueling=true", "agent.n_step=3"]
    agent = DQN(settings(*overrides).agent, (4, 84, 84), 6, 1 / 255)
    batch = make_batch(rows=2)
    frames = torch.randint(256, (1, 2, 4, 84, 84), dtype=torch.uint8)
    batch["observation"] = frames
    batch["next_observation"] = frames.flip(1)
    outputs = agent.update(batch)
    assert outputs["td_error"].shape == (1, 2)
    assert outputs["td_error"].isfinite().all()


def test_updates_in_one_autocast_region_each_see_the_weights_of_the_one_before() -> None:
    batch = make_batch(updates=2, rows=6)
    together, apart = make_agent("agent.lr=0.1"), make_agent("agent.lr=0.1")
    with torch.autocast("cpu", torch.bfloat16):
        together.update(batch)
    for row in (part(batch, slice(1)), part(batch, slice(1, 2))):
        with torch.autocast("cpu", torch.bfloat16):
            apart.update(row)
    assert torch.equal(together.online.head[0].weight, apart.online.head[0].weight)


def test_the_value_of_a_state_is_its_largest_q() -> None:
    agent, states = make_agent(), make_batch(rows=5)["observation"][0]
    values = agent.state_values(states)
    assert torch.equal(values, agent.online(states).max(-1).values)
    assert agent.value_name == "max Q(s, a) over a"
