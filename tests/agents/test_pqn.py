"""PQN: its returns, its targets at every kind of end, and its gradient steps."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

from rlmem.agents.pqn import PQN
from rlmem.agents.returns import lambda_returns
from rlmem.agents.schedules import RunEpsilonSettings
from rlmem.errors import UserError
from rlmem.memories.rollout import RolloutMemory
from rlmem.runs import build
from tests.memories.helpers import RandomEnvs
from tests.settings import settings

ENVS, STEPS = 4, 32
PQN_RUN = ["agent=pqn", "memory=rollout", "env=cartpole", f"env.num_envs={ENVS}"]
PQN_RUN += [f"memory.capacity={ENVS * STEPS}", "agent.batch_size=32"]
PQN_RUN += ["trainer.max_env_steps=1280"]


def made(*overrides: str) -> tuple[PQN, RolloutMemory]:
    """Agent and memory of a run of ten rollouts."""
    cfg = settings(*PQN_RUN, *overrides)
    spec = build.build_env(cfg).spec
    agent: Any = build.build_agent(cfg, spec)
    memory: Any = build.build_memory(cfg, spec, agent.columns())
    agent.join(memory)
    return agent, memory


def play(agent: PQN, memory: RolloutMemory, end: float = 0.2, seed: int = 0) -> dict[str, Any]:
    """A rollout of random environments; its block."""
    envs = RandomEnvs(np.random.default_rng(seed), num_envs=ENVS, end=end)
    block = envs.block(ENVS * STEPS)
    values = [
        agent.explore(turn, 0.5, np.random.default_rng(seed))[1]["value"]
        for turn in block["observation"].reshape(STEPS, ENVS, 4)
    ]
    memory.extend(block | {"value": np.concatenate(values)})
    return block


def plain_returns(rewards: Any, values: Any, ends: Any, cuts: Any, gamma: float, mix: float) -> Any:
    """The returns of one environment, forwards, as a mixture of all n-step returns."""
    found = []
    for start in range(len(rewards)):
        total, share = 0.0, 1.0
        discounted = 0.0  # rewards so far
        for n, t in enumerate(range(start, len(rewards)), start=1):
            discounted += gamma ** (n - 1) * rewards[t]
            bootstrap = 0.0 if ends[t] else gamma**n * values[t]
            last = ends[t] or cuts[t] or t == len(rewards) - 1
            part = share if last else share * (1 - mix)
            total += part * (discounted + bootstrap)
            share -= part
            if last:
                break
        found.append(total)
    return found


@pytest.mark.parametrize("mix", [0.0, 0.65, 1.0])
@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_returns_are_the_mixture_of_all_n_step_returns(mix: float, gamma: float) -> None:
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, 5, 40)).astype(np.float32)
    ends, cuts = rng.random((2, 5, 40)) < 0.15
    ends[0, 3] = cuts[0, 3] = True  # both: terminated
    cuts[1, -1], ends[2, -1] = True, True
    found = lambda_returns(rewards, values, ends, cuts, gamma, mix)
    assert found.dtype == np.float32
    for env in range(5):
        wanted = plain_returns(rewards[env], values[env], ends[env], cuts[env], gamma, mix)
        np.testing.assert_allclose(found[env], wanted, rtol=1e-5, atol=1e-5)


def test_a_truncation_bootstraps_and_passes_nothing_on() -> None:
    reward = np.array([[1, 2, 3, 4]], np.float32)
    value = np.array([[10, 20, 30, 40]], np.float32)
    no = np.zeros((1, 4), bool)
    cut = np.array([[False, True, False, False]])
    gamma, mix = 0.5, 0.8
    last = 4 + gamma * 40
    before = 3 + gamma * (mix * last + (1 - mix) * 30)
    at_cut = 2 + gamma * 20  # of what was seen last, not of the next episode
    first = 1 + gamma * (mix * at_cut + (1 - mix) * 10)
    found = lambda_returns(reward, value, no, cut, gamma, mix)
    np.testing.assert_allclose(found[0], [first, at_cut, before, last], rtol=1e-6)
    ended = lambda_returns(reward, value, cut, no, gamma, mix)
    np.testing.assert_allclose(ended[0, 1], 2)
    np.testing.assert_allclose(ended[0, 2:], found[0, 2:])


def test_targets_bootstrap_from_what_truly_followed() -> None:
    agent, memory = made()
    block = play(agent, memory)
    following = torch.from_numpy(block["next"]["observation"])
    with torch.no_grad():
        value = agent.online(following).amax(-1).numpy().reshape(STEPS, ENVS).T
    reward, ends, cuts = (
        block["next"][name].reshape(STEPS, ENVS).T for name in ("reward", "terminated", "truncated")
    )
    assert ends.any()
    assert cuts[:, :-1].any()
    targets = agent.targets(memory.draw(1, 1))
    for env in range(ENVS):
        wanted = plain_returns(reward[env], value[env], ends[env], cuts[env], 0.99, 0.65)
        np.testing.assert_allclose(targets[env], wanted, rtol=1e-4, atol=1e-4)


def test_values_at_ends_have_the_precision_of_those_that_were_kept() -> None:
    agent, memory = made()
    play(agent, memory)
    batch = memory.draw(1, 1)
    plain = agent.targets(batch)
    with torch.autocast("cpu", torch.bfloat16):  # as `trainer.precision=bf16-mixed` learns
        np.testing.assert_array_equal(agent.targets(batch), plain)


@pytest.mark.parametrize("fraction", [1e-310, 0.5, 1.0])
def test_exploration_falls_over_a_share_of_the_run_however_small(fraction: float) -> None:
    rates = RunEpsilonSettings(start=1.0, end=0.1, fraction=fraction)
    torch.set_flush_denormal(True)  # as a run does: the product is 0
    try:
        found = [rates.at(step, 100) for step in (0, 25, 50, 100)]
    finally:
        torch.set_flush_denormal(False)
    fallen = {1e-310: [0.1] * 4, 0.5: [1, 0.55, 0.1, 0.1], 1.0: [1, 0.775, 0.55, 0.1]}
    assert found == pytest.approx(fallen[fraction])


@pytest.mark.parametrize("clip", [10.0, 0.1])
def test_an_update_is_epochs_of_plain_gradient_steps(clip: float) -> None:
    agent, memory = made(f"agent.max_grad_norm={clip}")
    block = play(agent, memory)
    batch = memory.draw(1, 1)
    network = copy.deepcopy(agent.online)
    targets = torch.from_numpy(agent.targets(batch).T.reshape(-1))  # in the order of the block
    observation = torch.from_numpy(block["observation"])
    action = torch.from_numpy(block["action"])
    optimizer = torch.optim.RAdam(network.parameters(), lr=2.5e-4)
    torch.manual_seed(3)
    agent.update(batch)
    torch.manual_seed(3)
    order = np.arange(ENVS * STEPS).reshape(STEPS, ENVS).T.reshape(-1)  # of the rollout's rows
    for _ in range(4):
        for rows in torch.from_numpy(order)[torch.randperm(ENVS * STEPS)].split(32):
            q = network(observation[rows]).gather(-1, action[rows, None]).squeeze(-1)
            loss = (targets[rows] - q).square().mean()
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(network.parameters(), clip)
            assert clip > 1 or norm > clip
            optimizer.step()
    assert agent.grad_steps == 16
    for own, wanted in zip(agent.online.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-4, atol=1e-6)


def test_the_step_size_falls_to_0_over_the_runs_rollouts() -> None:
    agent, memory = made()
    sizes = []
    for seed in range(10):
        play(agent, memory, seed=seed)
        batch = memory.draw(1, 1)
        outputs = agent.update(batch)
        memory.learned(batch, outputs)
        sizes.append(agent.optimizer.param_groups[0]["lr"])
    np.testing.assert_allclose(sizes, 2.5e-4 * (1 - np.arange(10) / 10))
    assert agent.step_size() == 0


def test_exploration_is_linear_over_a_share_of_the_run() -> None:
    agent, _ = made()
    rates = [agent.epsilon(steps) for steps in (0, 320, 640, 1280)]
    np.testing.assert_allclose(rates, [1.0, 0.525, 0.05, 0.05])
    rng = np.random.default_rng(0)
    observation = rng.normal(size=(2000, 4)).astype(np.float32)
    greedy = agent.act(observation, 0.0, rng)
    with torch.no_grad():
        q = agent.online(torch.from_numpy(observation))
    assert np.array_equal(greedy, q.argmax(-1))
    actions, columns = agent.explore(observation, 0.5, rng)
    assert np.array_equal(columns["value"], q.amax(-1))  # of the best, whatever was played
    assert 0.2 < np.mean(actions != greedy) < 0.3  # of two actions, half of the random ones


@pytest.mark.parametrize("env", ["cartpole", "minatar_breakout"])
def test_each_layer_but_the_last_is_normalised(env: str) -> None:
    cfg = settings("experiment=pqn", f"env={env}")
    spec = build.build_env(cfg).spec
    network = build.build_agent(cfg, spec).online
    kinds = [type(m).__name__ for m in network.modules() if not [*m.children()]]
    fully = ["Linear", "LayerNorm", "ReLU"]
    torso = fully if env == "cartpole" else ["Conv2d", "GroupNorm", "ReLU"]
    assert kinds == [*torso, *fully, "Linear"]
    weights = [p for name, p in network.named_parameters() if p.dim() > 1]
    for weight in weights:  # orthogonal rows or columns of length root 2
        flat = weight.detach().flatten(1)
        square = flat @ flat.T if len(flat) <= flat.shape[1] else flat.T @ flat
        torch.testing.assert_close(square, 2 * torch.eye(len(square)), rtol=0, atol=1e-4)


@pytest.mark.parametrize("agent", ["pqn", "stream_q"])
def test_what_learns_from_the_first_step_on_waits_for_none(agent: str) -> None:
    with pytest.raises(UserError, match=r"agent\.learning_starts=500: .*leave the key out"):
        settings(f"experiment={agent}", "env=cartpole", "agent.learning_starts=500")
