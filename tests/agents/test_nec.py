"""NEC: what it plays, what it learns from, and runs with it."""

import numpy as np
import pytest
import torch

from rlmem.agents.nec import NEC
from rlmem.collect.collector import Collector
from rlmem.envs import make_env
from rlmem.errors import UserError
from rlmem.memories.compression.compressed import CompressedFrameStorage
from rlmem.memories.values.base import Visits
from rlmem.memories.values.episodic import EpisodicMemory
from rlmem.runs import build
from rlmem.runs.preflight import preflight
from rlmem.units import readable_bytes
from tests.settings import settings

TINY = [
    "agent=nec",
    "env=cartpole",
    "agent.learning_starts=50",
    "agent.train_every=1",
    "agent.updates_per_step=1",
    "agent.key_size=8",
    "agent.network.hidden=[16]",
    "agent.n_step=5",
    "memory.neighbours=4",
    "memory.entries=300",
    "memory.capacity=200",
]


def parts(*overrides: str) -> tuple[NEC, EpisodicMemory, Collector]:
    cfg = settings(*TINY, *overrides)
    env = make_env(cfg.env, cfg.env.num_envs)
    agent = build.build_agent(cfg, env.spec)
    memory = build.build_memory(cfg, env.spec, agent.columns())
    assert isinstance(agent, NEC)
    assert isinstance(memory, EpisodicMemory)
    agent.join(memory)
    return agent, memory, build.build_stream(cfg, env, memory, agent)


def played(stream: Collector, rounds: int) -> list[dict]:
    return [next(stream) for _ in range(rounds)]


@pytest.mark.parametrize("sampler", ["combined", "newest"])
def test_rounds_in_which_no_return_became_known_have_no_rows_of_their_own(sampler: str) -> None:
    """All their minibatches end with the newest transition, not spread over the last episode."""
    _, memory, stream = parts(
        f"memory/sampler={sampler}", "agent.n_step=100", "agent.updates_per_step=4"
    )
    held, ends = 0, []
    for _ in range(200):
        next(stream)
        grown, held = memory.transitions_seen > held, memory.transitions_seen
        if held > 32 and not grown:  # an episode has just ended, and the next has not
            ends.append(memory.sampler.draw(memory.storage, 4, 4)[0][:, -1])
            newest = int(memory.storage.newest(1)[0])
            np.testing.assert_array_equal(ends[-1], [newest] * 4)
    assert len(ends) > 10


def test_it_plays_the_action_of_the_greatest_value_that_it_reads() -> None:
    agent, memory, stream = parts()
    played(stream, 120)
    agent.grad_steps = 1  # until it learns, what it explores changes the statistics of its keys
    observation = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    with torch.no_grad():
        keys = agent.online(torch.from_numpy(observation)).numpy()
    values, _ = memory.values.read(keys)
    assert len(set(values.argmax(-1))) == 2
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(agent.act(observation, 0.0, rng), values.argmax(-1))
    actions, columns = agent.explore(observation, 0.0, rng)
    np.testing.assert_array_equal(actions, values.argmax(-1))
    np.testing.assert_array_equal(columns["key"], keys)
    np.testing.assert_array_equal(columns["value"], values.max(-1))
    assert len(set(columns["hash"])) == 6
    np.testing.assert_array_equal(agent.explore(observation, 1.0, rng)[1]["hash"], columns["hash"])


@pytest.mark.parametrize("memory", ["dnd", "gbmr"])
def test_a_state_is_worth_its_best_action_that_was_tried(memory: str) -> None:
    agent, episodic, _ = parts(f"memory={memory}", "env=mountain_car")
    observation = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    keys, worth = agent.look(observation)
    assert (worth == 0).all()  # nothing is known
    zero, no = np.zeros(6, np.int64), np.zeros(6, bool)
    lost, step = np.full(6, -60.0, np.float32), np.full(6, -1.0, np.float32)
    episodic.values.visited(Visits(keys, zero, zero + 1, lost, step, keys, no, no, zero))
    assert (episodic.values.read(keys)[0][:, [0, 2]] == 0).all()
    _, columns = agent.explore(observation, 0.0, np.random.default_rng(0))
    for value in (agent.look(observation)[1], columns["value"]):
        np.testing.assert_allclose(value, -60.0, rtol=0.05)


