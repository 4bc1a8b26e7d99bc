"""What the figures of a report show, and that no name is cut off."""

import csv
import itertools
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from rlmem.analysis.compare.settings import Setting, make_settings
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


def test_labels_of_bytes_do_not_touch_where_seeds_lie_beyond_the_means(tmp_path: Path) -> None:
    sizes = {"a": [11.3], "b": [11.7], "c": [12.9, 11.8, 12.2]}  # MiB
    for label, held in sizes.items():
        for seed, size in enumerate(held):
            make_run(tmp_path / f"{label}{seed}", seed=seed, config={"label": label},
                     memory_bytes_peak=int(size * 2**20))  # fmt: skip
    settings = make_settings([read_run(path) for path in sorted(tmp_path.iterdir())])
    drawn = figures.return_against_bytes(settings, "eval_return_mean")
    assert drawn is not None
    at = drawn.axes[0]
    drawn.canvas.draw()
    low, high = at.get_xlim()
    ticks = [t for t in at.get_xticklabels() if low <= t.get_position()[0] <= high]
    boxes = [t.get_window_extent() for t in ticks]
    assert len(boxes) >= 2
    assert all(left.x1 + 3 < right.x0 for left, right in itertools.pairwise(boxes))


def test_of_many_settings_those_are_in_colour_that_a_figure_can_show(tmp_path: Path) -> None:
    """Though none has ended, or bytes are not known."""
    for k in range(10):
        make_run(tmp_path / f"a/{k}", seed=k, status="interrupted", config={"agent.lr": 0.1 * k})
        make_run(tmp_path / f"b/{k}", final=float(k), config={"agent.lr": 0.1 * k},
                 memory_bytes_peak=None)  # fmt: skip
    unfinished, without_bytes = (
        make_settings([read_run(path) for path in sorted((tmp_path / name).iterdir())])
        for name in "ab"
    )
    assert len(figures.in_colour(unfinished)) == figures.MOST
    returns = [setting.returns[0] for setting in figures.in_colour(without_bytes)]
    assert returns == [9, 8, 7, 6, 5, 4, 3, 2]


def test_fewer_than_five_curves_are_drawn_each_without_a_band(tmp_path: Path) -> None:
    """Of six runs two have lost theirs."""
    runs = [make_run(tmp_path / f"{seed}", seed=seed, final=10.0 * seed) for seed in range(6)]
    for run in runs[:2]:
        (run / "metrics.csv").write_text("broken")
    settings = make_settings([read_run(run) for run in runs])
    drawn = figures.curves(settings)
    assert drawn is not None
    assert not drawn.axes[0].collections
    lines = [str(line.get_gid()) for line in drawn.axes[0].lines]
    assert sum("seed" in name for name in lines) == 4


def test_a_point_is_of_one_run(tmp_path: Path) -> None:
    """Though one lacks its bytes, and another its return."""
    runs = [
        make_run(tmp_path / "0", final=1.0, size=100),
        make_run(tmp_path / "1", seed=1, final=2.0, size=200),
    ]
    runs += [
        make_run(tmp_path / "2", seed=2, final=3.0, size=300, memory_bytes_peak=None),
        make_run(tmp_path / "3", seed=3, final=4.0, size=400, eval_return_mean=None),
    ]
    (setting,) = make_settings([read_run(run) for run in runs])
    drawn = figures.return_against_bytes([setting], "eval_return_mean")
    assert drawn is not None
    (line,) = (line for line in drawn.axes[0].lines if "seeds" in str(line.get_gid()))
    shown = [(x, y) for x, y in zip(*line.get_data(), strict=True) if x == x and y == y]
    assert shown == [(100, 1), (200, 2)]


@pytest.mark.parametrize(("seeds", "bounds"), [(range(2), False), (range(5), True)])
def test_a_probability_has_bounds_where_each_task_has_seeds_enough(
    tmp_path: Path, seeds: range, bounds: bool
) -> None:
    names = {"uniform": 0.0, "per": 3.0}
    by_method: dict[str, dict[str, Setting]] = {name: {} for name in names}
    for task in ("CartPole-v1", "Acrobot-v1", "MountainCar-v0"):
        for name, more in names.items():
            folders = [tmp_path / f"{task}-{name}-{seed}" for seed in seeds]
            for seed, folder in zip(seeds, folders, strict=True):
                make_run(folder, name, seed, env_id=task, final=10.0 * seed % 7 + more)
            (by_method[name][task],) = make_settings([read_run(folder) for folder in folders])
    drawn = figures.improvement(by_method)
    assert drawn is not None
    texts = [text.get_text() for text in drawn.axes[0].texts if text.get_text()]
    assert len(texts) == 2
    assert all(("\n" in text) == bounds for text in texts)


def test_curves_begin_at_0_and_go_no_further_than_what_is_possible(tmp_path: Path) -> None:
    for sign in (1, -1):
        run = make_run(tmp_path / f"{sign}", env_id=f"E{sign}", final=90.0 * sign)
        drawn = figures.curves(make_settings([read_run(run)]))
        assert drawn is not None
        at = drawn.axes[0]
        assert at.get_xlim()[0] == 0
        assert at.get_ylim()[(1 - sign) // 2] == 0
        lines = [line for line in at.lines if "line" in str(line.get_gid())]
        assert not any(line.get_clip_on() for line in lines), "a mark on the edge is cut"


@pytest.mark.parametrize(("settings", "steps"), [(1, 0), (2, 1)])
def test_one_setting_has_no_frontier(tmp_path: Path, settings: int, steps: int) -> None:
    names = ["uniform", "per"][:settings]
    runs = [read_run(make_run(tmp_path / name, name, size=9 * len(name))) for name in names]
    drawn = figures.return_against_bytes(make_settings(runs), "eval_return_mean")
    assert drawn is not None
    lines = drawn.axes[0].lines
    assert sum(line.get_drawstyle() == "steps-post" for line in lines) == steps


def test_a_memory_without_a_probability_has_no_row(tmp_path: Path) -> None:
    by_method: dict[str, dict[str, Setting]] = {}
    for name, seeds in (("uniform", 5), ("per", 5), ("cer", 2)):
        folders = [tmp_path / f"{name}-{seed}" for seed in range(seeds)]
        for seed, folder in enumerate(folders):
            make_run(folder, name, seed, final=float(seed))
        (setting,) = make_settings([read_run(folder) for folder in folders])
        by_method[name] = {"CartPole-v1": setting}
    drawn = figures.improvement(by_method)
    assert drawn is not None
    at = drawn.axes[0]
    for labels in (at.get_xticklabels(), at.get_yticklabels()):
        assert [label.get_text() for label in labels] == ["uniform", "per"]
