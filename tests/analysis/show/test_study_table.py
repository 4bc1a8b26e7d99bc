"""The settings of a study's table."""

from pathlib import Path

from rlmem.analysis.compare.settings import make_settings
from rlmem.analysis.compare.statistics import Estimate
from rlmem.analysis.read.runs import read_run
from rlmem.analysis.show.tables import readable, write_study_table
from tests.analysis.helpers import make_run


def test_what_a_sum_that_cancels_leaves_is_0() -> None:
    assert readable(Estimate(8.882e-16, -1.5, 1e-8, n=3)) == "0 [-1.5, 1e-08]"


def test_an_estimate_without_bounds_is_its_value() -> None:
    assert readable(Estimate(1234.5, None, None, n=1)) == "1,234"
    assert readable(None) == "missing"


def test_success_has_a_column_where_there_are_goals(tmp_path: Path) -> None:
    goals = make_run(tmp_path / "bits" / "her" / "seed0", "her", eval_success_rate=0.98)
    other = make_run(tmp_path / "pole" / "her" / "seed0", "her", env_id="Pole-v0")
    columns = {"bits": ("Bits", ["her", "per"]), "pole": ("Pole", ["her"])}
    for runs, width in (([goals, other], 11), ([other], 10)):
        settings = make_settings([read_run(run) for run in runs])
        write_study_table(settings, columns, {}, tmp_path / "table.md")
        lines = (tmp_path / "table.md").read_text().splitlines()
        rows = [line.strip("|").split("|") for line in lines if line.startswith("|")]
        assert {len(row) for row in rows} == {width}
        assert ("success" in lines[2]) == (width == 11)
        if width == 11:
            rates = [row[2].strip() for row in rows if row[0].strip() in ("her", "per")]
            assert rates == ["0.98", "missing", "-"]
