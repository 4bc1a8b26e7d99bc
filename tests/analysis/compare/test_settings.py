"""Which runs belong together, and what a setting is called."""

from pathlib import Path

import numpy as np
import pytest

from rlmem.analysis.compare.baselines import above
from rlmem.analysis.compare.settings import Setting, make_settings
from rlmem.analysis.read.collection import collect
from rlmem.analysis.show.figures import curves, in_colour, return_against_bytes
from rlmem.analysis.show.sentences import finding, how_sure
from tests.analysis.helpers import make_run


def settings_of(folder: Path) -> list[Setting]:
    return make_settings(collect([folder]).runs)


def labels_of(folder: Path) -> list[tuple[str, int]]:
    return [(setting.label, len(setting.runs)) for setting in settings_of(folder)]


def test_seeds_of_a_setting_are_one_cell(tmp_path: Path) -> None:
    for seed in range(3):
        for memory in ("uniform", "per"):
            config = {"log.every": seed, "trainer.rounds": 1 + seed}
            make_run(tmp_path / f"{memory}{seed}", memory, seed, config=config)
    assert labels_of(tmp_path) == [("per", 3), ("uniform", 3)]


def test_runs_that_are_scored_by_other_rules_are_no_seeds_of_one_cell(tmp_path: Path) -> None:
    for seed, epsilon in enumerate((0.0, 0.5, 0.0)):
        config = {"evaluation.epsilon": epsilon, "evaluation.episodes": 10 + seed}
        make_run(tmp_path / str(seed), seed=seed, config=config)
    assert labels_of(tmp_path) == [
        ("uniform, evaluation epsilon 0", 2),
        ("uniform, evaluation epsilon 0.5", 1),
    ]


def test_a_run_from_before_a_key_was_added_is_in_the_cell_of_the_others(tmp_path: Path) -> None:
    make_run(tmp_path / "older", seed=0)
    for seed in (1, 2):
        added = {"agent.added": 3, "memory.sampler.added": "x", "log.added": seed}
        make_run(tmp_path / str(seed), seed=seed, config=added)
    (setting,) = make_settings(collect([tmp_path]).runs)
    assert ([run.seed for run in setting.runs], setting.label) == ([0, 1, 2], "uniform")


def test_a_curve_of_one_point_has_no_return_over_the_run(tmp_path: Path) -> None:
    (setting,) = make_settings(collect([make_run(tmp_path / "run", rows=1)]).runs)
    assert setting.return_over_run is None


def test_what_varies_names_the_cells(tmp_path: Path) -> None:
    for lr in (0.1, 0.01):
        make_run(tmp_path / f"{lr}", config={"agent.lr": lr})
    assert labels_of(tmp_path) == [("uniform, lr 0.01", 1), ("uniform, lr 0.1", 1)]


def test_thresholds_are_a_setting_of_maps_only(tmp_path: Path) -> None:
    for activation in (0.7, 0.9):
        for memory in ("gwr", "per"):
            config = {"threshold.activation": activation}
            seed = int(10 * activation)
            make_run(tmp_path / f"{memory}{activation}", memory, seed, config=config)
    found = [("gwr, activation 0.7", 1), ("gwr, activation 0.9", 1), ("per", 2)]
    assert labels_of(tmp_path) == found


def test_an_agent_comes_first_and_says_what_follows_from_it(tmp_path: Path) -> None:
    for agent, size, rate in (("dqn", 64, 0.1), ("dqn", 64, 0.2), ("pqn", 128, 0.1)):
        config = {"agent.name": agent, "agent.batch_size": size, "agent.lr": rate}
        make_run(tmp_path / f"{agent}{rate}", config=config)
    assert sorted(label for label, _ in labels_of(tmp_path)) == [
        "uniform, agent dqn, lr 0.1",
        "uniform, agent dqn, lr 0.2",
        "uniform, agent pqn, lr 0.1",
    ]


def test_keys_that_one_memory_has_are_said_by_its_name(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "per", config={"memory.sampler.alpha": 0.6})
    make_run(tmp_path / "b", "uniform")
    make_run(tmp_path / "c", "cer", config={"agent.lr": 0.5})
    assert labels_of(tmp_path) == [
        ("cer, lr 0.5", 1),
        ("per, lr 0.001", 1),
        ("uniform, lr 0.001", 1),
    ]


