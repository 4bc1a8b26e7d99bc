"""Whole runs with goals: every strategy, resuming, learning, what does not go together."""

from pathlib import Path

import pytest

from rlmem.errors import UserError
from rlmem.memories.transforms.hindsight import STRATEGIES
from rlmem.runs import build
from rlmem.runs.evaluate import evaluate
from tests.runs.helpers import (
    KEEP,
    TINY,
    TINY_CONTINUOUS,
    assert_same_run,
    rows_of,
    run,
    signal_at,
    summary_of,
)
from tests.settings import evaluate_settings, settings

slow = pytest.mark.slow
HER = ["memory=her", "env=bit_flip", "env.bits=6"]


@slow
@pytest.mark.parametrize(
    ("strategy", "sampler"),
    [
        *(("future", each) for each in ("uniform", "prioritized", "rank", "combined", "latest")),
        *((each, "uniform") for each in STRATEGIES if each != "future"),
    ],
)
def test_every_strategy_and_every_sampler_trains(
    strategy: str, sampler: str, tmp_path: Path
) -> None:
    choice = [f"memory.strategy={strategy}", f"memory/sampler={sampler}"]
    summary = run(tmp_path, *HER, *choice, "trainer.max_env_steps=200", "evaluation.episodes=8")
    assert (summary["status"], summary["memory"]) == ("finished", "her")
    assert (summary["env_id"], summary["memory_entries"]) == ("rlmem/BitFlip-v0", 200)
    assert summary["memory_components"]["achieved_goals"] == 200 * (
        4 * 6 + (4 if strategy == "episode" else 0)
    )
    # An episode that ends at its goal has a step without the -1 of the others.
    episodes = rows_of(tmp_path / "evaluations.csv")
    reached = [float(row["return"]) > -int(row["length"]) for row in episodes]
    assert len(reached) == 8
    assert summary["eval_success_rate"] == sum(reached) / 8


@slow
@pytest.mark.parametrize("memory", ["none", "uniform", "per", "gwr"])
def test_every_other_memory_trains_on_goals(memory: str, tmp_path: Path) -> None:
    summary = run(tmp_path, f"memory={memory}", *HER[1:], "trainer.max_env_steps=200")
    assert summary["status"] == "finished"
    assert "achieved_goals" not in summary["memory_components"]


@slow
@pytest.mark.parametrize("choice", ["agent=dqn", "agent=ddpg", "agent=td3"])
@pytest.mark.parametrize("env", ["point_maze", "fetch_reach"])
def test_robotics_trains_with_hindsight(env: str, choice: str, tmp_path: Path) -> None:
    pytest.importorskip("gymnasium_robotics")
    levels = "env.action_levels=null"
    if choice == "agent=dqn":
        levels = f"env.action_levels={3 if env == 'point_maze' else 2}"
    tiny = TINY if choice == "agent=dqn" else TINY_CONTINUOUS
    short = ["memory=her", "trainer.max_env_steps=150"]
    summary = run(tmp_path, f"env={env}", choice, levels, *short, tiny=tiny)
    assert (summary["status"], summary["grad_steps"]) == ("finished", 51)
    (episode,) = rows_of(tmp_path / "evaluations.csv")
    value, length = float(episode["return"]), int(episode["length"])
    reward_of_the_last = value > (0 if env == "point_maze" else -length)
    assert summary["eval_success_rate"] in ((0.0, 1.0) if reward_of_the_last else (0.0,))


@slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_stopped_run_goes_on_as_if_it_had_not_been(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [*HER, f"memory.strategy={strategy}", "memory/sampler=prioritized", KEEP]
    given += ["checkpoint.every=120", "evaluation.every=100", "memory.capacity=150"]
    run(tmp_path / "whole", *given)
    with monkeypatch.context() as patch:
        signal_at(patch, 201)
        with pytest.raises(SystemExit):
            run(tmp_path / "cut", *given)
    run(tmp_path / "cut", *given, f"resume={tmp_path / 'cut'}")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    scores = [summary_of(tmp_path / name)["eval_success_rate"] for name in ("whole", "cut")]
    assert scores[0] == scores[1]


@slow
def test_hindsight_learns_what_plain_replay_does_not(tmp_path: Path) -> None:
    """1,000 episodes of 10 bits."""
    bits = ["env.bits=10", "agent.train_every=4", "agent.target_update_every=160"]
    given = ["experiment=her_bit_flip", *bits, "trainer.max_env_steps=12000", "log.progress=false"]
    rates = [
        run(tmp_path / memory, f"memory={memory}", *given, tiny=["trainer.accelerator=cpu"])[
            "eval_success_rate"
        ]
        for memory in ("her", "uniform")
    ]
    assert rates[0] > 0.9
    assert rates[1] < 0.5


@slow
def test_a_scored_run_tells_its_success_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, *HER, "trainer.max_env_steps=120")
    evaluate(evaluate_settings(f"run={tmp_path}", "episodes=8"))
    assert "success rate " in capsys.readouterr().out
    assert summary_of(tmp_path / "evaluation")["success_rate"] in [i / 8 for i in range(9)]


