"""Rainbow against DQN and by hand; what begins anew within a run; mistakes."""

from typing import Any

import numpy as np
import pytest
import torch

from rlmem.agents.rainbow import Rainbow
from rlmem.envs import EnvSpec
from rlmem.errors import UserError
from rlmem.networks.noisy import noisy_layers
from tests.agents.test_dqn import GAMMA, ONLINE, TARGET, make_batch
from tests.agents.test_dqn import make_agent as make_dqn
from tests.settings import settings

PLAIN = ("agent.distribution=none", "agent.double=false", "agent.dueling=false", "agent.n_step=1")


def make_agent(*overrides: str, updates: int = 0, plain: bool = True) -> Rainbow:
    """Two inputs, three actions; without other overrides the network of `test_dqn`."""
    given = [f"agent.gamma={GAMMA}", "agent.max_grad_norm=null", *(PLAIN if plain else ())]
    hidden = "agent.network.hidden=[]" if plain else "agent.network.hidden=[8]"
    cfg = settings("agent=rainbow", *given, hidden, *overrides).agent
    torch.manual_seed(0)
    agent = Rainbow(cfg, (2,), 3, updates=updates)
    if plain and not cfg.dueling:
        for name, weight in (("online", ONLINE), ("target", TARGET)):
            if hasattr(agent, name):
                linear = getattr(agent, name).head[0]
                with torch.no_grad():
                    linear.weight.copy_(torch.from_numpy(weight))
                    linear.bias.zero_()
    return agent