def test_budgets_and_storages_tell_memories_apart_in_the_order_of_their_size(
    tmp_path: Path,
) -> None:
    for budget in ("16MiB", "1MiB", "4MiB"):
        make_run(tmp_path / budget, config={"memory.budget": budget})
    make_run(tmp_path / "c", "per", config={"memory.storage.kind": "compressed"})
    labels = [label for label, _ in labels_of(tmp_path)]
    assert labels == [
        "per, budget none, storage compressed",
        "uniform, budget 1 MiB, storage frames",
        "uniform, budget 4 MiB, storage frames",
        "uniform, budget 16 MiB, storage frames",
    ]


@pytest.mark.parametrize("budget", [-1, 10**19, 10**400])
def test_a_budget_that_no_run_has_is_told_as_it_is(tmp_path: Path, budget: int) -> None:
    for name, given in (("a", budget), ("b", "1MiB")):
        make_run(tmp_path / name, config={"memory.budget": given})
    (other,) = {label for label, _ in labels_of(tmp_path)} - {"uniform, budget 1 MiB"}
    assert other.startswith(f"uniform, budget {budget:,} B"[:50])
    assert len(other) < 60


def test_a_label_makes_runs_one_cell_whatever_else_differs(tmp_path: Path) -> None:
    for seed in range(2):
        make_run(
            tmp_path / f"{seed}", seed=seed, config={"label": "mine", "memory.budget": 100 + seed}
        )
    assert labels_of(tmp_path) == [("mine", 2)]


def test_environments_are_apart(tmp_path: Path) -> None:
    make_run(tmp_path / "a", env_id="A", config={"agent.lr": 1.0})
    make_run(tmp_path / "b", env_id="B", config={"agent.lr": 2.0})
    assert [(c.env_id, c.label) for c in settings_of(tmp_path)] == [
        ("A", "uniform"),
        ("B", "uniform"),
    ]


def test_only_finished_runs_count(tmp_path: Path) -> None:
    for seed, status in enumerate(["finished", "finished", "failed", "no summary"]):
        make_run(tmp_path / f"{seed}", seed=seed, status=status, final=10.0 * (seed + 1))
    (setting,) = settings_of(tmp_path)
    assert setting.returns.tolist() == [10, 20]
    assert setting.return_mean is not None
    assert setting.return_mean.value == 15
    assert setting.mean("memory_bytes_peak") == 1000


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    (setting,) = settings_of(make_run(tmp_path / "a").parent)
    assert setting.return_mean is not None
    assert (setting.return_mean.low, setting.return_mean.high) == (None, None)
    _, value, low, _ = setting.curve("train_return_mean")
    assert value[-1] == pytest.approx(100)
    assert np.isnan(low).all()


def test_a_curve_spans_what_all_its_finished_runs_have(tmp_path: Path) -> None:
    """No step where one of them ends."""
    steps = {"trainer.max_env_steps": 20_000}
    make_run(tmp_path / "a", rows=20, final=100, config=steps)
    make_run(tmp_path / "b", seed=1, rows=10, final=100, config=steps)
    make_run(tmp_path / "c", seed=2, rows=2, status="no summary", config=steps)
    (setting,) = settings_of(tmp_path)
    x, value, low, _ = setting.curve("train_return_mean")
    assert x[[0, -1]].tolist() == [1000, 10_000]
    assert value[-1] == pytest.approx((100 + 100 * 9 / 19) / 2)
    assert np.isnan(low).all()  # of two curves


def test_the_return_over_the_run_is_compared_where_all_runs_have_it(tmp_path: Path) -> None:
    """One run that has its curve does not speak for two that lost theirs."""
    for seed, final in enumerate([100.0, 10.0, 10.0]):
        run = make_run(tmp_path / f"uniform{seed}", seed=seed, final=final)
        if seed:
            (run / "metrics.csv").unlink()
        make_run(tmp_path / f"per{seed}", "per", seed, final=60.0)
    settings = settings_of(tmp_path)
    assert {setting.compares for setting in settings} == {"eval_return_mean"}
    assert finding(settings).startswith("On CartPole-v1, per returned most in the final")
    assert how_sure(settings).startswith("3 seeds a setting, paired by seed")


