"""DDPG and TD3 against hand computations with linear networks."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlmem.agents.ddpg import DDPG
from rlmem.memories.base.batch import Batch
from tests.agents.helpers import minibatch, part
from tests.settings import settings

GAMMA = 0.9
LOW, HIGH = np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32)
CENTRE, HALF = (HIGH + LOW) / 2, (HIGH - LOW) / 2
POLICY = np.array([[0.5, -0.5, 1.0], [1.0, 0.5, 0.0]])  # of the target actor, before the tanh
# Of two critics each; the last two weights are the action's.
VALUES = np.array([[1.0, 2.0, -1.0, 0.5, 1.5], [-1.0, 1.0, 0.5, 2.0, -0.5]])  # targets
ONLINE = np.array([[0.2, 0.0, 0.4, -1.0, 0.3], [0.0, 0.6, -0.4, 0.1, 0.7]])
PLAIN = ("agent=ddpg", "env=reacher", "agent.critic_weight_decay=0")
TD3 = ("agent=td3", "env=reacher", "agent.target_noise=0")


def fill(linear: Any, weight: np.ndarray) -> None:
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(np.atleast_2d(weight)))
        linear.bias.zero_()


def make_agent(*overrides: str, hidden: str = "[]", features: int = 3) -> DDPG:
    """Three inputs, two actions, no hidden layer, no bias; online and target networks differ."""
    torch.manual_seed(0)
    shape = [f"agent.network.hidden={hidden}", "agent.network.action_layer=1"]
    cfg = settings(*(overrides or PLAIN), *shape, f"agent.gamma={GAMMA}").agent
    agent = DDPG(cfg, features, LOW, HIGH, torch.Generator().manual_seed(0))
    if hidden == "[]":
        fill(agent.target_actor.head[0], POLICY)
        for critics, weights in ((agent.critics, ONLINE), (agent.target_critics, VALUES)):
            for critic, weight in zip(critics, weights, strict=False):
                fill(critic.head[0], weight)
    return agent


def make_batch(updates: int = 1, rows: int = 6, **columns: Any) -> Batch:
    """A random batch [U, B]; keywords fill whole columns."""
    rng = np.random.default_rng(0)
    shape = (updates, rows)

    def normal(*size: int) -> torch.Tensor:
        return torch.from_numpy(rng.normal(size=(*shape, *size)).astype(np.float32))

    batch = {
        "observation": normal(3),
        "action": torch.from_numpy(rng.uniform(LOW, HIGH, (*shape, 2)).astype(np.float32)),
        "steps_to_next": torch.ones(*shape, 1, dtype=torch.int64),
        "weight": torch.ones(*shape, 1),
        "next_observation": normal(3),
        "reward": normal(1),
        "terminated": torch.zeros(*shape, 1, dtype=torch.bool),
        "truncated": torch.zeros(*shape, 1, dtype=torch.bool),
    }
    for name, value in columns.items():
        batch[name] = torch.full_like(batch[name], value)
    return batch


def values(batch: Batch, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q_target(s', pi_target(s')) and Q(s, a) of critics with these weights, [critics, B] each."""
    row = minibatch(batch)
    following = row["next_observation"].numpy().astype(np.float64)
    action = CENTRE + HALF * np.tanh(following @ POLICY.T)
    online = np.concatenate([row["observation"].numpy(), row["action"].numpy()], 1)
    n = len(weights)
    return VALUES[:n] @ np.concatenate([following, action], 1).T, weights @ online.T


def expected_td_error(batch: Batch, discount: float) -> np.ndarray:
    """r + discount Q_target(s', pi_target(s')) - Q(s, a), [B]."""
    following, taken = values(batch, ONLINE[:1])
    reward = batch["reward"][0].squeeze(-1).numpy()
    return (reward + discount * following - taken)[0]


def td_error_of(agent: DDPG, batch: Batch) -> np.ndarray:
    return agent.update(batch)["td_error"][0].numpy()


