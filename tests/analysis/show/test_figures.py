"""What the figures of a report show, and that no name is cut off."""

import csv
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from rlmem.analysis.compare.settings import make_settings
from rlmem.analysis.read.runs import read_run
from rlmem.analysis.show import figures
from tests.analysis.helpers import make_run


def later(run: Path, seconds: float) -> Path:
    """The run as if its clock had begun so many seconds before."""
    with (run / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with (run / "metrics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({**row, "seconds": float(row["seconds"]) + seconds} for row in rows)
    return run


def test_runs_that_share_no_span_of_seconds_are_drawn_each(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a"), later(make_run(tmp_path / "b", seed=1), 10_000)]
    settings = make_settings([read_run(run) for run in runs])
    assert not len(settings[0].curve("train_return_mean", "seconds")[0])
    drawn = figures.curves(settings, over="seconds")
    assert drawn is not None
    at = drawn.axes[0]
    assert [len(line.get_xdata()) for line in at.lines if "seed" in str(line.get_gid())] == [20, 20]
    assert [text.get_text() for text in at.texts].count("uniform") == 1


@pytest.mark.parametrize("memories", [["uniform"], ["uniform", "per", "gwr"]])
def test_each_bar_has_its_name_within_the_figure(tmp_path: Path, memories: list[str]) -> None:
    runs = [read_run(make_run(tmp_path / memory, memory)) for memory in memories]
    drawn = figures.times(make_settings(runs), "sample_us")
    assert drawn is not None
    drawn.canvas.draw()
    frame = drawn.bbox
    for text in drawn.axes[0].texts:
        box = text.get_window_extent()
        assert frame.y0 <= box.y0, text.get_text()
        assert box.y1 <= frame.y1, text.get_text()
    assert len(drawn.axes[0].texts) == len(memories)
