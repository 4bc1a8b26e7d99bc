"""Which run `resume` goes on with, and which it refuses."""

import shutil
from pathlib import Path

import pytest
import yaml

from rlmem.callbacks.checkpoint import read_manifest
from rlmem.config.schema import TrainSettings
from rlmem.errors import OccupiedError, UserError
from rlmem.runs.resume import differences, resolve_run_dir
from rlmem.runs.run import Run
from rlmem.runs.train import train
from tests.runs.helpers import CARTPOLE, TINY, rows_of, run, summary_of
from tests.settings import settings

ROOT = Path(__file__).parents[2]


def chosen(folder: Path, *overrides: str, multirun: bool = False) -> tuple[Path, bool]:
    cfg = settings(*TINY, *overrides, f"paths.output_dir={folder}")
    return resolve_run_dir(cfg, folder, multirun)


@pytest.mark.slow
def test_auto_finds_the_newest_unfinished_run_of_this_config(copy: Path) -> None:
    fresh = copy.with_name("fresh")
    train(settings(*TINY, *CARTPOLE, "resume=auto", f"paths.output_dir={fresh}"))
    assert summary_of(copy)["status"] == "finished"
    assert not fresh.exists()


def test_auto_starts_anew_where_only_another_config_lies(copy: Path) -> None:
    fresh = copy.with_name("fresh")
    assert chosen(fresh, *CARTPOLE, "resume=auto", "seed=5") == (fresh, False)


@pytest.mark.parametrize("more", ["label=mine", "trainer.max_env_steps=150"])
def test_auto_leaves_another_label_and_a_run_that_is_further_alone(copy: Path, more: str) -> None:
    fresh = copy.with_name("fresh")
    assert chosen(fresh, *CARTPOLE, "resume=auto", more) == (fresh, False)


def test_auto_goes_on_with_a_run_whose_label_is_a_number(copy: Path) -> None:
    config = yaml.safe_load((copy / "config.yaml").read_text())
    (copy / "config.yaml").write_text(yaml.safe_dump({**config, "label": 1}))
    fresh = copy.with_name("fresh")
    assert chosen(fresh, *CARTPOLE, "resume=auto", "label=1") == (copy, True)


def test_auto_goes_on_with_the_directory_that_is_named(copy: Path) -> None:
    other = copy.with_name("other")
    shutil.copytree(copy, other)
    for named in (copy, other):
        assert chosen(named, *CARTPOLE, "resume=auto") == (named, True)
    with pytest.raises(UserError, match=r"that run has other settings: seed was 0, is 9"):
        chosen(copy, *CARTPOLE, "resume=auto", "seed=9")


def test_auto_looks_nowhere_else_where_a_folder_is_named(copy: Path) -> None:
    cfg = settings(*TINY, *CARTPOLE, "resume=auto", f"paths.output_dir={copy.with_name('fresh')}")
    cfg.folder_is_named = True
    assert resolve_run_dir(cfg, copy.with_name("fresh"), False) == (copy.with_name("fresh"), False)


def test_a_sweep_goes_on_with_its_unfinished_job(copy: Path) -> None:
    assert chosen(copy, *CARTPOLE, multirun=True) == (copy, True)


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("agent.lr=0.5", "agent.lr was 0.00025, is 0.5"),
        ("seed=4", "seed was 0, is 4"),
        ("memory=uniform", "memory.name was per, is uniform"),
        ("agent.dueling=true", "agent.dueling was False, is True"),
        ("+env.kwargs.sutton_barto_reward=true", "env.kwargs.sutton_barto_reward was not given"),
    ],
)
def test_a_run_of_another_config_is_refused_by_its_key(copy: Path, override: str, key: str) -> None:
    with pytest.raises(UserError) as error:
        chosen(copy, *CARTPOLE, override, f"resume={copy}")
    assert key in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "override",
    ["trainer.max_env_steps=9000", "log.every=7", "evaluation.episodes=3", "logger=wandb"],
)
def test_what_does_not_bind_a_run_may_change(copy: Path, override: str) -> None:
    assert chosen(copy, *CARTPOLE, override, f"resume={copy}") == (copy, True)


@pytest.mark.parametrize("given", ["", "resume=auto"])
def test_a_run_whose_configuration_was_lost_is_gone_on_with_by_nobody(
    copy: Path, given: str
) -> None:
    (copy / "config.yaml").write_text("")
    overrides = [*CARTPOLE, "seed=7", *given.split()]
    if given:  # auto: another folder is looked into, and this one passed over
        elsewhere = copy.parent / "new"
        assert chosen(elsewhere, *overrides) == (elsewhere, False)
    else:
        with pytest.raises(UserError, match=r"config\.yaml is missing or damaged"):
            chosen(copy, *overrides)


def test_a_run_is_not_made_shorter_than_it_is(copy: Path) -> None:
    """It would end there and then, and its memory would go."""
    with pytest.raises(UserError, match=r"is at 201 env steps already, of 300; use 201 or more"):
        chosen(copy, *CARTPOLE, "trainer.max_env_steps=150", f"resume={copy}")
    shorter = chosen(copy, *CARTPOLE, "trainer.max_env_steps=201", f"resume={copy}")
    assert shorter == (copy, True)


