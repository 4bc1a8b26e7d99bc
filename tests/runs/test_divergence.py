"""A run whose loss is no number any more."""

from pathlib import Path

import pytest

import rlmem
from rlmem.errors import UserError
from tests.runs.helpers import run, summary_of
from tests.settings import settings

LOST = "agent.lr=1e30"


@pytest.mark.parametrize(
    "overrides",
    [
        ["memory=uniform"],
        ["memory=per"],
        ["memory=per_rank"],
        ["agent=rainbow", "memory=per"],
    ],
)
def test_diverged_runs_fail_and_say_what_to_look_at(tmp_path: Path, overrides: list[str]) -> None:
    with pytest.raises(UserError, match=r"the loss is \S+ after [1-9]\d* .*agent.lr") as raised:
        run(tmp_path, "env=cartpole", *overrides, LOST)
    assert "\n" not in str(raised.value)
    summary = summary_of(tmp_path)
    assert summary["status"] == "failed"
    assert "learning diverged" in summary["error"]


def test_what_is_done_already_is_not_advised(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="learning diverged; try") as raised:
        run(tmp_path, "env=cartpole", "env.reward_clip=true", LOST)
    assert "reward_clip" not in str(raised.value)


@pytest.mark.parametrize(
    "overrides",
    [["agent=ddpg", "env=reacher"], ["agent=td3", "env=reacher"], ["agent=nec", "memory=dnd"]],
)
def test_who_cannot_act_without_numbers_does_not_go_on(overrides: list[str]) -> None:
    with pytest.raises(UserError, match=r"on_divergence=continue: agent=\w+ cannot act without"):
        settings(*overrides, "agent.on_divergence=continue")


def test_a3c_whose_workers_lost_their_weights_fails_too(tmp_path: Path) -> None:
    given = ["env=cartpole", "agent=a3c", "agent.workers=1", "agent.max_grad_norm=null", LOST]
    given += ["trainer.max_env_steps=3000", "evaluation.episodes=1", "log.progress=false"]
    with pytest.raises(UserError, match=r"a weight is no finite number after \d+ .*agent.lr"):
        rlmem.train(given, run_dir=tmp_path)
    assert summary_of(tmp_path)["status"] == "failed"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["agent=ddpg", "env=gym", "env.id=Pendulum-v1", "agent.critic_lr=1e30"],
            "an action is no number after .* smaller step sizes",
        ),
        (["agent=nec", "agent.lr=1e30", "agent.standard_keys=false"], "a key has numbers .* after"),
    ],
    ids=["an actor", "a network of keys"],
)
def test_what_else_a_lost_network_gives_is_named(
    tmp_path: Path, overrides: list[str], message: str
) -> None:
    given = ["env=cartpole", *overrides] if "env=gym" not in overrides else overrides
    given = [*given, "agent.learning_starts=50", "trainer.max_env_steps=2000"]
    given += ["trainer.accelerator=cpu", "log.progress=false"]
    with pytest.raises(UserError, match=message) as raised:
        rlmem.train(given, run_dir=tmp_path)
    assert "learning diverged; try" in str(raised.value)


@pytest.mark.parametrize("env_steps", [128, 1280])  # the end of the run, or an evaluation within
def test_weights_that_the_last_step_has_lost_are_not_scored(env_steps: int, tmp_path: Path) -> None:
    """The loss, which was made before it, is a number still."""
    given = ["env=cartpole", "agent=pqn", "env.num_envs=4", "memory.capacity=128", "agent.epochs=1"]
    given += ["agent.batch_size=128", "agent.lr=3e38", "agent.max_grad_norm=null"]
    given += [f"trainer.max_env_steps={env_steps}", "evaluation.every=128", "log.progress=false"]
    with pytest.raises(UserError, match=r"a weight is no finite number after 1 .*agent.lr"):
        rlmem.train(given, run_dir=tmp_path)
    assert summary_of(tmp_path)["status"] == "failed"
    assert not (tmp_path / "checkpoints").exists()
    assert len((tmp_path / "evaluations.csv").read_text().splitlines()) == 1  # its header


@pytest.mark.parametrize("memory", ["uniform", "per"])
def test_who_asks_for_it_goes_on(memory: str, tmp_path: Path) -> None:
    asked = [f"memory={memory}", "agent.on_divergence=continue"]
    found = run(tmp_path, "env=cartpole", LOST, *asked)
    assert found["status"] == "finished"
    assert found["env_steps"] == 300
