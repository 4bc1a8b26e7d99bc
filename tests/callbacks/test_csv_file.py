"""Files of rows: what is on disk at once, and what a resumed run keeps."""

from pathlib import Path
from typing import Any

import pytest

from rlmem.callbacks.csv_file import CsvFile
from rlmem.errors import UserError
from tests.runs.helpers import rows_of


def written(path: Path, *steps: int) -> None:
    file = CsvFile(path, ["env_steps", "return"], until=0)
    file.write([{"env_steps": s, "return": 10.0 * s} for s in steps])
    file.close()


@pytest.mark.parametrize("checkpoint", [{"until": 300, "keep": 2}, {"until": 200}], ids=str)
def test_a_resumed_file_drops_the_rows_after_the_checkpoint(
    tmp_path: Path, checkpoint: dict[str, Any]
) -> None:
    path = tmp_path / "a.csv"
    written(path, 100, 200, 300)
    file = CsvFile(path, ["env_steps", "return"], **checkpoint)
    file.write([{"env_steps": 250, "return": 1.0}])
    file.close()
    assert [row["env_steps"] for row in rows_of(path)] == ["100", "200", "250"]


def test_rows_at_the_step_of_the_checkpoint_are_told_apart_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    written(path, 100, 200, 200)
    CsvFile(path, ["env_steps", "return"], until=300, keep=2).close()
    assert [row["env_steps"] for row in rows_of(path)] == ["100", "200"]


def test_rows_that_came_later_stand_for_none_that_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    written(path, 100, 300, 400)
    with pytest.raises(UserError, match="1 of the 2 rows that the checkpoint knows are missing"):
        CsvFile(path, ["env_steps", "return"], until=200, keep=2)
    assert len(rows_of(path)) == 3


def test_a_file_knows_how_many_rows_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    written(path, 100, 200, 300)
    file = CsvFile(path, ["env_steps", "return"], until=300, keep=2)
    file.write([])
    file.write([{"env_steps": steps, "return": 0.0} for steps in (250, 300)])
    file.close()
    assert file.rows == len(rows_of(path)) == 4


@pytest.mark.parametrize("torn", ["300", "3", "300,", '"30', "300,1.0,9"])
@pytest.mark.parametrize("checkpoint", [{"until": 300, "keep": 2}, {"until": 250}], ids=str)
def test_a_half_written_last_line_does_not_stop_a_resume(
    tmp_path: Path, torn: str, checkpoint: dict[str, Any]
) -> None:
    path = tmp_path / "a.csv"
    written(path, 100, 200)
    with path.open("a") as file:
        file.write(torn)
    resumed = CsvFile(path, ["env_steps", "return"], **checkpoint)
    resumed.write([{"env_steps": 300, "return": 3000.0}])
    resumed.close()
    assert [row["env_steps"] for row in rows_of(path)] == ["100", "200", "300"]


def test_rows_are_on_disk_at_once(tmp_path: Path) -> None:
    file = CsvFile(tmp_path / "a.csv", ["env_steps", "return"], until=0)
    file.write([{"env_steps": 1, "return": 2}])
    assert (tmp_path / "a.csv").read_text().splitlines() == ["env_steps,return", "1,2"]
    file.close()


@pytest.mark.parametrize("how", ["moved", "removed", "replaced"])
def test_a_file_that_is_not_at_its_path_any_more_ends_the_run(tmp_path: Path, how: str) -> None:
    """Its rows would go on in one folder, and checkpoints in another."""
    run = tmp_path / "run"
    run.mkdir()
    file = CsvFile(run / "episodes.csv", ["env_steps", "return"], until=0)
    file.write([{"env_steps": 1, "return": 1.0}])
    if how == "moved":
        run.rename(tmp_path / "elsewhere")
    else:
        file.path.unlink()
    if how == "replaced":
        file.path.write_text("env_steps,return\n")
    for rows in ([], [{"env_steps": 2, "return": 2.0}]):
        with pytest.raises(UserError, match="moved, removed or replaced while the run wrote it"):
            file.write(rows)


def test_half_a_header_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("env_st")
    file = CsvFile(tmp_path / "a.csv", None, until=0)
    file.write([{"env_steps": 1, "loss": 0.5}])
    file.close()
    assert rows_of(tmp_path / "a.csv") == [{"env_steps": "1", "loss": "0.5"}]


def test_a_column_that_comes_later_is_added_unless_the_columns_were_given(tmp_path: Path) -> None:
    columns = ["env_steps", "loss"]
    for name, given, more in (("open", None, True), ("fixed", columns, False)):
        file = CsvFile(tmp_path / name, given, until=0)
        file.write([{"env_steps": 1, "loss": None}])
        file.write([{"env_steps": 2, "loss": 0.5, "extra": 1}])
        file.write([{"env_steps": 3, "loss": 0.25}])
        file.close()
        extra = [{"extra": ""}, {"extra": "1"}, {"extra": ""}] if more else [{}, {}, {}]
        assert file.rows == 3
        assert rows_of(tmp_path / name) == [
            {"env_steps": "1", "loss": ""} | extra[0],
            {"env_steps": "2", "loss": "0.5"} | extra[1],
            {"env_steps": "3", "loss": "0.25"} | extra[2],
        ]


def test_a_metric_may_have_any_name_that_a_resumed_run_takes(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    row = {"env_steps": 100, "KL(p||q)": 0.5, "|grad|": 1.0, "q,max": 2.0, "β": 3.0, 'a"b': 4.0}
    file = CsvFile(path, None, 0)
    file.write([row])
    file.close()
    again = CsvFile(path, None, 100, 1)
    assert (again.columns, again.rows) == ([*row], 1)
    for name in ("=1+1", "-loss", "a\nb", "x" * 201, ""):
        with pytest.raises(UserError, match="cannot be the name of a metric"):
            again.write([{"env_steps": 200, name: 1.0}])
    again.close()
    assert len(path.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("cut", "lost"), [(lambda text: "", 3), (lambda text: text[:-3], 1)], ids=["emptied", "a digit"]
)
def test_known_rows_that_are_lost_are_told(tmp_path: Path, cut: Any, lost: int) -> None:
    """Half a number is a number too, so the last line counts when it is whole."""
    path = tmp_path / "a.csv"
    written(path, 100, 200, 300)
    path.write_text(cut(path.read_text()))
    with pytest.raises(UserError, match=f"{lost} of the 3 rows that the checkpoint knows"):
        CsvFile(path, ["env_steps", "return"], until=300, keep=3)