@pytest.mark.parametrize(
    "switch", ["agent.double=true", "agent.loss=huber", "agent.target_clip=[0,1]"]
)
def test_without_its_switches_it_learns_as_dqn_does(switch: str) -> None:
    agents, batch = (make_agent(switch), make_dqn(switch)), make_batch(updates=3)
    found = [agent.update(batch) for agent in agents]
    torch.testing.assert_close(found[0]["td_error"], found[1]["td_error"])
    torch.testing.assert_close(found[0]["loss"], agents[1].losses(batch, found[1]))
    torch.testing.assert_close(found[0]["priority"], found[0]["td_error"])
    for ours, theirs in zip(agents[0].parameters(), agents[1].parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_without_a_target_network_targets_are_of_the_online_one() -> None:
    agent = make_agent("agent.target_network=false")
    assert not hasattr(agent, "target")
    batch = make_batch()
    row = {name: column[0] for name, column in batch.items()}
    q_next = row["next_observation"].numpy() @ ONLINE.T
    q = (row["observation"].numpy() @ ONLINE.T)[np.arange(6), row["action"].numpy()]
    wanted = row["reward"].numpy()[:, 0] + GAMMA * q_next.max(1) - q
    np.testing.assert_allclose(agent.update(batch)["td_error"][0].numpy(), wanted, rtol=1e-4)


def test_targets_have_noise_of_their_own_without_a_target_network_too() -> None:
    """Under one draw the noise would be learned against itself (Fortunato 2018)."""
    agent = make_agent("agent.target_network=false", "agent.noisy=true", plain=False)
    noise: list[torch.Tensor] = []

    def noted(method: Any) -> Any:
        def call(*given: Any) -> Any:
            noise.append(agent._noisy[0].noise_in.clone())
            return method(*given)

        return call

    agent.td_target, agent._loss = noted(agent.td_target), noted(agent._loss)
    agent.update(make_batch())
    of_target, of_loss = noise
    assert not torch.equal(of_target, of_loss)
    assert torch.equal(agent._noisy[0].noise_in, of_loss)  # explores until the next update


@pytest.mark.parametrize("kind", ["c51", "qr"])
@pytest.mark.parametrize("dueling", ["true", "false"])
def test_distributions_learn_a_constant_return(kind: str, dueling: str) -> None:
    agent = make_agent(
        f"agent.distribution={kind}", "agent.atoms=21", "agent.support=[-2,2]", "agent.lr=0.01",
        f"agent.dueling={dueling}", plain=False,
    )  # fmt: skip
    batch = make_batch(reward=1.5, terminated=True)
    first = agent.update(batch)["loss"].item()
    for _ in range(300):
        outputs = agent.update(batch)
    assert outputs["loss"].item() < first
    assert outputs["td_error"].abs().max() < 0.25
    assert not any(found.requires_grad for found in outputs.values())  # each held a whole network
    values = agent.values(batch["observation"][0])
    taken = values.gather(1, batch["action"][0].unsqueeze(-1))
    torch.testing.assert_close(taken, torch.full_like(taken, 1.5), atol=0.25, rtol=0)


def test_training_explores_by_the_noise_of_updates_and_evaluation_by_none() -> None:
    agent = make_agent("agent.noisy=true", "agent.noisy_std=3.0", "agent.lr=1e-9", plain=False)
    states = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    rng, played, greedy, shown = np.random.default_rng(0), [], [], []
    for _ in range(3):
        agent.update(make_batch())
        played.append(agent.explore(states, 0.0, rng))
        greedy.append(agent.act(states, 0.0, rng))
        shown.append(agent.state_values(torch.from_numpy(states)))
    assert (played[0] != played[1]).any()
    assert (played[1] != played[2]).any()
    assert (agent.explore(states, 0.0, rng) == played[2]).all()
    assert (greedy[0] == greedy[2]).all()
    torch.testing.assert_close(shown[0], shown[2])


def test_noise_explores_before_the_first_update_where_nothing_else_does() -> None:
    given = ["agent.noisy=true", "agent.noisy_std=3.0"]
    given += ["agent.epsilon.start=0", "agent.epsilon.end=0"]
    agent = make_agent(*given, "agent.learning_starts=0", plain=False)
    later = make_agent(*given, "agent.learning_starts=100", plain=False)
    states = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    rng = np.random.default_rng(0)
    assert (agent.explore(states, 0.0, rng) != agent.act(states, 0.0, rng)).any()
    assert not later._noisy[0].noise_in.any()
    # The first update may come after learning_starts: at a round's end, or once a memory is ready.
    assert [later.epsilon(env_steps) for env_steps in (0, 99, 100, 164)] == [1.0] * 4
    later.update(make_batch())
    assert later._noisy[0].noise_in.any()
    assert later.epsilon(164) == 0.0


def test_weights_decay_apart_from_the_gradient() -> None:
    agents = [make_agent(f"agent.weight_decay={decay}") for decay in (0.0, 0.5)]
    batch = make_batch()
    for agent in agents:
        agent.update(batch)
    lr = agents[0].cfg.lr
    before = torch.from_numpy(ONLINE).float()
    moved = agents[0].online.head[0].weight - before
    torch.testing.assert_close(
        agents[1].online.head[0].weight, (1 - lr * 0.5) * before + moved, atol=1e-6, rtol=0
    )


def test_a_head_that_never_begins_anew_is_said() -> None:
    said = make_agent("agent.reset_every=18", updates=35).remark
    assert said.startswith("agent.reset_every=18: no head begins anew, as the run makes 35 updates")
    assert said.endswith("17 or less does")
    assert not make_agent("agent.reset_every=17", updates=35).remark
    assert not make_agent(updates=35).remark


def test_resets_of_a_run_that_its_episodes_end_are_said() -> None:
    run = settings("agent=rainbow", "env=cartpole", "agent.reset_every=20", "agent.noisy=false")
    spec = EnvSpec("CartPole-v1", "gym", 1, (4,), np.dtype(np.float32), 1, 2, 1)
    assert not Rainbow.build(run.agent, run, spec).remark
    run.trainer.max_episodes = 9
    said = Rainbow.build(run.agent, run, spec).remark
    assert said.startswith("agent.reset_every=20: counts what is left of the run by trainer.")


def test_the_head_begins_anew_where_as_many_steps_are_left() -> None:
    agent = make_agent("agent.reset_every=10", updates=35, plain=False)
    batch, kept = make_batch(), []
    for step in range(1, 36):
        before = agent.online.head.state_dict()["0.value.0.weight"].clone()
        agent.update(batch)
        jump = (agent.online.head.state_dict()["0.value.0.weight"] - before).abs().max()
        if jump > 0.1:
            kept.append(step)
            weight = next(agent.online.head.parameters())
            assert all(not moment.any() for moment in agent.optimizer.state[weight].values())
            pairs = zip(agent.online.head.parameters(), agent.target.head.parameters(), strict=True)
            assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
    assert kept == [10, 20]  # not at 30: five steps are left


class Storage:
    """What a memory's storage is told of returns."""

    def __init__(self) -> None:
        self.told: list[tuple[int, float]] = []

    def set_returns(self, n_step: int, gamma: float) -> None:
        self.told.append((n_step, gamma))


def test_a_head_that_is_drawn_anew_explores_at_once() -> None:
    agent = make_agent("agent.noisy=true", "agent.reset_every=10", updates=35, plain=False)
    agent.reset_head()
    layers = noisy_layers(agent.online)
    assert layers
    assert all(layer.noise_in.any() and layer.noise_out.any() for layer in layers)


def test_returns_shorten_and_see_farther_from_each_reset_on() -> None:
    agent = make_agent(
        "agent.n_step=10", "agent.gamma=0.97", "agent.anneal.n_step=3", "agent.anneal.gamma=0.997",
        "agent.anneal.steps=10", "agent.reset_every=20", updates=60, plain=False,
    )  # fmt: skip
    storage: Any = Storage()
    agent.join(type("Memory", (), {"storage": storage}))
    for _ in range(30):
        agent.update(make_batch())
    told = storage.told
    assert told[0] == (10, pytest.approx(0.97))
    assert told[10] == (3, pytest.approx(0.997))
    assert told[19] == told[10]
    assert told[20] == told[0]
    assert told[30] == told[10]
    assert [n for n, _ in told[:11]] == sorted((n for n, _ in told[:11]), reverse=True)
    assert told[5] == (round((10 * 3) ** 0.5), pytest.approx(1 - (0.03 * 0.003) ** 0.5))
    torch.testing.assert_close(agent.discounts[2], torch.tensor(0.997**2))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["agent.distribution=c52"], "agent.distribution=c52: .*c51"),
        (["agent.distribution=auto"], "agent.distribution=auto: .*c51"),
        (["agent.loss=huber"], "agent.loss=huber: .*use agent.loss=mse, or agent"),
        (["agent.support=[3,1]"], r"agent.support=\[3.*two rising numbers"),
        (["agent.support=[-inf,1]"], r"agent.support=\[-inf.*two rising numbers"),
        (["agent.target_clip=[-1,1]"], "agent.target_clip=.*use agent.target_clip=null"),
        (
            ["agent.anneal.n_step=20"],
            "anneal.n_step=20: must be at least 2 and at most agent.n_step=10",
        ),
        (
            ["agent.n_step=1", "agent.anneal.n_step=2"],
            "anneal.n_step=2: with agent.n_step=2 or more",
        ),
        (["agent.n_step=1", "agent.anneal.gamma=0.9"], "agent.anneal.gamma=0.9: with agent.n_step"),
        (["agent.anneal.gamma=0.9", "agent.gamma=1"], "agent.anneal.gamma=0.9: from agent.gamma=1"),
        (["agent.augment.intensity=0.7"], "agent.augment.intensity=0.7"),
        (["env=pong", "agent.noisy=false"], "agent.noisy=false: .*nothing explores"),
        (["agent.target_network=false", "agent.tau=0.1"], "agent.tau=0.1: without a target netw"),
        (["agent.target_network=false", "memory=medqn_u"], "memory=medqn_u: holds Q values"),
    ],
)
def test_mistakes_are_one_line(overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        settings("agent=rainbow", *overrides)


@pytest.mark.parametrize(
    ("env", "lowest", "highest"),
    [
        ("cartpole", 0, 100),
        ("acrobot", -100, 0),
        ("pong", -10, 10),
        ("minatar_space_invaders", 0, 20),
        ("mini_maze", -10, 200),
        ("gym env.id=Blackjack-v1", -100, 100),
    ],
)
def test_the_support_holds_the_returns_of_the_environment(
    env: str, lowest: int, highest: int
) -> None:
    assert settings("agent=rainbow", *f"env={env}".split()).agent.support == [lowest, highest]


@pytest.mark.parametrize("env", ["cartpole", "mini_maze", "minatar_breakout"])
def test_what_is_recommended_for_dqn_reaches_rainbow(env: str) -> None:
    given = ["hidden=[8]", "train_every=16", "epsilon_end=0.5", "epsilon_decay_steps=123"]
    agent = settings(
        "agent=rainbow", f"env={env}", *(f"env.recommended.dqn.{key}" for key in given)
    ).agent
    assert (list(agent.network.hidden), agent.train_every) == ([8], 16)
    assert (agent.epsilon.end, agent.epsilon.decay_steps) == (0.5, 123)


@pytest.mark.parametrize("kind", ["none", "c51", "qr"])
def test_a_network_is_held_to_its_copy_without_noise(kind: str) -> None:
    """Right after a copy there is no gap, whatever the noise; the noise itself is not held."""
    switches = "agent.noisy=true", "agent.noisy_std=1", f"agent.distribution={kind}"
    agent = make_agent(*switches, "agent.n_step=1", plain=False)
    batch = make_batch(rows=6)
    batch["consolidation"] = torch.randn(1, 1, 5, 2)
    batch["consolidation_weight"] = torch.full((1,), 4.0)
    agent.update_target()
    assert agent.update(batch)["consolidation_loss"].item() == 0
    assert agent.update(batch)["consolidation_loss"].item() > 0  # weights have moved
    noisy = [*noisy_layers(agent.online), *noisy_layers(agent.target)]
    assert len(noisy) == 2 * len(noisy_layers(agent.online)) > 0
    assert not any(layer.quiet for layer in noisy)


def test_a_failed_act_leaves_the_noise_on() -> None:
    agent = make_agent("agent.noisy=true", plain=False)
    with pytest.raises(RuntimeError):
        agent.act(np.zeros((1, 5), np.float32), 0.0, np.random.default_rng(0))
    assert not any(layer.quiet for layer in noisy_layers(agent.online))


def test_a_memory_that_sums_returns_as_it_writes_cannot_shorten_them() -> None:
    class Map:
        class storage:
            @staticmethod
            def set_returns(n_step: int, gamma: float) -> None:
                raise ValueError("its returns are summed as transitions are written")

    agent = make_agent("agent.n_step=10", "agent.anneal.n_step=3", plain=False)
    with pytest.raises(UserError, match=r"agent.anneal: not with this memory: its returns"):
        agent.join(Map)