def test_an_update_trains_the_taken_actions_prediction_and_nothing_that_is_stored() -> None:
    agent, memory, stream = parts("agent.lr=0.01")
    batch = next(batch for batch in played(stream, 200) if batch)
    before = memory.values.state_dict()
    agent.train()
    first = agent.update(batch)
    for _ in range(60):
        last = agent.update(batch)
    assert first["td_error"].shape == (1, 32)
    assert last["loss"].item() < 0.7 * first["loss"].item()
    after = memory.values.state_dict()
    for name in ("key", "value", "hash", "count"):
        np.testing.assert_array_equal(before[name], after[name])


def test_its_loss_is_the_squared_gap_between_what_is_read_and_the_return() -> None:
    agent, memory, stream = parts()
    batch = next(batch for batch in played(stream, 200) if batch)
    keys = agent.keys(batch["observation"][0].numpy())
    values, _ = memory.values.read(keys)
    read = np.take_along_axis(values, batch["action"][0].numpy()[:, None], 1)
    gap = batch["reward"][0].numpy() - read
    found = agent.update(batch)
    np.testing.assert_allclose(found["td_error"][0].numpy(), gap[:, 0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["loss"].item(), np.square(gap).mean(), rtol=1e-4)


def test_learning_waits_until_each_action_has_its_neighbours() -> None:
    _, memory, stream = parts("memory.neighbours=40", "agent.learning_starts=0")
    assert not next(stream)
    assert not memory.values.ready
    for _ in range(200):
        assert bool(next(stream)) == memory.values.ready
    assert memory.values.ready


def test_what_is_drawn_as_reward_is_the_return_of_the_visit() -> None:
    _, memory, stream = parts("agent.gamma=1", "agent.n_step=1000")
    played(stream, 200)
    batch = memory.draw(32, 1)
    # CartPole gives 1 a step: without a bootstrap a return counts the steps to the end.
    assert batch["reward"].min() >= 1
    assert torch.equal(batch["reward"], batch["reward"].round())
    last = batch["reward"][batch["terminated"]]
    assert last.numel() > 0
    assert (last == 1).all()


def test_images_are_compressed_like_in_any_ring() -> None:
    _, memory, stream = parts("env=pong", "agent.network.kind=nature", "env.num_envs=1")
    assert isinstance(memory.storage, CompressedFrameStorage)
    played(stream, 40)
    batch = memory.draw(8, 1)
    assert batch["observation"].shape == (1, 8, 4, 84, 84)


def test_the_whole_budget_of_mfec_is_for_what_it_writes() -> None:
    _, memory, _ = parts("memory=mfec", "memory.budget=2MiB", "memory.entries=9999")
    held = sum(memory.projected_footprint().values())
    assert 0.98 * 2**21 < held <= 2**21
    assert sum(memory.values.projected_footprint().values()) > 0.9 * held
    # Of images the ring that nothing is written into would take a fifth when full.
    game = "env=pong", "agent.network.kind=nature", "env.num_envs=4", "agent.train_every=4"
    _, memory, _ = parts("memory=mfec", *game, "memory.budget=4MiB", "memory.entries=9999")
    held = sum(memory.projected_footprint().values())
    queue = sum(memory.queue.projected_footprint().values())
    assert 0.98 * 2**22 < held <= 2**22
    assert sum(memory.values.projected_footprint().values()) > 0.98 * (held - queue)
    _, memory, _ = parts("memory=mfec", *game, "memory.entries=500")
    full = sum(memory.projected_footprint().values())
    assert f"memory when full ({memory.room}): {readable_bytes(full)}, most" in preflight(memory)


def test_mfec_plays_by_projections_and_trains_no_network() -> None:
    agent, memory, stream = parts("memory=mfec")
    before = {name: w.clone() for name, w in agent.state_dict().items()}
    assert not any(played(stream, 150))
    assert memory.values.entries > 100
    assert all(torch.equal(before[name], w) for name, w in agent.state_dict().items())


@pytest.mark.parametrize("memory", ["dnd", "gbmr"])
def test_a_budget_holds_over_what_answers_queue_and_replay(memory: str) -> None:
    own = [f"memory={memory}", "memory.entries=100000"]
    _, memory, stream = parts(*own, "memory.budget=128KiB", "env.num_envs=1")
    for _ in range(1500):
        next(stream)
        assert sum(memory.footprint().values()) <= 128 * 1024
    memory.check_valid()
    assert sum(memory.footprint().values()) > 0.8 * 128 * 1024


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (["memory=uniform"], "memory=uniform: agent=nec asks its memory what to play; use memory="),
        (["agent=dqn", "memory=dnd"], "agent=dqn: it does not ask its memory what to play"),
        (
            ["memory=dnd", "memory.neighbours=9", "memory.entries=8"],
            "memory.neighbours=9: more than an action has",
        ),
        (["memory=dnd", "memory.delta=null"], "memory.delta=null: a mean gives a network nothing"),
        (["memory=dnd", "memory.entries=0"], "memory.entries=0: must be at least 1"),
        (["memory=dnd", "memory.capacity=8"], "memory.capacity=8: less than one batch"),
        (["memory=mfec", "memory/sampler=rank"], "memory/sampler=rank: no network learns where me"),
        (["memory=mfec", "memory/storage=dense"], "memory/storage=dense: no network learns whe"),
        (["memory=mfec", "memory.share=.9"], "memory.share=0.9: no network learns where memory.k"),
        (["memory=q_table"], "memory=q_table: agent=nec asks its memory what to play; use"),
        (
            ["memory=gq", "memory.neighbours=9", "memory.entries=8"],
            "memory.neighbours=9: the graph has memory.entries=8 nodes; use 8 or fewer",
        ),
        (["memory=gq", "memory.dist_th=-1"], "memory.dist_th=-1: must be auto, or a number, at"),
        (
            ["memory=gcmr", "memory.reconstruct.t1=1"],
            "memory.reconstruct.t1=1.0: must be above memory.reconstruct.t2=1.77",
        ),
    ],
)
def test_what_does_not_go_together_is_one_line(given: list[str], line: str) -> None:
    own = ("agent.key_size", "agent.network", "memory.")
    alone = [o for o in TINY if not o.startswith(own)]  # what other agents and memories know too
    with pytest.raises(UserError) as error:
        settings(*alone, *given)
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (["env=reacher"], "agent=nec: its actions are discrete, those of env=reacher"),
        (["memory.budget=8KiB"], "memory.budget=8KiB: memory.share=0.5 of it holds"),
        (["memory=mfec", "memory.budget=16KiB"], "memory.budget=16KiB: it holds"),
        (["memory=gq", "env=reacher"], "agent=nec: its actions are discrete, those of env=reacher"),
        (["memory=gq", "memory.budget=2KiB"], "memory.budget=2KiB: memory.share=0.5 of it holds"),
        (
            ["memory=mfec", "env=pong", "env.num_envs=1", "agent.key_size=10"],
            "agent.key_size=10: each of an observation's 4 frames has its part",
        ),
    ],
)
def test_what_an_environment_does_not_allow_is_one_line(given: list[str], line: str) -> None:
    with pytest.raises(UserError) as error:
        parts(*given)
    assert str(error.value).startswith(line)


