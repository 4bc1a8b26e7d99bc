"""Reports of runs with odd names, that are damaged, or have not ended."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rlmem.analysis.show.report import write_report
from tests.analysis.helpers import make_run
from tests.runs.helpers import rows_of


def test_broken_and_cut_off_runs_are_named_and_left_out(tmp_path: Path) -> None:
    make_run(tmp_path / "sweep/good", seed=0)
    make_run(tmp_path / "sweep/cut", seed=1, status="interrupted", final=9.0)
    make_run(tmp_path / "sweep/half", seed=2)
    (tmp_path / "sweep/half/summary.json").write_text('{"status": "fin')
    (make_run(tmp_path / "sweep/empty", seed=3) / "metrics.csv").unlink()
    write_report([tmp_path / "sweep"], tmp_path / "report")
    (setting,) = rows_of(tmp_path / "report/summary.csv")
    assert (setting["n"], setting["not_finished"], setting["return_mean"]) == ("2", "1", "100")
    page = (tmp_path / "report/index.html").read_text()
    assert "2 runs left out of the means" in page
    assert "summary.json cannot be read" in page


def test_no_finished_run_still_gives_a_page(tmp_path: Path) -> None:
    make_run(tmp_path / "sweep/a", status="no summary")
    write_report([tmp_path / "sweep"], tmp_path / "report")
    assert "missing" in (tmp_path / "report/index.html").read_text()


def test_labels_of_users_are_no_html(tmp_path: Path) -> None:
    make_run(tmp_path / "a", config={"label": "<script>alert(1)</script> $x_1$ & _"})
    write_report([tmp_path], tmp_path / "report")
    assert "<script>alert" not in (tmp_path / "report/index.html").read_text()


@pytest.mark.parametrize("label", ["a $\\foo$ b", "_hidden", "x" * 300, "%s {} \\g<1>", "a|b'"])
def test_any_label_can_be_drawn(tmp_path: Path, label: str) -> None:
    make_run(tmp_path / "sweep/a", config={"label": label})
    make_run(tmp_path / "sweep/b", "per")
    write_report([tmp_path / "sweep"], tmp_path / "report")
    assert label in {row["label"] for row in rows_of(tmp_path / "report/summary.csv")}
    drawing = (tmp_path / "report/figures/curves-CartPole-v1.svg").read_text()
    assert "c1-name-" in drawing


def test_any_environment_has_figures_of_its_own(tmp_path: Path) -> None:
    names = ["A/B", "A-B", "a\\gb", 'x"><script>alert(1)</script>', "y" * 300]
    for k, env_id in enumerate(names):
        make_run(tmp_path / f"sweep/{k}", env_id=env_id)
    write_report([tmp_path / "sweep"], tmp_path / "report")
    curves = list((tmp_path / "report/figures").glob("curves*.png"))
    assert len(curves) == len(names)
    page = (tmp_path / "report/index.html").read_text()
    assert "<script>alert" not in page
    assert all(f'href="figures/{path.name}"' in page for path in curves)


def test_a_curve_of_another_program_is_none_of_our_settings(tmp_path: Path) -> None:
    """Its label is free in an environment where we ran none of that name."""
    rows = "".join(f"1000,5,10,{seed},uniform,Acrobot-v1\n" for seed in range(5))
    (tmp_path / "theirs.csv").write_text(f"env_steps,return,bytes,seed,label,env_id\n{rows}")
    for seed in range(5):
        make_run(tmp_path / f"sweep/{seed}", seed=seed)
        for env_id in ("CartPole-v1", "Acrobot-v1"):
            make_run(tmp_path / f"sweep/{env_id}{seed}", "per", seed, env_id=env_id)
    write_report([tmp_path / "sweep"], tmp_path / "out", [tmp_path / "theirs.csv"])
    figure = (tmp_path / "out/figures/improvement.svg").read_text()
    assert "uniform (another program)" in re.sub(r"\s+", " ", figure)


def test_no_label_makes_a_rule_of_the_page(tmp_path: Path) -> None:
    for seed in range(4):
        label = 'a style="}*{background:url(//evil.example/x)}" style="'
        make_run(tmp_path / f"sweep/{seed}", seed=seed, config={"label": label})
    write_report([tmp_path / "sweep"], tmp_path / "out")
    page = (tmp_path / "out/index.html").read_text()
    assert "background:url" in page
    assert not [style for style in re.findall(r"<style.*?</style>", page, re.S) if "evil" in style]
    assert not re.findall(r'(?:class|style)="[^"<>]*evil', page)
    assert "default-src 'none'" in page


def test_runs_that_have_not_ended_stand_beside_those_that_have(tmp_path: Path) -> None:
    named = {"env.name": "pong"}
    for seed in range(2):
        make_run(tmp_path / f"sweep/{seed}", seed=seed, env_id="ALE/Pong", config=named)
    late = make_run(tmp_path / "sweep/2", seed=2, status="no summary", config=named)
    (late / "run.json").write_text('{"id": "a", "env_id": "ALE/Pong"}')
    write_report([tmp_path / "sweep"], tmp_path / "out")
    (row,) = rows_of(tmp_path / "out/summary.csv")
    assert (row["env_id"], row["n"], row["not_finished"]) == ("ALE/Pong", "2", "1")


def test_evaluations_that_did_not_end_are_told(tmp_path: Path) -> None:
    make_run(tmp_path / "a", eval_unended=0)
    for seed in (1, 2):
        make_run(tmp_path / f"b{seed}", seed=seed, eval_unended=3)
    (note,) = write_report([tmp_path], tmp_path / "report").collection.notes
    assert note.startswith("in the last evaluation of 2 runs episodes did not end")


def test_what_has_not_ended_names_no_device(tmp_path: Path) -> None:
    for seed, status in enumerate(("finished", "finished", "no summary")):
        make_run(tmp_path / f"r{seed}", seed=seed, status=status, device="A GPU")
    write_report([tmp_path], tmp_path / "report")
    assert "device" not in (tmp_path / "report/results.csv").read_text().splitlines()[0]


def test_a_name_may_have_control_characters_and_long_letters(tmp_path: Path) -> None:
    for seed in range(2):
        odd = {"label": "a\x01b\x1b[31m"}
        make_run(tmp_path / f"r{seed}", seed=seed, env_id="\U00020000" * 90, config=odd)
    write_report([tmp_path], tmp_path / "report")
    files = [*(tmp_path / "report/figures").glob("*.svg")]
    assert files
    for file in files:
        ElementTree.parse(file)


def test_thresholds_that_are_no_numbers_end_no_report(tmp_path: Path) -> None:
    for k, activation in enumerate((0.68, 0.9, "high")):
        for habituation in (0.45, 0.85):
            given = {"threshold.activation": activation, "threshold.habituation": habituation}
            make_run(tmp_path / f"r{k}{habituation}", "gwr", config=given)
    assert len(write_report([tmp_path], tmp_path / "report").settings) == 6
