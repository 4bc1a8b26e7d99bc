"""Scoring a run's checkpoint."""

import csv
import json
import re
import shutil
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import yaml

import rlmem
from rlmem.config import run_hydra
from rlmem.config.schema import EvaluateSettings
from rlmem.config.validate import _READ_BY
from rlmem.errors import UserError
from rlmem.runs.evaluate import MODES, evaluate
from tests.analysis.helpers import make_run
from tests.settings import evaluate_settings


@pytest.fixture
def run_dir(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, to be written into."""
    return Path(shutil.copytree(finished_run, tmp_path / "run"))


def scored(run_dir: Path, *overrides: str) -> tuple[dict, list[dict[str, str]]]:
    """The summary and the rows that an evaluation leaves."""
    evaluate(evaluate_settings(f"run={run_dir}", "episodes=3", *overrides))
    out = run_dir / "evaluation"
    with (out / "evaluations.csv").open(newline="") as file:
        return json.loads((out / "summary.json").read_text()), list(csv.DictReader(file))


def test_a_checkpoint_is_scored_over_whole_episodes(run_dir: Path) -> None:
    summary, rows = scored(run_dir)
    assert list(rows[0]) == ["env_steps", "episode", "return", "length"]
    assert [(row["env_steps"], row["episode"]) for row in rows] == [
        ("300", str(episode)) for episode in (1, 2, 3)
    ]
    returns = [float(row["return"]) for row in rows]
    assert summary["return_mean"] == pytest.approx(np.mean(returns))
    assert summary["return_std"] == pytest.approx(np.std(returns))
    assert summary["human_normalized_score"] is None
    assert summary["epsilon"] == 0.001
    assert summary["unended"] == 0


def test_a_seed_decides_the_score(run_dir: Path) -> None:
    settings = ["episodes=6", "epsilon=0.5"]
    first, again, other = (
        [row["return"] for row in scored(run_dir, *settings, f"seed={seed}")[1]]
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_the_best_model_is_scored_at_its_own_env_steps(run_dir: Path) -> None:
    import torch

    best = torch.load(run_dir / "checkpoints/best.ckpt", weights_only=True)
    summary, _ = scored(run_dir, "checkpoint=best")
    assert summary["env_steps"] == best["env_steps"]
    assert summary["checkpoint"] == "best"


def test_each_score_is_kept(run_dir: Path) -> None:
    summaries = [
        scored(run_dir, *given)[0]
        for given in (["checkpoint=best"], ["checkpoint=last"], ["seed=3", "epsilon=0.5"])
    ]
    with (run_dir / "evaluation/scores.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["checkpoint"] for row in rows] == ["best", "last", "last"]
    for row, summary in zip(rows, summaries, strict=True):
        assert float(row["return_mean"]) == summary["return_mean"]
        assert (int(row["env_steps"]), int(row["seed"])) == (summary["env_steps"], summary["seed"])


def test_a_score_does_not_join_a_line_that_was_cut_off(run_dir: Path) -> None:
    scored(run_dir)
    file = run_dir / "evaluation/scores.csv"
    file.write_text(file.read_text()[:-5])
    summary, _ = scored(run_dir, "checkpoint=best")
    with file.open(newline="") as lines:
        assert float([*csv.DictReader(lines)][-1]["return_mean"]) == summary["return_mean"]


def test_a_line_that_was_cut_off_and_a_damaged_summary_are_no_numbers(run_dir: Path) -> None:
    run = rlmem.load_run(run_dir)
    whole = len(run.metrics)
    file = run_dir / "metrics.csv"
    file.write_text(file.read_text()[:-5])
    assert len(run.metrics) == whole - 1
    (run_dir / "summary.json").write_text("{")
    with pytest.raises(UserError, match=r"summary\.json: cannot be read"):
        _ = run.summary


def test_of_each_key_is_known_which_modes_read_it() -> None:
    keys = {f.name for f in fields(EvaluateSettings) if f.init} - {"mode", "plugins", "debug"}
    assert _READ_BY.keys() == keys
    assert {mode for modes in _READ_BY.values() for mode in modes} == {*MODES}


@pytest.mark.parametrize(
    "given",
    [
        "mode=status sweep=x out=y",
        "mode=report sweep=x run=y",
        "mode=map run=x video=true",
        "mode=plot runs=[x] seed=3",
    ],
)
def test_a_key_that_a_mode_does_not_read_is_refused(given: str) -> None:
    with pytest.raises(UserError, match=r"^\w+=\w+: is not of mode=\w+ but of .+; leave it out$"):
        evaluate_settings(*given.split())


def test_a_score_that_cannot_be_written_is_said_first(
    run_dir: Path, capsys: pytest.CaptureFixture
) -> None:
    (run_dir / "evaluation/evaluations.csv").mkdir(parents=True)  # in the place of the table
    with pytest.raises(UserError, match=r"cannot write its evaluation/ .*stands above"):
        scored(run_dir)
    assert "(3 episodes)" in capsys.readouterr().out


@pytest.mark.parametrize("given", ["trainer.threads=1", "memory=per", "env.id=Foo"])
def test_a_key_of_training_is_told_as_one(
    run_dir: Path, given: str, capfd: pytest.CaptureFixture
) -> None:
    assert run_hydra(evaluate, "evaluate", [f"run={run_dir}", given]) == 2
    assert "is of train.py; here the run's own configuration says it" in capfd.readouterr().err


def test_the_runs_own_files_stay_as_they_are(run_dir: Path) -> None:
    names = ["summary.json", "evaluations.csv", "episodes.csv", "config.yaml"]
    before = [(run_dir / name).read_bytes() for name in names]
    scored(run_dir)
    assert [(run_dir / name).read_bytes() for name in names] == before


@pytest.mark.slow
def test_a_video_of_the_first_episode_is_left(run_dir: Path) -> None:
    imageio = pytest.importorskip("imageio.v2")
    pytest.importorskip("imageio_ffmpeg")
    _, rows = scored(run_dir, "video=true")
    (video,) = (run_dir / "evaluation").glob("*.mp4")
    assert video.name == "last_000000300.mp4"
    frames = len(imageio.mimread(video))
    assert frames == pytest.approx(int(rows[0]["length"]), abs=1)


def test_a_directory_without_a_run_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run there"):
        scored(tmp_path)


@pytest.mark.parametrize("mode", ["score", "map"])
def test_nothing_that_a_saved_configuration_refers_to_is_looked_up(
    run_dir: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "CartPole-v1")
    text = (run_dir / "config.yaml").read_text()
    assert "id: CartPole-v1" in text
    path = run_dir / "config.yaml"
    path.write_text(text.replace("id: CartPole-v1", "id: ${oc.env:SECRET}"))
    with pytest.raises(UserError, match=r"config\.yaml: '\$\{oc\.env:SECRET\}' is no value"):
        scored(run_dir, f"mode={mode}")


def test_a_run_from_before_some_keys_is_scored_as_with_them(run_dir: Path) -> None:
    before = scored(run_dir)
    config = yaml.safe_load((run_dir / "config.yaml").read_text())
    for section, key in (("evaluation", "epsilon"), ("agent", "double"), ("env", "reward_clip")):
        del config[section][key]
    del config["log"], config["memory"]["sampler"]["alpha"]
    (run_dir / "config.yaml").write_text(yaml.safe_dump(config))
    assert scored(run_dir) == before


def test_a_run_without_a_checkpoint_is_one_line(run_dir: Path) -> None:
    shutil.rmtree(run_dir / "checkpoints")
    for checkpoint in ("last", "best"):
        with pytest.raises(UserError, match="it finished, and its checkpoints are not there any"):
            scored(run_dir, f"checkpoint={checkpoint}")
    (run_dir / "summary.json").unlink()
    with pytest.raises(UserError, match="it has no checkpoint yet"):
        scored(run_dir)
    with pytest.raises(UserError, match=r"no best\.ckpt yet; train it for longer"):
        scored(run_dir, "checkpoint=best")


def test_a_run_without_a_best_model_is_one_line(run_dir: Path) -> None:
    (run_dir / "checkpoints/best.ckpt").unlink()
    with pytest.raises(UserError, match="use checkpoint=last"):
        scored(run_dir, "checkpoint=best")


@pytest.mark.parametrize(
    ("name", "checkpoint"), [("last/model.safetensors", "last"), ("best.ckpt", "best")]
)
def test_a_damaged_model_is_one_line(run_dir: Path, name: str, checkpoint: str) -> None:
    file = run_dir / "checkpoints" / name
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(UserError) as error:
        scored(run_dir, f"checkpoint={checkpoint}")
    assert "\n" not in str(error.value)


def test_a_run_that_cannot_be_written_to_is_one_line(run_dir: Path) -> None:
    (run_dir / "evaluation").write_text("a file")
    with pytest.raises(UserError, match=r"cannot write its evaluation/ \(File exists\)"):
        scored(run_dir)


@pytest.mark.parametrize("run", ["5", "[a,b]", "{a:1}"])
def test_a_run_that_is_no_path_is_one_line(run: str) -> None:
    with pytest.raises(UserError, match="must be a run directory"):
        evaluate_settings(f"run={run}")


@pytest.mark.parametrize("out", ["a.abc", "/proc/a.png"])
def test_a_plot_that_cannot_be_written_is_one_line(run_dir: Path, out: str) -> None:
    pytest.importorskip("matplotlib")
    overrides = ["mode=plot", f"runs=['{run_dir}']", f"out={out}"]
    with pytest.raises(UserError, match=f"out={out}: cannot be written"):
        evaluate(evaluate_settings(*overrides))


def test_a_plot_over_a_folder_or_of_several_environments_is_one_line(
    run_dir: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(UserError, match=r"is a folder; use out=.*/curves\.png$"):
        evaluate(evaluate_settings("mode=plot", f"runs=['{run_dir}']", f"out='{tmp_path}'"))
    other = make_run(tmp_path / "other", env_id="Acrobot-v1")
    both = ["mode=plot", f"runs=['{run_dir}','{other}']", f"out='{tmp_path}/a.png'"]
    with pytest.raises(UserError, match=r"several environments \(Acrobot-v1, CartPole-v1\)"):
        evaluate(evaluate_settings(*both))


def test_runs_are_drawn_together(run_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    overrides = ["mode=plot", f"runs=['{run_dir}']", f"out='{tmp_path}/a.png'"]
    evaluate(evaluate_settings(*overrides))
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_says_what_could_not_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    run = make_run(tmp_path / "run")
    with (run / "metrics.csv").open("a") as file:
        file.write("this is no row\n")
    evaluate(evaluate_settings("mode=plot", f"runs=['{run}']", f"out='{tmp_path}/a.png'"))
    assert f"note: {run}: metrics.csv is damaged" in capsys.readouterr().out


def test_no_two_of_twelve_runs_look_alike(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    runs = [str(make_run(tmp_path / f"r{seed}", seed=seed, final=50 + seed)) for seed in range(12)]
    out = tmp_path / "a.svg"
    evaluate(evaluate_settings("mode=plot", f"runs={runs}", f"out='{out}'"))
    looks = re.findall(r'style="(fill: none[^"]*stroke: #(?!b0b0b0|000000)[^"]*)"', out.read_text())
    assert len(set(looks)) == 12


def test_each_mode_that_the_configuration_knows_is_there() -> None:
    (mode,) = (field for field in fields(EvaluateSettings) if field.name == "mode")
    assert set(mode.metadata["choices"]) == set(MODES)


def test_a_folder_without_a_run_and_a_damaged_run_are_told_apart(
    run_dir: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="is no run directory"):
        evaluate(evaluate_settings("mode=plot", f"runs=['{tmp_path}/empty']"))
    (run_dir / "summary.json").write_text("")
    with pytest.raises(UserError, match=r"summary\.json cannot be read .* leave the run out"):
        evaluate(evaluate_settings("mode=plot", f"runs=['{run_dir}']"))


def test_curves_of_other_programs_make_a_report_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        "env_steps,return,bytes,seed,label,env_id",
        *(f"{step},{step * seed},9,{seed},SB3,CartPole-v1" for seed in (1, 2) for step in (10, 20)),
    ]
    curves, out = tmp_path / "sb3.csv", tmp_path / "report"
    curves.write_text("\n".join(lines))
    evaluate(evaluate_settings("mode=report", f"external={curves}", f"out={out}"))
    assert capsys.readouterr().out.startswith("runs: 2, settings: 1\n")
    with (out / "summary.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["label"], row["n"], float(row["return_mean"])) == ("SB3", "2", 30.0)

    curves.write_text("\n".join(line.rpartition(",")[0] for line in lines))
    with pytest.raises(UserError, match=r"external=.*: no curve there; .* has no column env_id"):
        evaluate(evaluate_settings("mode=report", f"external={curves}", f"out={out}"))
    with pytest.raises(UserError, match=r"sweep=\[\]: nothing to look at"):
        evaluate_settings("mode=report")
