"""Every choice of every group composes, resolves and passes the checks, fully typed."""

import re
import subprocess
import sys
from dataclasses import fields
from itertools import product

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf

from rlmem import registry
from rlmem.config import CONF_DIR, compose
from rlmem.errors import UserError
from tests.settings import evaluate_settings, settings

ANSWERS = ("dnd", "mfec")  # memories that an agent asks
GWR = ("gwr", "gwr_plain", "gwr_released")
MEMORIES = (
    "none",
    "newest",
    "uniform",
    "cer",
    "per",
    "per_rank",
    "per_rainbow",
    "her",
    "medqn_u",
    "medqn_r",
    "random_eviction",
    *GWR,
    *ANSWERS,
)
ASKED = ("q_table", "gq", "gcmr", "gbmr")  # by the agent that they are for
ALONE = {"pqn": "rollout", "stream_q": "trace"}  # agents without replay, and their memories
COUNTED = ("worker_rollouts",)  # of agents whose workers hold them
NEEDED = {
    "atari": "env.game=seaquest",
    "gym": "env.id=CartPole-v1",
    "minatar": "env.game=breakout",
    "mujoco": "env.task=Hopper",
}
STUDY = set(product((0.68, 0.7, 0.83, 0.9), (0.45, 0.65, 0.8, 0.85)))


def options(group: str) -> list[str]:
    return sorted(file.stem for file in (CONF_DIR / group).glob("*.yaml"))


def resolved(*overrides: str) -> DictConfig:
    """The checked values."""
    return OmegaConf.create(settings(*overrides).values)


@pytest.mark.parametrize("env", options("env"))
def test_every_env_composes_with_what_is_recommended_for_it(env: str) -> None:
    needed = [NEEDED[env]] if env in NEEDED else []
    cfg = resolved(f"env={env}", "memory=gwr", *needed)
    if env not in NEEDED:
        assert cfg.env.name == env
    assert cfg.agent.lr == cfg.env.recommended.dqn.lr
    assert cfg.agent.train_every == cfg.env.recommended[cfg.agent.name].train_every
    assert cfg.trainer.max_env_steps == cfg.env.recommended.max_env_steps
    assert isinstance(cfg.agent.network.hidden[0], int)
    common = OmegaConf.load(CONF_DIR / "env.yaml").recommended
    assert set(cfg.env.recommended) == set(common)
    assert set(cfg.env.recommended.dqn) == set(common.dqn)


@pytest.mark.parametrize("agent", options("agent"))
def test_every_agent_composes_with_the_keys_of_its_schema(agent: str) -> None:
    cfg = resolved(f"agent={agent}", "env=gym", "env.id=CartPole-v1")
    assert cfg.agent.name == agent
    assert set(cfg.agent) == {
        f.name for f in fields(registry.find("agent", agent).settings) if f.init
    }
    own = 0 if agent in ("tabular", "a3c", *ALONE) else cfg.env.recommended.learning_starts
    assert cfg.agent.learning_starts == own


@pytest.mark.parametrize(
    ("given", "works"),
    [
        ("agent.train_every=3 env.num_envs=2", "env.num_envs=1 or 3"),
        ("agent.train_every=6 env.num_envs=4", "env.num_envs=1, 2, 3 or 6"),
        ("agent.train_every=1 trainer.devices=2", "agent.updates_per_step=2"),
    ],
)
def test_a_round_that_cannot_be_shared_says_what_can(given: str, works: str) -> None:
    with pytest.raises(UserError, match=f"; use {works}$"):
        settings("env=cartpole", "agent.updates_per_step=1", *given.split())


def test_td3_is_ddpg_with_its_three_changes() -> None:
    ddpg, td3 = (resolved(f"agent={name}", "env=reacher").agent for name in ("ddpg", "td3"))
    assert (ddpg.twin_critics, ddpg.policy_delay, ddpg.target_noise) == (False, 1, 0.0)
    assert (td3.twin_critics, td3.policy_delay, td3.target_noise) == (True, 2, 0.2)
    assert (ddpg.network.hidden, td3.network.hidden) == ([400, 300], [256, 256])


@pytest.mark.parametrize(("agent", "epsilon"), [("dqn", 0.001), ("ddpg", 0.0), ("td3", 0.0)])
def test_evaluations_of_continuous_agents_are_deterministic(agent: str, epsilon: float) -> None:
    assert resolved(f"agent={agent}", "env=gym", "env.id=x").evaluation.epsilon == epsilon
    given = resolved(f"agent={agent}", "env=gym", "env.id=x", "evaluation.epsilon=0.5")
    assert given.evaluation.epsilon == 0.5


