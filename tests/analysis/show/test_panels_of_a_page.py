"""The head of a page and its panels: which figures, in which order, and what is said of them."""

import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from rlmem.analysis.show.report import StudyPage, write_report
from rlmem.analysis.show.sentences import finding
from tests.analysis.helpers import make_run


def test_a_findings_picture_opens_the_page_with_its_words_and_its_views(tmp_path: Path) -> None:
    for memory, final in (("per", 100.0), ("uniform", 80.0)):
        make_run(tmp_path / f"runs/{memory}", memory, final=final)
        make_run(tmp_path / f"runs/a{memory}", memory, final=final, env_id="Acrobot-v1")
    findings = tmp_path / "findings.md"
    findings.write_text("**Found.**\n\n![PER ends 20 above](figures/final-CartPole-v1.png)\n")
    write_report([tmp_path / "runs"], tmp_path / "out", study=StudyPage(findings=findings))
    page = (tmp_path / "out/index.html").read_text()
    head = page[page.index("<div class=head") : page.index("<section")]
    assert re.findall(r"<label [^>]*>([^<]*)<", head) == [
        *("bytes", "bytes, final", "env steps", "seconds")
    ]
    assert re.findall(r'id="([^"]*)" checked', head) == ["bytes-CartPole-v1-view2"]
    shown = head[head.index('<figure id="final-CartPole-v1">') :]
    assert 'aria-label="PER ends 20 above. On CartPole-v1, per returned most in the' in shown
    caption = shown[shown.index("<figcaption>") : shown.index("</figcaption>")]
    assert caption.startswith("<figcaption>PER ends 20 above. The dotted line joins")
    assert "<h3>CartPole-v1" not in page
    assert "<h3>Acrobot-v1" in page


def test_one_setting_is_compared_with_nothing_and_stands_last(tmp_path: Path) -> None:
    make_run(tmp_path / "runs/alone", "per", env_id="A")
    for memory in ("per", "uniform"):
        for env_id in ("B", "C"):
            make_run(tmp_path / f"runs/{env_id}{memory}", memory, env_id=env_id)
    (tmp_path / "findings.md").write_text("**Found.**\n\n![seen](figures/bytes-B.png)\n")
    study = StudyPage(findings=tmp_path / "findings.md")
    report = write_report([tmp_path / "runs"], tmp_path / "out", study=study)
    page = (tmp_path / "out/index.html").read_text()
    assert re.findall("<h3>([ABC])<", page) == ["C", "A"]
    drawn = {each.name: each for each in report.figures}
    assert drawn["bytes-A"].caption == (
        "On A, per returned 50 over the run; there is nothing to compare it with."
    )
    assert drawn["bytes-A"].key == ""
    beside = [setting for setting in report.settings if setting.env_id == "B"]
    assert finding(beside[:1]) == "On B, per returned 50 over the run."  # the other is grey
    assert drawn["bytes-B"].key.startswith("The dotted line")


def test_where_a_mean_ends_is_said(tmp_path: Path) -> None:
    for seed, rows in enumerate((20, 20, 15)):
        length = {"trainer.max_env_steps": 20_000}
        make_run(tmp_path / f"runs/{seed}", seed=seed, rows=rows, config=length)
        make_run(tmp_path / f"runs/b{seed}", seed=seed, env_id="B")
    report = write_report([tmp_path / "runs"], tmp_path / "out")
    said = {d.name for d in report.figures if "ends where its first seed ends" in d.key}
    assert said == {"curves-CartPole-v1", "seconds-CartPole-v1"}
