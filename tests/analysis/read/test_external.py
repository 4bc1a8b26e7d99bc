"""Curves of other programs, beside the runs."""

from pathlib import Path

import numpy as np
import pytest

from rlmem.analysis.read.collection import collect
from rlmem.analysis.read.external import read_external
from tests.analysis.helpers import make_run

OUTSIDER = """env_steps,return,bytes,seed,label
1000,1,100,0,SB3
2000,5,200,0,SB3
1000,2,100,1,SB3
2000,7,200,1,SB3
"""


def test_curves_of_others_become_runs(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a")
    (tmp_path / "sb3.csv").write_text(OUTSIDER)
    found = collect([tmp_path / "runs"], [tmp_path / "sb3.csv"])
    others = [run for run in found.runs if run.external]
    assert [run.number("train_return_mean") for run in others] == [5, 7]
    assert np.isnan(others[0].number("eval_return_mean"))  # an evaluation is something else
    assert {run.env_id for run in others} == {"CartPole-v1"}
    assert others[0].number("memory_bytes_peak") == 200
    assert [run.seed for run in others] == [0, 1]
    (tmp_path / "sb3.csv").write_text(OUTSIDER.replace(",1,SB3", ",1.0,SB3"))
    assert [run.seed for run in read_external(tmp_path / "sb3.csv", "CartPole-v1")] == [0, 1]
    (tmp_path / "sb3.csv").write_text(OUTSIDER + "3000,9,300,0.0,SB3\n")  # the same seed
    assert [run.seed for run in read_external(tmp_path / "sb3.csv", "CartPole-v1")] == [0, 1]


def test_curves_of_other_lengths_are_told(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a")
    (tmp_path / "sb3.csv").write_text(OUTSIDER)
    found = collect([tmp_path / "runs"], [tmp_path / "sb3.csv"])
    late, lengths = found.notes
    assert late.startswith(
        "CartPole-v1: the first return is known at 5% of a run, of another at 50%"
    )
    assert lengths == "CartPole-v1: runs of different lengths (2,000, 20,000 env steps)"


def test_of_several_lines_at_the_last_step_the_last_one_counts(tmp_path: Path) -> None:
    (tmp_path / "sb3.csv").write_text(OUTSIDER + "2000,3,200,0,SB3\n")
    runs = read_external(tmp_path / "sb3.csv", "CartPole-v1")
    assert [run.number("train_return_mean") for run in runs] == [3, 7]


def test_a_score_of_another_program_has_a_column_of_its_own(tmp_path: Path) -> None:
    rows = [
        f"{line},{score}"
        for line, score in zip(OUTSIDER.split(), ("eval_return", "", 8, 9, ""), strict=True)
    ]
    (tmp_path / "sb3.csv").write_text("\n".join(rows))
    runs = read_external(tmp_path / "sb3.csv", "CartPole-v1")
    assert [run.number("eval_return_mean") for run in runs] == [8, 9]


def test_a_curve_of_an_environment_is_placed_beside_its_only_task(tmp_path: Path) -> None:
    make_run(tmp_path / "runs/a", config={"env.kwargs.size": 1})
    (tmp_path / "sb3.csv").write_text(
        OUTSIDER.replace("label", "label,env_id").replace("SB3", "SB3,CartPole-v1")
    )
    found = collect([tmp_path / "runs"], [tmp_path / "sb3.csv"])
    assert {run.env_id for run in found.runs} == {"CartPole-v1, size=1"}
    make_run(tmp_path / "runs/b", config={"env.kwargs.size": 2})
    note, *_ = collect([tmp_path / "runs"], [tmp_path / "sb3.csv"]).notes
    assert note.startswith("CartPole-v1 of another program is compared with no run, as these are o")


@pytest.mark.parametrize(
    ("content", "env_id", "reason"),
    [
        ("env_steps,return\n1,2\n", "Pong", "has no column bytes, seed, label"),
        (OUTSIDER + "x,1,1,0,SB3\n", "Pong", "line 6"),
        (OUTSIDER + "1,1,1,first,SB3\n", "Pong", "line 6: seed first is no whole number"),
        (OUTSIDER + "-1,1,1,0,SB3\n", "Pong", "line 6: env_steps and bytes are finite numbers fr"),
        (OUTSIDER + "1,1,-5,0,SB3\n", "Pong", "line 6: env_steps and bytes are finite numbers fr"),
        (OUTSIDER + "1,1,inf,0,SB3\n", "Pong", "line 6: env_steps and bytes are finite numbers f"),
        (OUTSIDER + "1000,1,1,0,SB3\n", "Pong", "seed 0 of SB3 has env_steps 1000 twice"),
        (OUTSIDER, None, "has no column env_id"),
        (
            OUTSIDER.replace("label\n", "label,env_id\n").replace("SB3\n", "SB3,\n"),
            None,
            "line 2 has no env_id",
        ),
    ],
)
def test_other_files_are_left_out_with_a_reason(
    tmp_path: Path, content: str, env_id: str | None, reason: str
) -> None:
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(ValueError, match=reason):
        read_external(tmp_path / "a.csv", env_id)
