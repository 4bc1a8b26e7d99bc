"""The study of the maze: what is recorded of its runs, what is compared, and its page."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlmem.cli import _study
from rlmem.errors import UserError
from rlmem.runs.study_code import load_code
from rlmem.runs.study_file import Study

FOLDER = Path(__file__).parents[2] / "studies/maze"
code: Any = load_code(FOLDER)
Result, frame, first_of = code.results.Result, code.results.frame, code.results.first_of
paired, sections_of = code.compare.paired, code.page.sections_of

DEFINITION = """
common: >-
  env=mini_maze trainer.max_episodes=3 evaluation.episodes=1 log.every=200 trainer.accelerator=cpu
  trainer.threads=1 agent=tabular
rows:
  Q table: {overrides: memory=q_table, seeds: 2}
  GCMR: memory=gcmr
columns:
  released: {overrides: env.maze=released, seeds: 2}
  maze 0: env.maze=0
"""


def made(row: str, maze: str, seed: int, lengths: list[int]) -> Any:
    """A run whose episodes of 200 steps failed."""
    length = np.array(lengths, np.uint8)
    return Result(
        maze=maze,
        row=row,
        seed=seed,
        env_steps=sum(lengths),
        failed=lengths.count(200),
        first_of_ten=first_of(length < 200),
        memory_bytes=1000,
        memory_entries=80,
        learn_us=7.5,
        cpu_seconds=0.5,
        overrides=f"memory={row} env.maze={maze.split()[-1]} seed={seed}",
        length=length,
        success=length < 200,
    )


def simulated() -> list[Any]:
    """Three seeds of two memories; GCMR takes half of the table's env steps in each maze."""
    rng, found = np.random.default_rng(0), []
    for maze in ("released", "maze 0", "maze 1", "maze 2", "maze 3", "maze 4", "maze 5"):
        for seed in range(3):
            failed = int(rng.integers(3, 6))
            found.append(made("Q table", maze, seed, [200] * 2 * failed + [20] * 14))
            found.append(made("GCMR", maze, seed, [200] * failed + [20] * 7))
    return found


@pytest.mark.parametrize(
    ("success", "first"),
    [([1] * 12, 1), ([0, *[1] * 9, 0, *[1] * 10], 12), ([*[1] * 9, 0, 1], float("nan"))],
)
def test_the_first_of_ten_successes_in_a_row(success: list[int], first: float) -> None:
    assert first_of(np.array(success, bool)) == pytest.approx(first, nan_ok=True)


def test_ratios_are_of_the_same_mazes_and_seeds() -> None:
    results = simulated()
    pairs = paired(frame(results), "GCMR", "Q table")
    assert pairs.mean.value == pytest.approx(0.5)
    assert (pairs.below, len(pairs.ratio), pairs.runs) == (6, 6, 18)
    assert "released" not in pairs.ratio.index
    # A seed of one memory alone counts for neither.
    more = [*results, made("Q table", "maze 0", 9, [200] * 90)]
    assert paired(frame(more), "GCMR", "Q table").ratio.equals(pairs.ratio)
    assert paired(frame(results), "GQ", "Q table") is None


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    never = made("NEC", "maze 3", 0, [200] * 5)
    results = [*simulated(), never]
    code.write_results(tmp_path, results)
    read = code.read_results(tmp_path)
    assert frame(read).equals(frame(results))
    for one, other in zip(read, results, strict=True):
        assert one.length.tolist() == other.length.tolist()
        assert one.success.tolist() == other.success.tolist()
    assert np.isnan(read[-1].first_of_ten)


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    code.write_results(tmp_path, simulated())
    table = tmp_path / "results.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(UserError, match=r"41 rows, but episodes of 42 runs.*remove both"):
        code.read_results(tmp_path)


def test_a_recorded_run_is_done_until_its_overrides_change(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(DEFINITION)
    study = Study(tmp_path)
    job = next(iter(study.jobs("maze 0")))
    result = replace(made("Q table", "maze 0", 0, [20]), overrides=" ".join(job.overrides))
    for same in (True, False):
        other = replace(result, overrides=result.overrides if same else "memory=gq")
        study.recorded[job.folder] = code.as_run(job, other)
        again = next(iter(study.jobs("maze 0")))
        assert again.done == same
        assert again.outdated != same


def test_the_page_has_its_findings_tables_and_figures(tmp_path: Path) -> None:
    (tmp_path / "findings.md").write_text("Reconstruction **halves** the steps.")
    code.write_maze(tmp_path, "A maze", simulated(), ["Q table", "GQ", "GCMR"])
    page = (tmp_path / "report/index.html").read_text()
    assert "<strong>halves</strong>" in page
    assert "0.500 [0.500, 0.500]" in page
    assert "6 of 6" in page
    assert page.index("halves") < page.index("<svg")
    for remark in ("the episode, from 1, that begins", "geometric one over mazes"):  # what is below
        assert remark in page
    names = {path.stem for path in (tmp_path / "report/figures").glob("*.png")}
    assert names == {"shares", "steps", "episodes-released", "episodes-random", "mazes", "cost"}


def test_a_memory_without_ten_successes_never_learned_it() -> None:
    results = [made("NEC", "released", seed, [200] * 12) for seed in range(2)]
    (_, one, *_) = sections_of(frame(results), results, ["NEC"])
    assert one.table is not None
    assert one.table["first of 10"].to_list() == ["never"]


@pytest.mark.slow
def test_the_command_runs_what_is_missing_and_a_clone_reports_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in FOLDER.glob("*.py"):
        shutil.copy(path, tmp_path)
    (tmp_path / "study.yaml").write_text(DEFINITION)
    assert _study(str(tmp_path), "", 0) == 0
    assert "nothing to report" in capsys.readouterr().out
    assert _study(str(tmp_path), "", 2) == 0
    results = code.read_results(tmp_path)
    assert len(results) == 4 + 3
    assert all(len(r.length) == 3 and r.length.sum() == r.env_steps for r in results)
    page, table = tmp_path / "report/index.html", tmp_path / "results.csv"
    before = page.read_text(), table.read_bytes()
    shutil.rmtree(tmp_path / "runs")
    assert _study(str(tmp_path), "", 1) == 0
    assert not (tmp_path / "runs").exists()
    assert (page.read_text(), table.read_bytes()) == before
    assert _study(str(tmp_path), "maze 9", 1) == 2
    assert "--only maze 9: no such column; there are released, maze 0" in capsys.readouterr().err