def test_rows_that_the_checkpoint_knows_are_not_lost_in_silence(copy: Path) -> None:
    (copy / "metrics.csv").write_text("garbage\n")
    with pytest.raises(UserError, match=r"metrics\.csv: 2 of the 2 rows that the checkpoint knows"):
        run(copy, *CARTPOLE, f"resume={copy}")
    assert (copy / "metrics.csv").read_text() == "garbage\n"
    (copy / "metrics.csv").unlink()
    run(copy, *CARTPOLE, f"resume={copy}")
    assert [row["env_steps"] for row in rows_of(copy / "metrics.csv")] == ["300"]


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run there"):
        chosen(tmp_path / "new", f"resume={tmp_path}")


def test_a_run_without_a_checkpoint_is_refused(copy: Path) -> None:
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(UserError, match=r"it has no checkpoint yet .* checkpoint\.every=120"):
        chosen(copy, *CARTPOLE, f"resume={copy}")
    (copy / "summary.json").write_text('{"status": "finished"}')
    with pytest.raises(UserError, match="it finished, and its checkpoints are not there any more"):
        chosen(copy, *CARTPOLE, f"resume={copy}")


def test_differences_name_the_keys_that_bind() -> None:
    saved = settings("agent.lr=0.1", "log.every=1", "objective=return_and_bytes").values
    saved["old"] = 1
    del saved["agent"]["gamma"]  # a key of a version after it
    machine = "trainer.accelerator=cpu", "trainer.compile=true"
    asked = settings("agent.lr=0.5", "log.every=9", *machine)
    assert differences(saved, asked) == ["agent.lr was 0.1, is 0.5", "old was 1, is None"]


MEMORIES = sorted(path.stem for path in (ROOT / "conf/memory").glob("*.yaml"))


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_run_of_each_memory_may_become_longer(memory: str) -> None:
    """What follows the run's length, such as a schedule, binds no run to the length it had."""
    for partners in ([], ["agent=nec"], ["agent=tabular", "env=mini_maze"], ["env=bit_flip"],
                     ["agent=pqn"], ["agent=stream_q"], ["agent=a3c"]):  # fmt: skip
        given = [f"memory={memory}", *partners]
        try:
            short = settings(*given, "trainer.max_env_steps=20000")
        except UserError:
            continue
        longer = settings(*given, "trainer.max_env_steps=30000")
        assert differences(short.values, longer) == []
        return
    pytest.fail(f"no agent and environment take memory={memory}")


@pytest.mark.parametrize("begun", [False, True])
def test_a_run_that_another_process_ends_meanwhile_is_left_as_it_is(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """Between the look into the folder and its lock stands the building of all parts."""
    folder = copy if begun else tmp_path / "fresh"
    build = Run.__init__

    def end_meanwhile(self: Run, cfg: TrainSettings, run_dir: Path) -> None:
        monkeypatch.undo()
        run(folder, *CARTPOLE, *([f"resume={folder}"] if begun else []))
        build(self, cfg, run_dir)

    monkeypatch.setattr(Run, "__init__", end_meanwhile)
    with pytest.raises(OccupiedError, match="another process has trained there just now"):
        run(folder, *CARTPOLE, *([f"resume={folder}"] if begun else []))
    assert summary_of(folder)["status"] == "finished"


def test_what_follows_a_longer_run_is_said(copy: Path, capsys: pytest.CaptureFixture) -> None:
    """Beta falls back, as it rises over the run: it is another run than one planned so long."""
    resumed_at = read_manifest(copy / "checkpoints/last")["env_steps"]
    begun = run(copy, *CARTPOLE, f"resume={copy}", "trainer.max_env_steps=400")
    said = "env steps; memory.sampler.beta_steps was 300, is 400\n"
    assert said in capsys.readouterr().out
    assert begun["length_changed_at"] == [resumed_at]
    run(copy, *CARTPOLE, f"resume={copy}", "trainer.max_env_steps=400", "log.every=50")
    assert "was 300" not in capsys.readouterr().out
    longest = run(copy, *CARTPOLE, f"resume={copy}", "trainer.max_env_steps=450")
    assert longest["length_changed_at"] == [resumed_at, 400]


def test_a_run_that_was_cut_off_before_its_first_checkpoint_begins_anew_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run(tmp_path / "run")
    assert "begins anew" not in capsys.readouterr().out
    shutil.rmtree(tmp_path / "run/checkpoints")
    (tmp_path / "run/summary.json").unlink()  # as a kill leaves it
    run(tmp_path / "run", "resume=auto")
    said = "WARNING: the run that lay there had no checkpoint, so this one begins anew"
    assert said in capsys.readouterr().out


def test_files_of_another_program_are_not_written_over(tmp_path: Path) -> None:
    folder = tmp_path / "run"  # resume=auto looks beside it, and beside tmp_path lie other tests'
    folder.mkdir()
    (folder / "metrics.csv").write_text("a,b\n1,2\n")
    for given in ([], ["resume=auto"]):
        with pytest.raises(UserError, match=r"holds metrics\.csv of another program"):
            chosen(folder, *given)
    assert (folder / "metrics.csv").read_text() == "a,b\n1,2\n"