def flat(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def test_the_td_error_bootstraps_from_the_target_policys_value() -> None:
    batch = make_batch()
    np.testing.assert_allclose(
        td_error_of(make_agent(), batch), expected_td_error(batch, GAMMA), rtol=1e-4, atol=1e-5
    )


def test_a_termination_is_not_bootstrapped() -> None:
    batch = make_batch(terminated=True)
    np.testing.assert_allclose(
        td_error_of(make_agent(), batch), expected_td_error(batch, 0.0), rtol=1e-4, atol=1e-5
    )


def test_a_truncation_is_bootstrapped() -> None:
    batch = make_batch(truncated=True)
    np.testing.assert_allclose(
        td_error_of(make_agent(), batch), expected_td_error(batch, GAMMA), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_an_n_step_return_is_bootstrapped_by_gamma_to_the_steps_taken(steps: int) -> None:
    batch = make_batch(steps_to_next=steps)
    error = td_error_of(make_agent(*PLAIN, "agent.n_step=3"), batch)
    np.testing.assert_allclose(error, expected_td_error(batch, GAMMA**steps), rtol=1e-4, atol=1e-5)


def test_td3s_target_is_the_smaller_value_of_the_twins() -> None:
    batch = make_batch(rows=30)
    following, taken = values(batch, ONLINE)
    reward = batch["reward"][0].squeeze(-1).numpy()
    errors = reward + GAMMA * following.min(0) - taken  # [2, B], one target for both
    largest = np.where(np.abs(errors[0]) >= np.abs(errors[1]), *errors)
    outputs = make_agent(*TD3).update(batch)
    np.testing.assert_allclose(outputs["td_error"][0], largest, rtol=1e-4, atol=1e-5)
    assert outputs["loss"].tolist() == pytest.approx([(errors**2).mean(1).sum()], rel=1e-4)


def test_target_smoothing_stays_within_its_clip_and_the_box() -> None:
    agent = make_agent("agent=td3", "env=reacher", "agent.target_noise=5")
    noise = agent._target_noise(torch.zeros(3, 1000, 2))
    assert noise.abs().amax((0, 1)).tolist() == pytest.approx(0.5 * HALF)
    seen = []
    agent.target_critics = nn.ModuleList([Spy(seen), Spy(seen)])
    agent.update(make_batch(rows=500))
    assert (seen[0] >= torch.from_numpy(LOW)).all()
    assert (seen[0] <= torch.from_numpy(HIGH)).all()


class Spy(nn.Module):
    """A critic that keeps the actions it is asked about."""

    def __init__(self, seen: list[torch.Tensor]) -> None:
        super().__init__()
        self.seen = seen

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        self.seen.append(action)
        return torch.zeros(len(action), 1)


def test_td3_moves_policy_and_targets_at_every_second_update_only() -> None:
    agent = make_agent(*TD3)
    for update in range(1, 5):
        parts = (agent.actor, agent.target_actor, agent.target_critics, agent.critics)
        before = [flat(part) for part in parts]
        agent.update(make_batch())
        moved = [not torch.equal(a, flat(b)) for a, b in zip(before, parts, strict=True)]
        assert moved == [update % 2 == 0] * 3 + [True]


def test_targets_move_by_tau_of_the_way() -> None:
    agent = make_agent(*PLAIN, "agent.tau=0.25")
    before = flat(agent.target_critics), flat(agent.target_actor)
    agent.update(make_batch())
    online = flat(agent.critics), flat(agent.actor)
    targets = flat(agent.target_critics), flat(agent.target_actor)
    for old, new, target in zip(before, online, targets, strict=True):
        assert torch.allclose(target, old + 0.25 * (new - old))


def test_the_policy_climbs_the_critics_value_and_leaves_the_critic_alone() -> None:
    agent = make_agent(*PLAIN, "agent.critic_lr=1e-12", "agent.actor_lr=0.01")
    batch = make_batch(rows=50)

    def value() -> float:
        observation = batch["observation"][0]
        with torch.no_grad():
            return float(agent.critics[0](observation, agent.actor(observation)).mean())

    first, critic = value(), flat(agent.critics)
    for _ in range(30):
        agent.update(batch)
    assert value() > first + 0.1
    assert torch.allclose(critic, flat(agent.critics))


def test_the_loss_is_the_weighted_mean_square() -> None:
    batch = make_batch()
    batch["weight"] = torch.rand(1, 6, 1, generator=torch.Generator().manual_seed(0))
    weight = batch["weight"][0, :, 0].numpy()
    expected = (weight * expected_td_error(batch, GAMMA) ** 2).mean()
    loss = make_agent().update(batch)["loss"]
    assert loss.tolist() == pytest.approx([expected], rel=1e-4)


def test_transitions_of_weight_zero_teach_nothing() -> None:
    agent = make_agent()
    before = flat(agent.critics), flat(agent.actor)
    agent.update(make_batch(weight=0.0))
    assert torch.equal(before[0], flat(agent.critics))
    assert torch.equal(before[1], flat(agent.actor))


def test_weight_decay_pulls_at_the_critic_only() -> None:
    agent = make_agent("agent=ddpg", "env=reacher", "agent.critic_weight_decay=1")
    critic, actor = flat(agent.critics).abs().sum(), flat(agent.actor)
    agent.update(make_batch(weight=0.0))
    assert flat(agent.critics).abs().sum() < critic
    assert torch.equal(actor, flat(agent.actor))


@pytest.mark.parametrize("kind", [PLAIN, ("agent=td3", "env=reacher")], ids=["ddpg", "td3"])
def test_minibatches_in_one_step_are_updates_one_after_the_other(kind: tuple[str, ...]) -> None:
    together, apart = make_agent(*kind), make_agent(*kind)
    apart.load_state_dict(together.state_dict())
    batch = make_batch(updates=3, rows=8)  # torch draws normal numbers in blocks of 16
    outputs = together.update(batch)
    parts = [apart.update(part(batch, slice(i, i + 1))) for i in range(3)]
    assert together.grad_steps == apart.grad_steps == 3
    assert torch.equal(outputs["td_error"], torch.cat([p["td_error"] for p in parts]))
    assert torch.equal(outputs["loss"], torch.cat([p["loss"] for p in parts]))
    assert torch.equal(flat(together.actor), flat(apart.actor))


def test_the_state_goes_on_with_the_same_smoothing_noise() -> None:
    agent, other = (make_agent("agent=td3", "env=reacher") for _ in range(2))
    agent.update(make_batch())
    other.load_state_dict(agent.state_dict())
    action = torch.zeros(1, 4, 2)
    assert torch.equal(agent._target_noise(action), other._target_noise(action))


@pytest.mark.parametrize("action_layer", [1, 2, 3])
def test_the_critic_takes_the_action_at_the_chosen_layer(action_layer: int) -> None:
    overrides = ["agent=ddpg", "env=reacher", "agent.network.hidden=[8,6]"]
    cfg = settings(*overrides, f"agent.network.action_layer={action_layer}").agent
    critic = DDPG(cfg, 3, LOW, HIGH, torch.Generator()).critics[0]
    widths = [m.in_features for m in critic.modules() if isinstance(m, nn.Linear)]
    expected = [3, 8, 6]
    expected[action_layer - 1] += 2
    assert widths == expected


OBSERVATION = np.random.default_rng(1).normal(size=(20_000, 3)).astype(np.float32)


def test_without_exploration_the_actors_own_action_is_taken() -> None:
    agent = make_agent()
    action = agent.act(OBSERVATION, 0.0, np.random.default_rng(0))
    assert action.dtype == np.float32
    with torch.no_grad():
        expected = agent.actor(torch.from_numpy(OBSERVATION)).numpy()
    np.testing.assert_array_equal(action, np.clip(expected, LOW, HIGH))
    # As MuJoCo's environments give them.
    double = agent.act(OBSERVATION.astype(np.float64), 0.0, np.random.default_rng(0))
    np.testing.assert_array_equal(action, double)


@pytest.mark.parametrize("way", ["act", "explore"])
def test_random_actions_fill_the_box_evenly(way: str) -> None:
    action = getattr(make_agent(), way)(OBSERVATION, 1.0, np.random.default_rng(0))
    assert action.dtype == np.float32
    unit = (action - LOW) / (HIGH - LOW)
    assert unit.min() >= 0
    assert unit.max() <= 1
    for column in unit.T:
        np.testing.assert_allclose(np.histogram(column, 5, (0, 1))[0] / len(unit), 0.2, atol=0.02)


def test_exploring_adds_noise_in_shares_of_the_half_range() -> None:
    agent = make_agent(*PLAIN, "agent.exploration_noise=0.01")
    with torch.no_grad():
        agent.actor.head[0].weight.mul_(0.1)  # away from the box's faces, where noise is cut
        agent.actor.head[0].bias.mul_(0.1)
    calm = agent.act(OBSERVATION, 0.0, np.random.default_rng(0))
    noise = agent.explore(OBSERVATION, 0.0, np.random.default_rng(0)) - calm
    np.testing.assert_allclose(noise.std(0), 0.01 * HALF, rtol=0.05)
    np.testing.assert_allclose(noise.mean(0), 0, atol=0.001)


def test_actions_stay_within_the_box_whatever_the_noise() -> None:
    agent = make_agent(*PLAIN, "agent.exploration_noise=30")
    action = agent.explore(OBSERVATION, 0.3, np.random.default_rng(0))
    assert action.dtype == np.float32
    assert (action >= LOW).all()
    assert (action <= HIGH).all()


def test_epsilon_is_the_share_of_random_actions() -> None:
    agent = make_agent()
    calm = agent.act(OBSERVATION, 0.0, np.random.default_rng(0))
    mixed = agent.act(OBSERVATION, 0.3, np.random.default_rng(0))
    assert (mixed != calm).any(1).mean() == pytest.approx(0.3, abs=0.02)


def test_play_is_random_before_learning_starts() -> None:
    agent = make_agent(*PLAIN, "agent.learning_starts=100")
    assert [agent.epsilon(s) for s in (0, 99, 100, 5000)] == [1.0, 1.0, 0.0, 0.0]


def test_the_generator_decides_the_actions() -> None:
    agent = make_agent()
    first, again = (agent.explore(OBSERVATION, 0.5, np.random.default_rng(4)) for _ in range(2))
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("kind", ["ddpg", "td3"])
def test_the_agent_finds_the_best_action_of_a_one_step_task(kind: str) -> None:
    """Reward -|a - a*(s)|^2 with a* inside the box; every transition terminates."""
    overrides = [f"agent={kind}", "env=reacher", "agent.actor_lr=1e-3", "agent.critic_lr=1e-3"]
    agent = make_agent(*overrides, "agent.critic_weight_decay=0", hidden="[64,64]")
    rng = np.random.default_rng(0)

    def best(observation: np.ndarray) -> np.ndarray:
        return CENTRE + 0.7 * HALF * np.tanh(observation[..., :2])

    def loss() -> float:
        action = agent.act(OBSERVATION[:500], 0.0, rng)
        return float(np.square(action - best(OBSERVATION[:500])).sum(1).mean())

    before = loss()
    for _ in range(60):
        batch = make_batch(updates=8, rows=64, terminated=True)
        observation = rng.normal(size=(8, 64, 3)).astype(np.float32)
        action = rng.uniform(LOW, HIGH, (8, 64, 2)).astype(np.float32)
        reward = -np.square(action - best(observation)).sum(-1, keepdims=True)
        batch["observation"], batch["action"] = map(torch.from_numpy, (observation, action))
        batch["reward"] = torch.from_numpy(reward.astype(np.float32))
        agent.update(batch)
    assert loss() < 0.3 * before


def test_updates_in_one_autocast_region_each_see_the_weights_of_the_one_before() -> None:
    kind = (*PLAIN, "agent.actor_lr=0.1", "agent.critic_lr=0.1")
    together, apart = make_agent(*kind), make_agent(*kind)
    apart.load_state_dict(together.state_dict())
    batch = make_batch(updates=2)
    with torch.autocast("cpu", torch.bfloat16):
        together.update(batch)
    for row in (part(batch, slice(1)), part(batch, slice(1, 2))):
        with torch.autocast("cpu", torch.bfloat16):
            apart.update(row)
    assert torch.equal(flat(together.critics), flat(apart.critics))
    assert torch.equal(flat(together.actor), flat(apart.actor))


@pytest.mark.parametrize(("kind", "critics"), [("ddpg", 1), ("td3", 2)])
def test_the_value_of_a_state_is_the_smaller_critics_of_the_actors_action(
    kind: str, critics: int
) -> None:
    agent, states = make_agent(f"agent={kind}"), torch.from_numpy(OBSERVATION[:7])
    with torch.no_grad():
        each = [critic(states, agent.actor(states)).reshape(7) for critic in agent.critics]
        assert torch.equal(agent.state_values(states), torch.stack(each).amin(0))
    assert len(each) == critics
    assert ("smaller" in agent.value_name) == (critics > 1)
