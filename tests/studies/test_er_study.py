"""A regression over runs: simulated runs whose answer is known, and what cannot be fitted."""

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlmem.analysis.compare.settings import make_settings
from rlmem.analysis.read.collection import collect
from rlmem.analysis.show.report import StudyPage, write_report
from rlmem.runs.study_code import load_code
from tests.analysis.helpers import make_run

code: Any = load_code(Path(__file__).parents[2] / "studies/er_study")
ALL, WITHIN = code.regression.ALL, code.regression.WITHIN
Fit, Regression = code.regression.Fit, code.regression.Regression
coefficients, mixed_model = code.regression.coefficients, code.regression.mixed_model
regress, scaled, words = code.regress, code.regression.scaled, code.page.words

OF = "correlation_count", "td_error_mean"
SPEC = "train_return_mean", OF
ENVS = "Env-v0", "Env-v1"
FITS = [ALL, WITHIN, *(env + part for env in ENVS for part in ("", f", {WITHIN}"))]


@pytest.fixture(autouse=True)
def fewer_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the test that counts them are content with 400."""
    monkeypatch.setattr(code.regression, "RESAMPLES", 400)


def add_run(
    folder: Path, env_id: str, memory: str, seed: int, outcome: float, *figures: float
) -> None:
    """A run whose rows have these figures on average; one row has none, as before learning."""
    path = make_run(
        folder / env_id / memory / str(seed),
        memory,
        seed,
        env_id=env_id,
        train_return_mean=float(outcome),
    )
    first, second = figures
    rows = ["100,,", f"200,{first - 1},{second + 2}", f"300,{first + 1},{second - 2}"]
    (path / "metrics.csv").write_text("\n".join([f"env_steps,{','.join(OF)}", *rows]) + "\n")


def simulate(
    folder: Path,
    effects: tuple[float, float],
    *,
    environments: int = 2,
    seeds: int = 12,
    noise: float = 0.5,
    shift: float = 0.5,
    confounded: bool = False,
) -> Path:
    """Runs of four memories: outcome = effects . figures + setting + noise, each environment in
    units of its own. A confounded setting's intercept follows its mean of the first figure."""
    rng = np.random.default_rng(0)
    for env in range(environments):
        for memory in ("none", "uniform", "per", "cer"):
            mean = rng.normal(size=2)
            intercept = 2 * mean[0] if confounded else rng.normal(0, shift)
            for seed in range(seeds):
                figures = mean + rng.normal(size=2)
                outcome = figures @ effects + intercept + rng.normal(0, noise)
                unit = 10.0 ** (2 * env)
                add_run(
                    folder,
                    f"Env-v{env}",
                    memory,
                    seed,
                    unit * outcome - 50,
                    1000 + 30 * unit * figures[0],
                    5 + unit * figures[1],
                )
    return folder


def found(folder: Path) -> Regression:
    return regress(make_settings(collect([folder]).runs), *SPEC)


def fit_of(regression: Regression, name: str) -> Fit:
    (fit,) = (fit for fit in regression.fits if fit.name == name)
    return fit


def holds(fit: Fit, term: str, value: float) -> bool:
    low, high = getattr(fit, term).low, getattr(fit, term).high
    return low <= value <= high


def test_the_figure_that_makes_the_outcome_is_found(tmp_path: Path) -> None:
    regression = found(simulate(tmp_path, (-1.0, 0.1)))
    assert [fit.name for fit in regression.fits] == FITS
    assert [(fit.runs, fit.settings) for fit in regression.fits] == [
        *[(96, 8)] * 2,
        *[(48, 4)] * 4,
    ]
    assert regression.notes == []
    for fit in regression.fits:
        assert fit.first.value < -0.5
        assert fit.difference.low is not None
        assert fit.difference.low > 0
        said = words(fit, OF, "train_return_mean")
        assert said.startswith("correlation_count goes with train_return_mean more closely than td")


def test_the_coefficients_are_in_deviations(tmp_path: Path) -> None:
    """Of independent figures without settings: b = effect / deviation of the outcome."""
    regression = found(simulate(tmp_path, (0.6, -0.6), noise=0.3, shift=0.0, seeds=30))
    runs = np.array([row.values for row in regression.rows if row.setting.env_id == "Env-v0"])
    first, second = (
        effect * runs[:, k].std(ddof=1) / unit / runs[:, 0].std(ddof=1)
        for effect, k, unit in ((0.6, 1, 30.0), (-0.6, 2, 1.0))
    )
    fit = fit_of(regression, "Env-v0")
    assert holds(fit, "first", first)
    assert holds(fit, "second", second)


def test_equal_figures_are_not_told_apart(tmp_path: Path) -> None:
    regression = found(simulate(tmp_path, (0.5, -0.5)))
    fit = fit_of(regression, ALL)
    assert holds(fit, "difference", 0.0)
    assert words(fit, OF, "x") == "both go with x about as closely"


def test_the_other_figure_can_be_the_closer_one(tmp_path: Path) -> None:
    fit = fit_of(found(simulate(tmp_path, (0.1, 1.0), environments=1)), ALL)
    assert fit.difference.high is not None
    assert fit.difference.high < 0
    assert (
        words(fit, OF, "x") == "td_error_mean goes with x more closely than correlation_count does"
    )