@pytest.mark.parametrize("env", ["inverted_pendulum", "reacher", "half_cheetah", "walker2d"])
def test_gwrr_paper_is_the_published_protocol_on_any_mujoco_task(env: str) -> None:
    cfg = resolved("experiment=gwrr_paper", f"env={env}", "threshold.activation=0.55")
    assert (cfg.agent.name, cfg.memory.name) == ("ddpg", "gwr")
    assert cfg.env.id == f"{cfg.env.task}-v4"
    assert cfg.threshold == {"activation": 0.55, "habituation": 0.8}
    assert (cfg.trainer.max_env_steps, cfg.agent.learning_starts) == (100_000, 15_000)
    assert (cfg.agent.train_every, cfg.memory.capacity, cfg.env.num_envs) == (1, 100_000, 1)
    assert (cfg.agent.actor_lr, cfg.agent.critic_lr) == (1e-4, 1e-3)
    assert (cfg.agent.critic_weight_decay, cfg.agent.tau, cfg.agent.gamma) == (1e-2, 0.005, 0.99)
    assert (cfg.agent.batch_size, cfg.agent.exploration_noise) == (64, 0.1)
    assert (cfg.evaluation.every, cfg.evaluation.episodes) == (2_500, 6)
    block = cfg.agent.updates_per_step  # evaluations fall on the published steps
    assert 2_500 % block == 15_000 % block == 0
    assert resolved("experiment=gwrr_paper", "memory=uniform").memory.capacity == 100_000


@pytest.mark.parametrize("memory", MEMORIES)
def test_every_memory_composes_with_its_own_capacity(memory: str) -> None:
    env = "bit_flip" if memory == "her" else "minatar_breakout"
    asking = ["agent=nec"] if memory in ANSWERS else []
    cfg = resolved(f"memory={memory}", f"env={env}", *asking)
    assert cfg.memory.name == memory
    small = {
        "none": cfg.agent.batch_size,
        "newest": cfg.agent.batch_size,
        "medqn_u": cfg.agent.batch_size,
        "medqn_r": 10_000,
    }
    assert cfg.memory.capacity == small.get(memory, cfg.env.recommended.capacity)


def test_no_memory_is_left_out() -> None:
    assert options("memory") == sorted((*MEMORIES, *ASKED, *ALONE.values(), *COUNTED))


OWN = {"a3c": "worker_rollouts", "nec": "dnd", "tabular": "q_table", **ALONE}


@pytest.mark.parametrize("agent", options("agent"))
def test_an_agent_may_have_a_memory_of_its_own_where_none_is_named(agent: str) -> None:
    env = "env=reacher" if agent in ("ddpg", "td3") else "env=cartpole"
    assert settings(f"agent={agent}", env).memory.name == OWN.get(agent, "uniform")
    for other in ("per", "gwr"):
        given = compose("train", [f"memory={other}", f"agent={agent}", env])
        assert given.memory.name == other
    experiment = compose("train", ["experiment=gwrr_paper", f"agent={agent}"])
    assert experiment.memory.name == "gwr"


def test_a_rollout_of_workers_is_as_long_as_the_agent_says() -> None:
    assert resolved("agent=a3c", "env=cartpole", "agent.n_step=7").memory.capacity == 7


@pytest.mark.parametrize(
    ("overrides", "clips"),
    [
        (["agent=nec"], False),
        (["agent=nec", "memory=gbmr"], False),
        (["agent=nec", "agent.reward_clip=true"], True),
        (["agent=nec", "env.reward_clip=true"], True),
        (["agent=dqn"], True),
        ([], True),
    ],
)
def test_nec_learns_from_rewards_of_atari_as_they_are(overrides: list[str], clips: bool) -> None:
    assert resolved("env=pong", *overrides).env.reward_clip is clips


@pytest.mark.parametrize("name", ["a3c_pong_gru", "a3c_pong_stack", "a3c_space_invaders"])
def test_the_a3c_study_composes(name: str) -> None:
    cfg = resolved(f"experiment={name}")
    assert (cfg.agent.workers, cfg.agent.n_step, cfg.memory.name) == (8, 30, "worker_rollouts")
    assert (cfg.env.screen_size, cfg.env.rows, cfg.env.num_envs) == (160, [35, 195], 1)
    assert cfg.env.stack == (4 if name == "a3c_pong_stack" else 1)
    if cfg.env.game == "space_invaders":
        assert cfg.agent.reward_scale * cfg.env.terminal_reward == -1