def test_one_measure_counts_for_all_cells_of_an_environment(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "per", final=7)
    make_run(tmp_path / "b", "uniform", final=5, eval_return_mean=None)
    assert {setting.metric for setting in settings_of(tmp_path)} == {"train_return_mean"}
    assert [setting.returns.tolist() for setting in settings_of(tmp_path)] == [[7], [5]]


def test_callbacks_make_another_setting(tmp_path: Path) -> None:
    make_run(tmp_path / "older")
    make_run(tmp_path / "none", seed=1, config={"callbacks": {}})
    make_run(tmp_path / "mine", seed=2, config={"callbacks": {"mine": {}}})
    make_run(tmp_path / "other", seed=3, config={"callbacks": {"other": {"every": 5}}})
    assert labels_of(tmp_path) == [
        ("uniform, callbacks none", 2),
        ("uniform, callbacks mine", 1),
        ("uniform, callbacks other", 1),
    ]


def test_one_value_written_in_two_ways_is_one_setting(tmp_path: Path) -> None:
    for seed, (budget, gamma) in enumerate((("1MiB", 1), (2**20, 1.0), ("1024KiB", 1.0))):
        config = {"memory.budget": budget, "agent.gamma": gamma}
        make_run(tmp_path / str(seed), seed=seed, config=config)
    make_run(tmp_path / "none", config={"memory.budget": None, "agent.gamma": 1})
    assert labels_of(tmp_path) == [("uniform, budget 1 MiB", 3), ("uniform, budget none", 1)]


