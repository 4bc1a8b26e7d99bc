"""Effects of the two thresholds: the fitted surface, its intervals, what it says in words."""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from rlmem.analysis.compare.settings import Setting, make_settings
from rlmem.analysis.compare.thresholds import (
    Effect,
    complete_part,
    pair,
    rank_correlation,
    seconds_of,
    surface,
    threshold_effects,
    threshold_grids,
)
from rlmem.analysis.read.collection import collect
from rlmem.analysis.show.effects import words
from rlmem.analysis.show.heatmaps import heatmaps
from rlmem.analysis.show.report import write_report
from tests.analysis.helpers import make_run

FULL = [(a, h) for a in (0.68, 0.7, 0.83, 0.9) for h in (0.45, 0.65, 0.8, 0.85)]


def make_grid(
    folder: Path,
    entries: Callable[[float, float, int], float],
    pairs: list[tuple[float, float]] = FULL,
    seeds: int = 1,
    **summary: float,
) -> dict[str, list[Setting]]:
    """Runs of GWR whose entries are a function of both thresholds and the seed; their grids."""
    for a, h in pairs:
        for seed in range(seeds):
            config = {"threshold.activation": a, "threshold.habituation": h}
            held = round(entries(a, h, seed))
            make_run(
                folder / f"{a}-{h}-{seed}",
                "gwr",
                seed,
                final=100 + 7 * ((a * 1e3 + h * 1e4 + seed * 31) % 5),
                size=1000 * held,
                memory_entries=held,
                config=config,
                **summary,
            )
    return threshold_grids(make_settings(collect([folder]).runs))


def effects_of(grids: Mapping[str, list[Setting]], part: str = "all runs") -> dict[tuple, Effect]:
    ((label, grid),) = grids.items()
    (found,) = [e for e in threshold_effects("CartPole-v1", label, grid) if e.part == part]
    return {(effect.measure.name, effect.term): effect for effect in found.effects}


def bump(a: float, h: float, seed: int) -> float:
    """A small deviation that no surface fits."""
    return 200 * np.sin(1e4 * a + 1e3 * h + 100 * seed)


def test_the_surface_gives_back_its_coefficients() -> None:
    a, h = np.meshgrid(np.linspace(0, 1, 4), np.linspace(0, 1, 4))
    a, h = a.ravel(), h.ravel()
    found = surface(a, h, 5 + 2 * (a - 0.5) - 3 * (h - 0.5) + 4 * (a - 0.5) * (h - 0.5))
    assert found is not None
    assert [step.value for step in found] == pytest.approx([2, -3, 4])


def test_without_interaction_a_balanced_slope_has_the_interval_of_least_squares() -> None:
    rng = np.random.default_rng(0)
    a, h = np.repeat([0.0, 1.0], 10), np.tile([0.0, 1.0], 10)
    y = 3 * a + rng.normal(size=20)
    found = surface(a, h, y)
    assert found is not None
    x, z = a - a.mean(), h - h.mean()
    design = np.stack([np.ones(20), x, z, x * z], axis=1)
    beta = np.linalg.solve(design.T @ design, design.T @ y)
    rest = y - design @ beta
    error = np.sqrt(rest @ rest / 16 * np.linalg.inv(design.T @ design)[1, 1])
    low, high = stats.t.interval(0.95, 16, loc=beta[1], scale=error)
    assert found[0].low == pytest.approx(low, rel=1e-4)
    assert found[0].high == pytest.approx(high, rel=1e-4)


def test_intervals_hold_the_true_step_95_times_in_100() -> None:
    rng = np.random.default_rng(1)
    a, h = (values.ravel() for values in np.meshgrid(np.linspace(0, 1, 4), np.linspace(0, 1, 4)))
    held = 0
    for _ in range(1000):
        found = surface(a, h, 2 * a + rng.normal(size=16))
        assert found is not None
        assert found[0].low is not None
        assert found[0].high is not None
        held += found[0].low <= 2 <= found[0].high
    assert 930 <= held <= 970


