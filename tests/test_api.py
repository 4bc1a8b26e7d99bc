"""rlmem from Python."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

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
def test_a_notebook_completes_the_names_that_are_imported_late():
    assert {"Run", "evaluate", "load_run", "train"} <= set(dir(rlmem))


def test_a_loaded_agent_that_asks_a_memory_has_it(tmp_path):
    run = rlmem.train(SMALL, run_dir=tmp_path / "run")
    agent = rlmem.load_run(run.path).agent
    assert agent.values.entries == run.summary["memory_entries"]
    actions = agent.act(np.zeros((3, 4), np.float32), 0.0, np.random.default_rng(0))
    assert set(actions) <= {0, 1}
    with pytest.raises(UserError, match=r"^checkpoint=bset: must be last or best"):
        run.load_agent("bset")
    assert rlmem.evaluate(run, episodes=np.int64(1), seed=np.int64(3))["episodes"] == 1


@pytest.mark.slow
def test_a_run_of_several_environments_that_is_not_finished_can_be_scored(tmp_path):
    # A run of 300 env steps that is to go on: its checkpoint has the queues of four environments.
    longer = [*SMALL, "env.num_envs=4", "agent.updates_per_step=4", "checkpoint.every=100"]
    run = rlmem.train([*longer, "checkpoint.keep_memory_when_finished=true"], run_dir=tmp_path)
    assert rlmem.evaluate(run, episodes=1)["episodes"] == 1


@pytest.mark.slow
def test_a_run_goes_on_in_its_own_directory_and_leaves_no_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = "checkpoint.keep_memory_when_finished=true"
    run = rlmem.train([*SMALL, kept], run_dir="mine")
    with pytest.raises(UserError, match=r"^resume=mine: it goes on there; leave run_dir out"):
        rlmem.train(["resume=mine"], run_dir="other")
    longer = rlmem.train(["resume=mine", "trainer.max_env_steps=400"])
    assert longer.path.resolve() == run.path.resolve()
    assert longer.summary["env_steps"] == 400
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_folder_that_was_made_for_nothing_goes_again(finished_run, tmp_path, monkeypatch):
    """As where `resume=auto` goes on with an older run; the user's own stays."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rlmem.runs.train.train_run", lambda settings: (finished_run, {}))
    rlmem.train(SMALL)
    assert not list(tmp_path.rglob("*-seed0"))
    (tmp_path / "mine").mkdir()
    rlmem.train(SMALL, run_dir="mine")
    assert (tmp_path / "mine").is_dir()


@pytest.mark.slow
def test_what_the_caller_has_set_in_torch_stays(tmp_path):
    torch.manual_seed(5)
    torch.rand(3)
    before = torch.get_rng_state(), torch.get_num_threads(), len(warnings.filters)
    torch.set_flush_denormal(True)
    torch.set_default_dtype(torch.float64)
    try:
        torch.set_num_threads(before[1] + 1)
        run = rlmem.train([*SMALL, "trainer.threads=1"], run_dir=tmp_path / "run")
        rlmem.evaluate(run, episodes=1)
        assert {p.dtype for p in run.load_agent().parameters()} == {torch.float32}
        assert torch.get_default_dtype() == torch.float64
        assert torch.get_num_threads() == before[1] + 1
        assert (torch.tensor(1e-310, dtype=torch.float64) * 1).item() == 0
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_flush_denormal(False)
        torch.set_num_threads(before[1])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert len(warnings.filters) == before[2]


def test_keys_of_the_command_line_are_refused():
    with pytest.raises(ValueError, match="only the command line takes this key"):
        rlmem.train(["env=cartpole", "hydra.run.dir=x"])
    with pytest.raises(ValueError, match="hparams_search=dqn_small: a search is a command"):
        rlmem.train(["env=cartpole", "hparams_search=dqn_small"])


def test_overrides_are_read_once(tmp_path):
    """A generator is empty after the first reading: the defaults would be trained."""
    with pytest.raises(UserError, match=r"^memory\.capacity=0: must be at least 1"):
        rlmem.train((f"memory.{key}=0" for key in ["capacity"]), run_dir=tmp_path)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["env=gym"], r"^env\.id is not set"),
        (["paths.output_dir=x"], r"folder as run_dir="),
        (["seed=no"], r"^seed=no: must be a whole number"),
    ],
)
def test_mistakes_are_one_line_without_a_run_dir_too(overrides, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=line):
        rlmem.train(overrides)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("overrides", ["memory=per env=cartpole", [3], 3, None])
def test_overrides_are_a_list_of_texts(overrides):
    with pytest.raises(UserError, match=r"^overrides are a list of texts, such as"):
        rlmem.train(overrides)


@pytest.mark.parametrize("seed", [[1], object(), torch.tensor([1, 2]), np.arange(2)])
def test_a_value_of_another_type_is_one_line(seed):
    with pytest.raises(UserError, match=r"seed=.*: must be a number, a text or None"):
        rlmem.evaluate("nowhere", seed=seed)


@pytest.mark.parametrize("seed", [3, np.int64(3), torch.tensor(3)])
def test_numbers_of_numpy_and_torch_are_numbers(seed):
    with pytest.raises(UserError, match="no run there"):
        rlmem.evaluate("nowhere", seed=seed)


def test_a_path_is_a_text_or_a_path():
    with pytest.raises(UserError, match="None is no run directory"):
        rlmem.load_run(None)
    with pytest.raises(UserError, match="run_dir=5: must be a path"):
        rlmem.train([], run_dir=5)


def test_one_plugin_need_not_be_a_list(finished_run: Path) -> None:
    with pytest.raises(UserError, match=r"^plugins=\[no_such_module\]: cannot be imported"):
        rlmem.load_run(finished_run, plugins="no_such_module")
