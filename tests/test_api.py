"""rlmem from Python."""

import numpy as np
import pytest

import rlmem
from rlmem.errors import UserError

SMALL = [
    "agent=nec",
    "memory=dnd",
    "env=cartpole",
    "trainer.max_env_steps=300",
    "agent.learning_starts=100",
    "agent.batch_size=8",
    "memory.neighbours=5",
    "evaluation.episodes=1",
    "log.progress=false",
]


@pytest.mark.slow
def test_a_loaded_agent_that_asks_a_memory_has_it(tmp_path):
    run = rlmem.train(SMALL, run_dir=tmp_path / "run")
    agent = rlmem.load_run(run.path).agent
    assert agent.values.entries == run.summary["memory_entries"]
    actions = agent.act(np.zeros((3, 4), np.float32), 0.0, np.random.default_rng(0))
    assert set(actions) <= {0, 1}


@pytest.mark.slow
def test_a_run_of_several_environments_that_is_not_finished_can_be_scored(tmp_path):
    # A run of 300 env steps that is to go on: its checkpoint has the queues of four environments.
    longer = [*SMALL, "env.num_envs=4", "agent.updates_per_step=4", "checkpoint.every=100"]
    run = rlmem.train([*longer, "checkpoint.keep_memory_when_finished=true"], run_dir=tmp_path)
    assert rlmem.evaluate(run, episodes=1)["episodes"] == 1


def test_keys_of_the_command_line_are_refused():
    with pytest.raises(ValueError, match="a key of the command line"):
        rlmem.train(["env=cartpole", "hydra.run.dir=x"])


@pytest.mark.parametrize("overrides", ["memory=per env=cartpole", [3]])
def test_overrides_are_a_list_of_texts(overrides):
    with pytest.raises(UserError, match=r"^overrides are a list of texts, such as"):
        rlmem.train(overrides)