@pytest.mark.parametrize("memory", ASKED)
def test_a_memory_that_answers_composes_with_the_agent_that_asks(memory: str) -> None:
    cfg = resolved(f"memory={memory}", "agent=tabular", "env=mini_maze")
    assert cfg.memory.name == memory
    assert cfg.memory.capacity == cfg.env.recommended.capacity


def test_the_graphs_are_one_memory_with_three_settings() -> None:
    given = ("agent=tabular", "env=mini_maze")
    gq, gcmr, gbmr = (resolved(f"memory={n}", *given).memory for n in ASKED[1:])
    assert gq.reconstruct.key_nodes == "none"
    centre = {**gq.reconstruct, "key_nodes": "centre"}
    assert gcmr == {**gq, "name": "gcmr", "reconstruct": centre}
    assert gbmr == {**gcmr, "name": "gbmr", "reconstruct": {**centre, "walks": 16}}


@pytest.mark.parametrize("sampler", ["uniform", "prioritized", "rank", "combined", "latest"])
def test_the_sampler_is_chosen_apart(sampler: str) -> None:
    cfg = resolved("memory=per", "memory/storage=frames", f"memory/sampler={sampler}")
    assert (cfg.memory.storage.kind, cfg.memory.sampler.kind) == ("frames", sampler)


@pytest.mark.parametrize("memory", GWR)
@pytest.mark.parametrize("sampler", ["visits", "uniform", "prioritized"])
def test_a_maps_sampler_is_chosen_apart(memory: str, sampler: str) -> None:
    given = ["memory.prototype=exemplar", "memory.eviction=lru"]
    cfg = resolved(f"memory={memory}", "env=minatar_breakout", f"memory/sampler={sampler}", *given)
    assert (cfg.memory.storage.kind, cfg.memory.sampler.kind) == ("map", sampler)
    assert (cfg.memory.prototype, cfg.memory.eviction) == ("exemplar", "lru")


def test_the_three_maps_are_the_sound_one_one_without_contexts_and_the_released_one() -> None:
    keys = ("contexts", "links", "terminals", "episodes", "prototype", "eviction")
    kinds = {name: resolved(f"memory={name}").memory for name in GWR}
    assert [kinds["gwr"][key] for key in keys] == ["auto", True, "edge", "apart", "auto", "auto"]
    assert kinds["gwr_plain"] == {**kinds["gwr"], "name": "gwr_plain", "contexts": 0}
    released = {"contexts": 4, "links": False, "terminals": "node", "episodes": "joined"}
    released["prototype"] = "moving"
    assert kinds["gwr_released"] == {**kinds["gwr"], "name": "gwr_released", **released}


def test_the_thresholds_hold_the_studys_sixteen_pairs() -> None:
    pairs = {}
    assert resolved("memory=gwr", "threshold=rr_083_065").threshold == {
        "activation": 0.83,
        "habituation": 0.65,
    }
    for name in options("threshold"):
        threshold = OmegaConf.load(CONF_DIR / "threshold" / f"{name}.yaml")
        pairs[name] = (threshold.activation, threshold.habituation)
    assert pairs.pop("paper") == (0.95, 0.8)
    assert set(pairs.values()) == STUDY
    for name, (activation, habituation) in pairs.items():
        assert name == f"rr_{round(activation * 100):03d}_{round(habituation * 100):03d}"


def test_the_road_runner_study_is_the_published_setting() -> None:
    cfg = resolved("experiment=road_runner_study")
    assert (cfg.env.name, cfg.env.protocol.name, cfg.memory.name) == (
        "road_runner",
        "noframeskip",
        "gwr",
    )
    assert (cfg.trainer.max_env_steps, cfg.agent.learning_starts) == (100_000, 10_000)
    assert (cfg.memory.capacity, cfg.agent.target_update_every) == (100_000, 16_000)
    assert (cfg.agent.lr, cfg.agent.network.hidden) == (1e-4, [512])
    assert cfg.evaluation.every == 1_000


@pytest.mark.parametrize("experiment", ["road_runner_study", "road_runner_study_100k"])
def test_no_replay_holds_one_batch_in_the_road_runner_studies(experiment: str) -> None:
    cfg = resolved(f"experiment={experiment}", "memory=none")
    assert cfg.memory.capacity == cfg.agent.batch_size == 32