def test_the_experiment_is_the_papers_setting() -> None:
    cfg = settings("experiment=her_bit_flip")
    agent, memory = cfg.agent, cfg.memory
    assert (memory.name, memory.strategy, memory.k, memory.capacity) == ("her", "future", 4, 10**6)
    assert (agent.lr, agent.gamma, agent.batch_size, list(agent.network.hidden)) == (
        *(1e-3, 0.98, 128),
        [256],
    )
    cycle = agent.train_every * agent.updates_per_step
    assert (cycle, agent.updates_per_step) == (16 * cfg.env.bits, 40)
    assert (agent.target_update_every, agent.tau) == (cycle, 0.05)
    assert agent.target_clip == pytest.approx([-1 / (1 - agent.gamma), 0])
    assert (agent.epsilon.start, agent.epsilon.end) == (0.2, 0.2)
    assert cfg.trainer.max_env_steps == 5000 * cfg.env.bits


@pytest.mark.parametrize("name", ["her_point_maze", "her_fetch_reach"])
def test_the_robots_experiments_are_built_with_and_without_hindsight(name: str) -> None:
    pytest.importorskip("gymnasium_robotics")
    for memory in ("her", "uniform"):
        built(f"experiment={name}", f"memory={memory}")


def built(*overrides: str) -> None:
    """What a run does before it starts."""
    cfg = settings(*overrides)
    build.build_memory(cfg, build.build_env(cfg).spec)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["env=cartpole"], "memory=her: CartPole-v1 has no goals; .*env=bit_flip"),
        (["env=pong"], "memory=her: env=pong has no goals; .*env=bit_flip"),
        (["env=bit_flip", "agent.n_step=3"], "agent.n_step=3: .*memory=her.*; use agent.n_step=1"),
        (["env=bit_flip", "env.reward_clip=true"], "env.reward_clip=true: .*env.reward_clip=false"),
        (["env=bit_flip", "memory/storage=map"], "memory/storage=map: does not go with memory=her"),
        (["env=bit_flip", "memory.strategy=past"], "memory.strategy=past: no such strategy"),
        (["env=bit_flip", "memory.k=0"], "memory.k=0: must be at least 1"),
        (["env=bit_flip", "env.bits=0"], "env.bits=0: must be at least 1"),
        (["env=reacher", "env.action_levels=1"], "env.action_levels=1: must be at least 2"),
    ],
    ids=lambda part: part[-1] if isinstance(part, list) else "",
)
def test_what_does_not_go_together_is_one_line(given: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        built("memory=her", *given)
    assert "\n" not in str(caught.value)


def test_an_environment_that_rewards_no_other_goals_is_named() -> None:
    cfg = settings("memory=her", "env=bit_flip")
    env = build.build_env(cfg)
    goal = env.spec.goal
    assert goal is not None
    object.__setattr__(goal, "rules", None)
    object.__setattr__(goal, "lacks", "KeyError: 'speed'")
    with pytest.raises(UserError, match=r"BitFlip-v0 .*another goal.*KeyError: 'speed'"):
        build.build_memory(cfg, env.spec)


def test_dqn_is_told_of_levels_where_actions_are_continuous() -> None:
    pytest.importorskip("mujoco")
    cfg = settings("env=reacher")
    spec = build.build_env(cfg).spec
    with pytest.raises(UserError, match=r"env\.action_levels=3"):
        build.build_agent(cfg, spec)
    cfg = settings("env=reacher", "env.action_levels=3")
    spec = build.build_env(cfg).spec
    assert build.build_agent(cfg, spec).num_actions == 9
    cfg = settings("env=reacher", "env.action_levels=3", "agent=ddpg")
    with pytest.raises(UserError, match=r"9 discrete ones; .*env\.action_levels=null"):
        build.build_agent(cfg, spec)