def test_a_seed_that_is_there_twice_is_one_seed_and_gives_no_interval(tmp_path: Path) -> None:
    for memory, final in (("uniform", 100), ("per", 120)):
        for k in range(10):
            make_run(tmp_path / f"{memory}{k}", memory, k // 2, final=final + k // 2)
    settings = settings_of(tmp_path)
    assert how_sure(settings) == "5 seeds a setting, some more than once, which gives no interval."
    assert [s.return_mean and s.return_mean.low for s in settings] == [None, None]
    found = above(*settings, settings[0].compares)
    assert found is not None
    assert (found.estimate.low, found.paired) == (None, False)


def test_runs_that_ended_without_a_return_have_ended(tmp_path: Path) -> None:
    settings = settings_of(make_run(tmp_path / "a", eval_return_mean=None, rows=0).parent)
    assert finding(settings, "eval_return_mean") == "No run of CartPole-v1 has a return."


def test_labels_are_unique_in_an_environment(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "uniform")
    make_run(tmp_path / "b", "gwr", config={"label": "uniform"})
    labels = [setting.label for setting in settings_of(tmp_path)]
    assert len(set(labels)) == 2


def test_an_outsider_with_a_memorys_name_changes_no_label_of_ours(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "uniform")
    make_run(tmp_path / "b", "per")
    (tmp_path / "x.csv").write_text("env_steps,return,bytes,seed,label\n1000,5,10,0,uniform\n")
    settings = make_settings(collect([tmp_path], [tmp_path / "x.csv"]).runs)
    assert [setting.label for setting in settings] == ["per", "uniform", "uniform (x.csv)"]


def test_an_environment_with_other_arguments_is_another_one(tmp_path: Path) -> None:
    for bits in (15, 5):
        env = {"name": "bit_flip", "kwargs": {"bits": bits}}
        make_run(tmp_path / f"r{bits}", "her", 0, config={"env": env, "label": "HER"})
    settings = make_settings(collect([tmp_path]).runs)
    assert [setting.env_id for setting in settings] == [
        "CartPole-v1, bits=5",
        "CartPole-v1, bits=15",
    ]


def test_points_of_one_memory_share_a_colour_and_differ_in_their_marks(tmp_path: Path) -> None:
    for name, memory, size in (("a", "gwr", 1000), ("b", "gwr", 2000), ("c", "uniform", 3000)):
        make_run(tmp_path / name, memory, size=size, config={"agent.lr": size})
    drawn = return_against_bytes(settings_of(tmp_path), "eval_return_mean")
    assert drawn is not None
    points = {
        line.get_xdata()[0]: (line.get_color(), line.get_marker())
        for line in (container.lines[0] for container in drawn.axes[0].containers)
    }
    assert points[1000][0] == points[2000][0] != points[3000][0]
    assert points[1000][1] != points[2000][1]


def test_returns_are_compared_over_the_run_where_all_settings_have_it(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "gwr", final=8.0)
    make_run(tmp_path / "b", "per", final=8.0)
    found = settings_of(tmp_path)
    assert {setting.compares for setting in found} == {"return_over_run"}
    (tmp_path / "a/metrics.csv").unlink()
    assert {setting.compares for setting in settings_of(tmp_path)} == {"eval_return_mean"}


@pytest.mark.parametrize("seeds", [1, 2, 4, 5])
def test_below_five_seeds_the_seeds_are_drawn_and_no_interval(tmp_path: Path, seeds: int) -> None:
    for seed in range(seeds):
        make_run(tmp_path / str(seed), seed=seed, final=8.0 + seed)
    of_bytes = return_against_bytes(settings_of(tmp_path), "eval_return_mean")
    over_steps = curves(settings_of(tmp_path))
    assert of_bytes is not None
    assert over_steps is not None
    few = 1 < seeds < 5
    last, at = of_bytes.axes[0], over_steps.axes[0]
    own = [line for line in last.lines if str(line.get_gid()).startswith("c0-seeds")]
    assert [list(line.get_ydata()) for line in own] == [list(8.0 + np.arange(seeds))] * few
    assert last.containers[0].has_yerr == (seeds == 5)
    thin = [line for line in at.lines if "seed" in str(line.get_gid())]
    assert len(thin) == (seeds if seeds < 5 else 0)
    assert bool(at.collections) == (seeds == 5)


@pytest.mark.parametrize("seeds", [2, 4, 5])
def test_an_interval_of_few_seeds_is_written_nowhere(tmp_path: Path, seeds: int) -> None:
    """Cut at the lowest and the highest run, one of three holds the mean 74 times in 100."""
    for seed in range(seeds):
        make_run(tmp_path / str(seed), seed=seed, final=8.0 + seed)
    (setting,) = settings_of(tmp_path)
    for estimate in (setting.return_mean, setting.return_iqm, setting.return_over_run):
        assert estimate is not None
        assert (estimate.n, estimate.low is None) == (seeds, seeds < 5)


def test_where_a_run_keeps_its_frames_makes_no_setting(tmp_path: Path) -> None:
    for seed in range(2):
        own = {"memory.storage.directory": f"/scratch/{seed}", "plugins": [f"p{seed}"]}
        make_run(tmp_path / str(seed), seed=seed, config=own)
    assert labels_of(tmp_path) == [("uniform", 2)]


def test_a_label_has_one_colour_in_all_environments(tmp_path: Path) -> None:
    for env_id, memories in (("A", ("per", "uniform")), ("B", ("gwr", "uniform"))):
        for memory in memories:
            make_run(tmp_path / env_id / memory, memory, env_id=env_id)
    colours = {(s.env_id, s.label): s.colour for s in settings_of(tmp_path)}
    assert colours["A", "uniform"] == colours["B", "uniform"]
    assert len(set(colours.values())) == 3


def test_of_more_than_eight_settings_the_marked_and_the_best_are_in_colour(tmp_path: Path) -> None:
    for k in range(12):
        config = {"agent.lr": 0.1 * (k + 1)}
        make_run(tmp_path / str(k), final=float(k), size=1000 * (12 - k), config=config)
    settings = settings_of(tmp_path)
    worst = min(settings, key=lambda setting: setting.mean("eval_return_mean"))
    chosen = in_colour(settings, [worst.label])
    assert len(chosen) == 8
    assert worst in chosen
    assert max(settings, key=lambda setting: setting.mean("eval_return_mean")) in chosen


def test_without_any_curve_there_is_no_figure_of_curves(tmp_path: Path) -> None:
    (make_run(tmp_path / "a") / "metrics.csv").unlink()
    found = collect([tmp_path])
    assert curves(make_settings(found.runs)) is None
    assert found.notes == ["no curves and times of 1 run: their metrics.csv has no row"]