# What its papers say of each (docs/atari.md), whatever is recommended for the game.
PUBLISHED_100K = {
    "atari_100k_der": {
        "distribution": "c51", "n_step": 20, "noisy": True, "noisy_std": 0.1,
        "target_network": True, "target_update_every": 2000, "max_grad_norm": 10.0,
        "train_every": 1, "batch_size": 32, "learning_starts": 1600, "lr": 1e-4,
        "adam_eps": 1.5e-4, "gamma": 0.99,
        "network.kind": "data_efficient", "network.hidden": [256], "augment.shift": 0,
    },
    "atari_100k_drq_eps": {
        "distribution": "none", "n_step": 10, "noisy": False, "target_network": False,
        "max_grad_norm": None, "train_every": 1, "batch_size": 32, "learning_starts": 1600,
        "lr": 1e-4, "adam_eps": 1.5e-4, "gamma": 0.99, "network.kind": "nature",
        "network.hidden": [512], "augment.shift": 4, "augment.intensity": 0.05,
        "epsilon.start": 1.0, "epsilon.end": 0.01, "epsilon.decay_from": 1600,
        "epsilon.decay_steps": 6600,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED_100K)
def test_a_published_agent_is_the_published_one(name: str) -> None:
    agent = resolved(f"experiment={name}").agent
    published = PUBLISHED_100K[name]
    assert {key: OmegaConf.select(agent, key) for key in published} == published


def test_an_override_wins_over_the_experiment() -> None:
    cfg = resolved("experiment=road_runner_study", "memory=per", "memory.capacity=5000")
    assert (cfg.memory.name, cfg.memory.capacity) == ("per", 5000)


@pytest.mark.parametrize(
    ("override", "chosen"),
    [
        ("logger=csv", {"csv"}),
        ("logger=wandb", {"wandb"}),
        ("logger=[csv,wandb]", {"csv", "wandb"}),
        ("logger=[]", set()),
    ],
)
def test_loggers_are_a_list(override: str, chosen: set[str]) -> None:
    assert set(settings(override).logger) == chosen


def test_values_that_are_recommended_by_the_env_can_be_overridden() -> None:
    cfg = resolved("env=pong", "agent.lr=1e-3", "agent.epsilon.end=.1", "memory.capacity=5000")
    assert (cfg.agent.lr, cfg.agent.epsilon.end, cfg.memory.capacity) == (1e-3, 0.1, 5000)


def test_the_protocol_of_an_atari_game_is_a_group() -> None:
    assert resolved("env=pong").env.protocol.sticky == 0.25
    protocol = resolved("env=pong", "env/protocol=noframeskip").env.protocol
    assert (protocol.sticky, protocol.noop_max, protocol.fire_reset) == (0.0, 30, True)


def test_a_jobs_folder_is_taken_as_a_run() -> None:
    folder = "multirun/2026-01-01/memory.sampler=rank+seed=1"
    assert evaluate_settings(f"run={folder}").run == folder
    assert evaluate_settings("mode=plot", f"runs=[{folder},b]").runs == [folder, "b"]
    assert evaluate_settings("mode=plot", f"run={folder}").runs == [folder]


def test_every_key_says_its_unit() -> None:
    """A leaf's line ends in a comment; names, kinds and suites say themselves."""
    plain = {"name", "kind", "suite", "csv", "defaults"}
    for file in CONF_DIR.rglob("*.yaml"):
        if file.relative_to(CONF_DIR).parts[0] == "hydra":
            continue
        lines = file.read_text().splitlines()
        body = [line for line in lines if not line.strip().startswith(("#", "-"))]
        for line in body:
            key = re.match(r"\s*([\w/]+): *(\S.*)$", line)
            if key and key[1] not in plain and not line.startswith(("hydra:", "  job", "    ")):
                in_hydra = "hydra:" in lines and lines.index(line) > lines.index("hydra:")
                assert " # " in line or in_hydra, f"{file.name}: {line}"


def test_every_yaml_is_short_and_valid() -> None:
    for file in CONF_DIR.rglob("*.yaml"):
        assert len(file.read_text().splitlines()) <= 40, file
        assert isinstance(yaml.safe_load(file.read_text()), dict), file


def test_the_config_room_does_not_import_torch() -> None:
    code = "import sys, rlmem.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