def test_as_many_runs_as_coefficients_have_no_interval() -> None:
    a, h = np.array([0.0, 0, 1, 1]), np.array([0.0, 1, 0, 1])
    found = surface(a, h, np.array([1.0, 2, 3, 9]))
    assert found is not None
    assert found[0].value == pytest.approx(4.5)
    assert found[0].low is None


@pytest.mark.parametrize("h", [[0.0, 0, 1, 1, 1], [0.5] * 5, [0.0, 0, 1, 1, 0.999999999999]])
def test_thresholds_that_vary_together_are_not_told_apart(h: list[float]) -> None:
    assert surface(np.array([0.0, 0, 1, 1, 1]), np.array(h), np.arange(5.0)) is None


@pytest.mark.parametrize("count", [0, 1])
def test_there_is_no_rank_correlation_of_less_than_two_runs(count: int) -> None:
    assert np.isnan(rank_correlation(np.zeros(count), np.zeros(count)))


def test_a_grid_of_runs_too_short_for_a_curve_is_reported(tmp_path: Path) -> None:
    for k, activation in enumerate((0.5, 0.9, 0.5, 0.9)):
        config = {"threshold.activation": activation, "threshold.habituation": 0.1 + k // 2 / 2}
        make_run(tmp_path / f"sweep/{k}", "gwr", rows=1, config=config)
    write_report([tmp_path / "sweep"], tmp_path / "report")
    assert (tmp_path / "report/index.html").exists()


def test_rank_correlation_is_spearmans() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.integers(0, 4, 30).astype(float), rng.normal(size=30)
    assert rank_correlation(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert np.isnan(rank_correlation(x, np.ones(30)))


def test_the_largest_part_without_gaps_is_found() -> None:
    assert complete_part({*FULL, (0.3, 0.85), (0.5, 0.85)}) == set(FULL)
    assert complete_part({(0.3, 0.4), (0.5, 0.6)}) == set()


def test_what_is_shown_and_what_is_not_is_said_in_words(tmp_path: Path) -> None:
    grids = make_grid(tmp_path, lambda a, h, s: 1000 + 10_000 * (a - 0.68) + bump(a, h, s))
    effects = effects_of(grids)
    line = words(effects["entries", "a_T"])
    assert line.startswith("a higher a_T stores more: +")
    assert " % entries from 0.68 to 0.9 (95 % interval +" in line
    percent = effects["entries", "a_T"].percent
    assert percent is not None
    assert percent.value == pytest.approx(220, abs=40)  # 1,000 entries to 3,200
    assert words(effects["entries", "h_T"]).startswith("no clear effect of h_T: ")
    assert words(effects["entries", "a_T x h_T"]).startswith("no clear interaction: ")
    assert words(effects["bytes", "a_T"]).startswith("a higher a_T takes more bytes: +")


def test_a_threshold_that_lowers_is_said_to_lower(tmp_path: Path) -> None:
    grids = make_grid(tmp_path, lambda a, h, s: 5000 - 8000 * (h - 0.45) + bump(a, h, s))
    line = words(effects_of(grids)["entries", "h_T"])
    assert line.startswith("a higher h_T stores less: -")


def test_an_interaction_is_said(tmp_path: Path) -> None:
    grids = make_grid(tmp_path, lambda a, h, s: 2000 + 3e5 * (a - 0.78) * (h - 0.7) + bump(a, h, s))
    line = words(effects_of(grids)["entries", "a_T x h_T"])
    assert line.startswith(
        "from the lowest to the highest h_T, a_T's effect on the entries changes"
    )


def test_per_cent_of_nothing_is_not_said(tmp_path: Path) -> None:
    grids = make_grid(tmp_path, lambda a, h, s: 10 + 1e4 * (a - 0.68) ** 2)
    effect = effects_of(grids)["entries", "a_T"]
    assert effect.percent is None
    assert " entries from 0.68 to 0.9" in words(effect)


def test_four_runs_have_steps_without_intervals(tmp_path: Path) -> None:
    corners = [(0.68, 0.45), (0.68, 0.85), (0.9, 0.45), (0.9, 0.85)]
    grids = make_grid(tmp_path, lambda a, h, s: 1e4 * a, corners)
    line = words(effects_of(grids)["entries", "a_T"])
    assert line.startswith("no interval for the effect of a_T: +32.4 % entries")


def test_runs_that_do_not_tell_the_thresholds_apart_are_no_error(tmp_path: Path) -> None:
    grids = make_grid(tmp_path, lambda a, h, s: 1e4 * a, [(0.68, 0.45), (0.9, 0.85)])
    assert words(effects_of(grids)["entries", "a_T"]) == "the runs do not tell the thresholds apart"


def test_a_grid_with_gaps_is_also_fitted_without_them(tmp_path: Path) -> None:
    """Curvature along a_T with few runs at a low one looks like an interaction."""
    pairs = [*FULL, (0.3, 0.85), (0.5, 0.85)]
    grids = make_grid(tmp_path, lambda a, h, s: 500 * np.exp(6 * (a - 0.3)) + bump(a, h, s), pairs)
    assert effects_of(grids)["entries", "a_T x h_T"].shown
    part = effects_of(grids, "the part without gaps")
    assert not part["entries", "a_T x h_T"].shown
    assert part["entries", "a_T"].span == (0.68, 0.9)


def test_seconds_are_cpu_seconds_where_all_runs_have_them(tmp_path: Path) -> None:
    (grid,) = make_grid(tmp_path / "a", lambda a, h, s: 100, cpu_seconds=50.0).values()
    assert seconds_of(grid) == ("cpu_seconds", "CPU seconds")
    (tmp_path / "b").mkdir()
    (grid,) = make_grid(tmp_path / "b", lambda a, h, s: 100).values()
    assert seconds_of(grid) == ("wall_seconds", "wall seconds")
    grid[0].finished[0].summary["cpu_seconds"] = 3.0
    assert seconds_of(grid) == ("wall_seconds", "wall seconds")


def test_seconds_of_several_devices_are_no_effect_of_thresholds(tmp_path: Path) -> None:
    (grid,) = make_grid(tmp_path / "a", lambda a, h, s: 100, cpu_seconds=50.0, seeds=2).values()
    assert ("CPU seconds", "a_T") in effects_of({"gwr": grid})
    grid[0].finished[0].summary["device"] = "NVIDIA H200"
    assert seconds_of(grid) is None
    assert {name for name, _ in effects_of({"gwr": grid})}.isdisjoint(
        {"CPU seconds", "wall seconds"}
    )
    drawn = heatmaps(grid)
    assert drawn is not None
    assert [at.get_title().partition(",")[0] for at in drawn.axes] == [
        "return", "memory", "entries", "",
    ]  # fmt: skip


def test_the_heatmaps_say_their_seconds_and_how_many_runs_a_pair_has(tmp_path: Path) -> None:
    def titles(grid: list[Setting]) -> list[str]:
        drawn = heatmaps(grid)
        assert drawn is not None
        return [at.get_title() for at in drawn.axes]

    (grid,) = make_grid(tmp_path / "a", lambda a, h, s: 100, cpu_seconds=50.0).values()
    one = ["return", "memory", "entries", "CPU seconds"]
    assert titles(grid) == [f"{name}, n=1 run a pair" for name in one]
    (grid,) = make_grid(tmp_path / "b", lambda a, h, s: 100, seeds=3).values()
    assert titles(grid)[3] == "wall seconds, mean of n=3 runs"
    grid[0].finished.pop()
    assert titles(grid)[0] == "return, mean of n=2 to 3 runs"
    drawn = heatmaps(grid)
    assert drawn is not None
    texts = [text.get_text() for text in drawn.axes[0].texts]
    assert sum("n=2" in text for text in texts) == 1
    assert sum("n=3" in text for text in texts) == 15


def test_the_page_and_effects_csv_hold_the_same_lines(tmp_path: Path) -> None:
    make_grid(tmp_path / "sweep", lambda a, h, s: 1000 + 1e4 * (a - 0.68) + bump(a, h, s))
    report = write_report([tmp_path / "sweep"], tmp_path / "report")
    with (tmp_path / "report/effects.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 15
    page = (tmp_path / "report/index.html").read_text()
    assert "What the thresholds do" in page
    assert "n=1 run a pair: the intervals are made of the lack of fit" in page
    assert all(row["in_words"] in page for row in rows)
    (entries,) = [r for r in rows if (r["measure"], r["term"]) == ("entries", "a_T")]
    assert float(entries["effect_low95"]) < float(entries["effect"])
    assert float(entries["spearman"]) > 0.9
    assert len(report.effects) == 1


def test_an_older_effects_csv_goes_with_its_grid(tmp_path: Path) -> None:
    make_grid(tmp_path / "sweep", lambda a, h, s: 1000.0)
    write_report([tmp_path / "sweep"], tmp_path / "report")
    make_run(tmp_path / "other/a")
    write_report([tmp_path / "other"], tmp_path / "report")
    assert not (tmp_path / "report/effects.csv").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/effects.csv").touch()  # no report lies beside it
    write_report([tmp_path / "other"], tmp_path / "mine")
    assert (tmp_path / "mine/effects.csv").exists()


def test_per_cent_are_of_the_fitted_lowest_where_cells_have_unlike_numbers_of_runs(
    tmp_path: Path,
) -> None:
    def entries(a: float, h: float, _: int) -> float:
        return 1000 + 8000 * (a - 0.68) / 0.22 + 3000 * (a - 0.68) / 0.22 * (h - 0.45) / 0.4

    make_grid(tmp_path / "all", entries)
    make_grid(tmp_path / "more", entries, [(0.68, 0.85), (0.9, 0.45)], seeds=4)
    grids = threshold_grids(make_settings(collect([tmp_path]).runs))
    percent = effects_of(grids)["entries", "a_T"].percent
    assert percent is not None
    # 1,000 at a_T .68; at .9 it has 8,000 more and 3,000 by h_T, which is .25 / .4 of its span in
    # the mean over the 24 runs.
    settings = next(iter(grids.values()))
    pairs = [pair(setting) for setting in settings for _ in setting.finished]
    h_mean = (np.mean([h for _, h in pairs]) - 0.45) / 0.4
    assert len(pairs) == len(FULL) + 8
    assert percent.value == pytest.approx(100 * (8000 + 3000 * h_mean) / 1000, rel=0.01)


def test_of_equal_numbers_neither_step_nor_interval_is_what_rounding_leaves() -> None:
    a, h = (np.repeat([0.0, 1.0], 4), np.tile([0.0, 1.0], 4))
    found = surface(a, h, np.full(8, 1 / 3))
    assert found is not None
    assert [(step.value, step.low, step.high) for step in found] == [(0, 0, 0)] * 3


def test_a_run_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    def entries(a: float, h: float, seed: int) -> float:
        return 4000 * a + 1000 * h + bump(a, h, seed)

    once = effects_of(make_grid(tmp_path / "once", entries))
    make_grid(tmp_path / "twice/a", entries)
    twice = make_grid(tmp_path / "twice/b", lambda a, h, seed: entries(a, h, seed) + 1)
    settings = make_settings(collect([tmp_path / "twice"]).runs)
    grids = threshold_grids(settings)
    assert len(twice) == len(grids) == 1
    (found,) = list(threshold_effects("CartPole-v1", *next(iter(grids.items()))))
    assert found.runs == 16
    assert "of runs that have setting and seed in common one is counted" in found.notes
    for effect in found.effects:
        if effect.measure.name == "entries":
            step, alone = effect.step, once["entries", effect.term].step
            assert step is not None
            assert alone is not None
            assert step.value == pytest.approx(alone.value, abs=2)