def test_what_lies_between_memories_only_is_gone_within_them(tmp_path: Path) -> None:
    regression = found(simulate(tmp_path, (0.0, 0.0), confounded=True, seeds=20))
    values = np.array([row.values for row in regression.rows])
    env = np.array([row.setting.env_id == "Env-v1" for row in regression.rows]).astype(int)
    pooled = coefficients(scaled(values, env), np.zeros(len(values), int), 0.0)
    assert pooled[0] > 0.4
    assert holds(fit_of(regression, WITHIN), "first", 0.0)


def test_an_outcome_that_is_the_same_everywhere_is_left_out(tmp_path: Path) -> None:
    simulate(tmp_path, (1.0, 0.0), environments=1)
    for memory in ("none", "uniform", "per"):
        for seed in range(4):
            add_run(tmp_path, "MountainCar-v0", memory, seed, -200, seed, 2 * seed)
    regression = found(tmp_path)
    assert regression.notes == [
        "MountainCar-v0: train_return_mean is the same in all runs, which tells nothing"
    ]
    assert [(fit.name, fit.runs) for fit in regression.fits] == [(ALL, 48), (WITHIN, 48)]


def test_too_few_runs_give_no_fit_and_say_so(tmp_path: Path) -> None:
    simulate(tmp_path / "runs", (1.0, 0.0), environments=1, seeds=2)
    assert found(tmp_path / "runs").fits == []
    write_report([tmp_path / "runs"], tmp_path / "out", study=StudyPage(more=code.section))
    assert not (tmp_path / "out/regression.csv").exists()
    assert (tmp_path / "out/figures/regression.png").exists()
    page = (tmp_path / "out/index.html").read_text()
    assert "8 runs of 4 settings are too few for a fit" in page


def test_runs_without_the_columns_are_counted(tmp_path: Path) -> None:
    simulate(tmp_path, (1.0, 0.0), environments=1)
    make_run(tmp_path / "old", "none", 99, env_id="Env-v0")
    regression = found(tmp_path)
    assert regression.notes == [
        "1 of 49 runs lack train_return_mean, correlation_count or td_error_mean"
    ]
    assert len(regression.rows) == 48


@pytest.mark.parametrize("spread", [1.0, 0.0])
def test_the_bootstraps_model_is_the_mixed_one(spread: float) -> None:
    from statsmodels.regression.mixed_linear_model import MixedLM

    rng = np.random.default_rng(2)
    setting = np.repeat(np.arange(6), [3, 8, 12, 5, 9, 20])
    table = rng.normal(size=(len(setting), 3)) + spread * rng.normal(size=(6, 3))[setting]
    intervals, ratio = mixed_model(table, setting)
    assert (ratio > 0.1) == (spread > 0)
    ours = coefficients(table, setting, ratio)
    assert ((intervals[:, 0] < ours) & (ours < intervals[:, 1])).all()
    if spread:
        design = np.column_stack([np.ones(len(table)), table[:, 1:]])
        theirs = MixedLM(table[:, 0], design, setting).fit(reml=True).fe_params
        assert ours == pytest.approx(theirs[1:], abs=1e-6)


def test_fixed_intercepts_are_the_limit_of_random_ones() -> None:
    rng = np.random.default_rng(3)
    setting = np.repeat(np.arange(4), 10)
    table = rng.normal(size=(40, 3)) + rng.normal(size=(4, 3))[setting]
    design = np.column_stack([table[:, 1:], np.eye(4)[setting]])
    dummies = np.linalg.lstsq(design, table[:, 0])[0][:2]
    assert coefficients(table, setting, np.inf) == pytest.approx(dummies)
    assert coefficients(table, setting, 1e9) == pytest.approx(dummies, abs=1e-6)


def test_the_report_has_the_section_the_figure_and_the_file(tmp_path: Path) -> None:
    simulate(tmp_path / "runs", (-1.0, 0.1))
    write_report([tmp_path / "runs"], tmp_path / "out", study=StudyPage(more=code.section))
    with (tmp_path / "out/regression.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["fit"] for row in rows[::3]] == FITS
    terms = [row["term"] for row in rows[:3]]
    assert terms == [*OF, "|correlation_count| - |td_error_mean|"]
    assert float(rows[2]["coefficient_low95"]) < float(rows[2]["coefficient"])
    assert float(rows[2]["coefficient"]) < float(rows[2]["coefficient_high95"])
    assert rows[2]["in_words"].startswith("correlation_count goes with")
    page = (tmp_path / "out/index.html").read_text()
    assert "correlation_count or td_error_mean: which goes with train_return_mean?" in page
    assert "Nobody set either figure" in page
    (drawn,) = re.findall('<figure id="regression">.*?</figure>', page, re.DOTALL)
    assert 'data-setting="0"' in drawn  # the page fades a setting's points as it fades its curves
    write_report([tmp_path / "runs"], tmp_path / "out")
    assert not (tmp_path / "out/regression.csv").exists()
    assert not (tmp_path / "out/figures/regression.png").exists()


def test_the_same_runs_give_the_same_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code.regression, "RESAMPLES", 2000)  # as many as the study has
    simulate(tmp_path, (0.5, 0.2), environments=1)
    assert found(tmp_path).fits == found(tmp_path).fits
