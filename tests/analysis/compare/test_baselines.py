"""Settings against baselines: differences, ratios, what is missing."""

import csv
import math
from pathlib import Path

import pytest

from rlmem.analysis.compare.baselines import above, compare
from rlmem.analysis.compare.settings import Setting, make_settings
from rlmem.analysis.compare.statistics import Estimate
from rlmem.analysis.read.collection import collect
from rlmem.analysis.show.report import StudyPage, write_report
from rlmem.analysis.show.sentences import finding, how_sure
from rlmem.analysis.show.tables import readable_difference
from tests.analysis.helpers import make_run

AGAINST = {"per": [], "gwr": ["per", "cer"]}


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two settings with three seeds each."""
    for seed in range(3):
        make_run(tmp_path / f"sweep/per{seed}", "per", seed, final=100 + seed, size=4000,
                 memory_entries=400, cpu_seconds=50.0)  # fmt: skip
        make_run(tmp_path / f"sweep/gwr{seed}", "gwr", seed, final=90 + seed, size=1000,
                 memory_entries=10, cpu_seconds=100.0, train_return_mean=80)  # fmt: skip
    return tmp_path / "sweep"


def test_a_setting_is_held_against_each_baseline_that_was_run(sweep: Path) -> None:
    (found,) = compare(make_settings(collect([sweep]).runs), AGAINST)
    assert (found.setting.label, found.baseline.label) == ("gwr", "per")
    assert [*found.ratios.values()] == [0.25, 0.025, 2.0]
    difference = found.differences["return"]
    assert difference is not None
    assert difference.seeds == (-10, -10, -10)
    assert difference.estimate == Estimate(-10, None, None, 3)


def test_cpu_seconds_of_several_devices_are_not_set_against_each_other(tmp_path: Path) -> None:
    """A summary without a device is of a CPU."""
    where = {"per": {"device": "cpu"}, "uniform": {}, "gwr": {"device": "a GPU"}}
    for name, device in where.items():
        make_run(tmp_path / f"sweep/{name}", name, cpu_seconds=50.0, **device)
    report = write_report([tmp_path / "sweep"], tmp_path / "report")
    same, other = compare(report.settings, {"per": ["uniform", "gwr"]})
    assert same.ratios["cpu_seconds"] == 1
    assert math.isnan(other.ratios["cpu_seconds"])
    assert other.ratios["bytes"] == 1
    assert any("devices: a GPU, cpu" in note for note in report.collection.notes)
    with (tmp_path / "report/results.csv").open() as file:
        devices = {row["label"]: row["device"] for row in csv.DictReader(file)}
    assert devices == {"per": "cpu", "uniform": "cpu", "gwr": "a GPU"}


def settings_of(folder: Path, **scores: dict[int, float]) -> list[Setting]:
    """Settings named by their memories, with a final return for each seed."""
    for memory, finals in scores.items():
        for seed, final in finals.items():
            make_run(folder / f"{memory}{seed}", memory, seed, final=final)
    return make_settings(collect([folder]).runs)


def test_the_same_seeds_are_paired(tmp_path: Path) -> None:
    """What the seed decides is large here, and the difference small: by seed it shows."""
    luck = [0.0, 100.0, 300.0, 50.0, 220.0]
    finals = dict(enumerate(luck))
    more = {seed: value + 10 + seed for seed, value in finals.items()}
    per, uniform = settings_of(tmp_path, per=more, uniform=finals)
    found = above(per, uniform, "eval_return_mean")
    assert found is not None
    assert found.seeds == (10, 11, 12, 13, 14)
    low, high = found.estimate.low, found.estimate.high
    assert low is not None
    assert high is not None
    assert 8 < low < 12 < high < 16


def test_seeds_stay_paired_where_one_run_has_lost_a_number(tmp_path: Path) -> None:
    """Over the run by the seeds that have both; the final returns by all."""
    luck = {seed: 100.0 * seed for seed in range(8)}
    settings_of(tmp_path, per={s: v + 10 for s, v in luck.items()}, uniform=luck)
    (tmp_path / "per0/metrics.csv").write_text("broken")
    per, uniform = make_settings(collect([tmp_path]).runs)
    (found,) = compare([per, uniform], {"per": ["uniform"]})
    assert found.paired
    counts = {kind: each and len(each.seeds) for kind, each in found.differences.items()}
    assert counts == {"return": 8, "last_training": 8, "over_run": 7}
    over = found.differences["over_run"]
    assert over is not None
    assert over.seeds == pytest.approx([5.0] * 7)


def test_a_sentence_names_the_difference_of_the_means_that_it_names(tmp_path: Path) -> None:
    """The first is above by one seed, which the second has lost; in all others it is below."""
    luck = {**{seed: 10.0 + seed for seed in range(4)}, 4: 1000.0}
    for seed, value in luck.items():
        make_run(tmp_path / f"a{seed}", "uniform", seed, final=value, rows=1)
        lost = {"eval_return_mean": None} if seed == 4 else {}
        make_run(tmp_path / f"b{seed}", "per", seed, final=value + 5, rows=1, **lost)
    settings = make_settings(collect([tmp_path]).runs)
    said = finding(settings, "eval_return_mean")
    assert said.endswith("Perhaps as good: per, lower by 193.")
    assert "not the same seeds" in how_sure(settings)


def test_scores_that_are_all_alike_have_no_interval(tmp_path: Path) -> None:
    one, other = dict.fromkeys(range(5), 500.0), dict.fromkeys(range(5, 10), 9.5)
    mine, base = settings_of(tmp_path, per=one, uniform=other)
    found = above(mine, base, "eval_return_mean")
    assert found is not None
    assert found.estimate == Estimate(490.5, None, None, 10)


def test_other_seeds_are_independent_samples(tmp_path: Path) -> None:
    one = {seed: 100.0 + 10 * seed for seed in range(5)}
    other = {seed + 1: value for seed, value in one.items()}
    mine, base = settings_of(tmp_path, per=one, uniform=other)
    found = above(mine, base, "eval_return_mean")
    assert found is not None
    assert not found.paired
    assert found.estimate.low is not None
    assert found.estimate.low < 0


def test_runs_of_another_program_are_not_paired_with_ours(tmp_path: Path) -> None:
    """The number of its seed decides nothing that ours decides."""
    for seed in range(3):
        make_run(tmp_path / f"runs/{seed}", seed=seed)
    rows = [f"{step},{step},100,{seed},SB3" for seed in range(3) for step in (1000, 20_000)]
    (tmp_path / "sb3.csv").write_text("\n".join(["env_steps,return,bytes,seed,label", *rows]))
    ours, theirs = make_settings(collect([tmp_path / "runs"], [tmp_path / "sb3.csv"]).runs)
    found = above(ours, theirs, ours.metric)
    assert found is not None
    assert not found.paired


def test_runs_that_are_alike_differ_by_0_without_an_interval(tmp_path: Path) -> None:
    finals = {seed: 7.0 * seed for seed in range(6)}
    mine, base = settings_of(tmp_path, per=finals, uniform=finals)
    found = above(mine, base, "eval_return_mean")
    assert found is not None
    assert found.estimate == Estimate(0, None, None, 6)
    assert readable_difference(found) == "0, the same in each seed"


def test_an_interval_ends_at_what_runs_reached(tmp_path: Path) -> None:
    """Four runs of five are at the best possible score."""
    finals = {0: 100.0} | dict.fromkeys(range(1, 5), 500.0)
    (per,) = settings_of(tmp_path, per=finals)
    assert per.return_mean is not None
    assert per.return_mean.high == 500


def test_one_seed_gives_a_difference_without_interval(sweep: Path) -> None:
    make_run(sweep / "cer0", "cer", final=50)
    found = compare(make_settings(collect([sweep]).runs), AGAINST)
    difference = found[1].differences["return"]
    assert difference is not None
    assert not difference.paired
    assert (difference.estimate.value, difference.estimate.low) == (41, None)


def test_cpu_seconds_that_a_run_lacks_give_no_ratio(sweep: Path) -> None:
    make_run(sweep / "gwr3", "gwr", 3, memory_entries=10)
    (found,) = compare(make_settings(collect([sweep]).runs), AGAINST)
    assert str(found.ratios["cpu_seconds"]) == "nan"
    write_report([sweep], sweep / "report", study=StudyPage(against=AGAINST))
    assert "<td>-</td></tr>" in (sweep / "report/index.html").read_text()


def test_the_page_and_baselines_csv_say_it(sweep: Path) -> None:
    write_report([sweep], sweep / "report", study=StudyPage(against=AGAINST))
    with (sweep / "report/baselines.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["label"], row["baseline"], row["n"], row["n_baseline"]) == ("gwr", "per", "3", "3")
    assert (row["bytes_ratio"], row["cpu_seconds_ratio"]) == ("0.25", "2")
    assert (row["return_difference"], row["return_difference_low95"]) == ("-10", "")
    assert row["paired"] == "True"
    assert row["last_training_difference"] == "-21"
    assert row["over_run_difference"] == "-5"  # their curves climb evenly
    page = (sweep / "report/index.html").read_text()
    assert "Against the baselines" in page
    assert "3, paired" in page
    assert "-10, the same in each seed" in page
    assert "0.25 (-75 %)" in page
    assert "2 (+100 %)" in page


def test_without_baselines_there_is_no_section(sweep: Path) -> None:
    write_report([sweep], sweep / "report", study=StudyPage(against=AGAINST))
    write_report([sweep], sweep / "report")
    assert not (sweep / "report/baselines.csv").exists()
    assert "Against the baselines" not in (sweep / "report/index.html").read_text()
