"""Settings against baselines: differences, ratios, what is missing."""

import csv
from pathlib import Path

import pytest

from rlmem.analysis.compare.baselines import compare
from rlmem.analysis.compare.settings import make_settings
from rlmem.analysis.read.collection import collect
from rlmem.analysis.show.report import write_report
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
    assert difference.value == -10
    assert difference.low is not None
    assert difference.low < -10


def test_one_seed_gives_a_difference_without_interval(sweep: Path) -> None:
    make_run(sweep / "cer0", "cer", final=50)
    found = compare(make_settings(collect([sweep]).runs), AGAINST)
    difference = found[1].differences["return"]
    assert difference is not None
    assert (difference.value, difference.low) == (41, None)


def test_cpu_seconds_that_a_run_lacks_give_no_ratio(sweep: Path) -> None:
    make_run(sweep / "gwr3", "gwr", 3, memory_entries=10)
    (found,) = compare(make_settings(collect([sweep]).runs), AGAINST)
    assert str(found.ratios["cpu_seconds"]) == "nan"
    write_report([sweep], sweep / "report", against=AGAINST)
    assert "<td>-</td></tr>" in (sweep / "report/index.html").read_text()


def test_the_page_and_baselines_csv_say_it(sweep: Path) -> None:
    write_report([sweep], sweep / "report", against=AGAINST)
    with (sweep / "report/baselines.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["label"], row["baseline"], row["n"], row["n_baseline"]) == ("gwr", "per", "3", "3")
    assert (row["bytes_ratio"], row["cpu_seconds_ratio"]) == ("0.25", "2")
    assert float(row["return_difference_low95"]) < -10 < float(row["return_difference_high95"])
    assert row["last_training_difference"] == "-21"
    assert row["over_run_difference"] == "-5"  # their curves climb evenly
    page = (sweep / "report/index.html").read_text()
    assert "Against the baselines" in page
    assert "0.25 (-75 %)" in page
    assert "2 (+100 %)" in page


def test_without_baselines_there_is_no_section(sweep: Path) -> None:
    write_report([sweep], sweep / "report", against=AGAINST)
    write_report([sweep], sweep / "report")
    assert not (sweep / "report/baselines.csv").exists()
    assert "Against the baselines" not in (sweep / "report/index.html").read_text()