def test_a_minibatch_of_one_has_no_spread_of_keys() -> None:
    for given in (["agent.batch_size=2"], ["agent.batch_size=1", "agent.standard_keys=false"]):
        assert settings("agent=nec", "memory=dnd", *given)
    with pytest.raises(UserError, match=r"agent.batch_size=1: .* use agent.batch_size=2 or more"):
        settings("agent=nec", "memory=dnd", "agent.batch_size=1")


def test_a_reward_that_is_no_number_is_refused_and_changes_nothing() -> None:
    _, memory, stream = parts()
    played(stream, 60)
    held, waiting = memory.values.state_dict(), memory.queue.state_dict()
    stream._block.reward[-1] = np.nan
    with pytest.raises(UserError, match="a reward is not finite"):
        memory.extend(stream._block)
    for kept, now in ((held, memory.values.state_dict()), (waiting, memory.queue.state_dict())):
        for name in kept:
            np.testing.assert_array_equal(kept[name], now[name], err_msg=name)


@pytest.mark.parametrize("memory", ["dnd", "mfec"])
def test_an_observation_that_is_no_number_is_not_put_down_to_learning(memory: str) -> None:
    agent, _, stream = parts(f"memory={memory}")
    wrong = np.full_like(stream._block.observation, np.nan)
    with pytest.raises(UserError, match="an observation has values that are not finite"):
        agent.act(wrong, 0.0, np.random.default_rng(0))
