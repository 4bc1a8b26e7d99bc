"""What the regression says: in words, as a section of the page, as regression.csv, as a figure."""

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from rlmem.analysis.compare.statistics import Estimate
from rlmem.analysis.show.panels import identity, short
from rlmem.analysis.show.section import Section
from rlmem.analysis.show.tables import interval
from rlmem.drawing import STYLE, figure
from rlmem.units import number

from .regression import Fit, Regression

CAVEATS = (
    "Nobody set either figure: they came with the memory and with how well the run went. A "
    "coefficient says what goes together, not what would change if one of them were changed.",
    "Memories differ in both figures at once, and in more than these. Where settings are few, the "
    "line over all environments rests on few memories; the lines within settings ask of runs "
    "of one memory only.",
    "Both are of the minibatches that each memory drew: prioritized replay draws large TD errors, "
    "and without replay neighbouring states come together.",
    "The TD error's size depends on the values, and so on the returns: a network that has learned "
    "to score more has larger values to be wrong about.",
    "The intervals of the coefficients take the runs as independent and the model as true; that of "
    "the difference takes these memories and environments as given.",
)


def words(fit: Fit, of: tuple[str, str], outcome: str) -> str:
    """What a fit says, in one line."""
    low, high = fit.difference.low, fit.difference.high
    assert low is not None
    assert high is not None
    if low <= 0 <= high:
        return f"both go with {outcome} about as closely"
    closer, other = of if low > 0 else of[::-1]
    return f"{closer} goes with {outcome} more closely than {other} does"


def regression_section(found: Regression) -> Section:
    """The section, with its figure if there is a run and its file if there is a fit."""
    first, second = found.of
    section = Section(f"{first} or {second}: which goes with {found.outcome}?")
    section.remarks = [*found.notes, *(CAVEATS if found.fits else ())]
    if drawn := scatter(found):
        section.figures["regression"] = ("Each run's result over its minibatches' figures", drawn)
    if found.fits:
        section.text = (
            f"Deviations of {found.outcome} for one deviation of each, over runs, [95 %]."
        )
        section.table = pd.DataFrame([_row(fit, found) for fit in found.fits])
        section.words = ("fit", "in words")
        section.files["regression"] = regression_table(found)
    return section


def _row(fit: Fit, found: Regression) -> dict[str, str]:
    first, second = found.of
    return {
        "fit": fit.name,
        "runs": str(fit.runs),
        "settings": str(fit.settings),
        first: _readable(fit.first),
        second: _readable(fit.second),
        "difference of sizes": _readable(fit.difference),
        "in words": words(fit, found.of, found.outcome),
    }


def _readable(e: Estimate) -> str:
    parts = (e.value, e.low, e.high)
    value, low, high = ("-" if x is None else number(x, "{:+.2f}") for x in parts)
    return f"{value} [{low}, {high}]"


def regression_table(found: Regression) -> pd.DataFrame:
    """A row for each fit and term."""
    first, second = found.of
    rows = []
    for fit in found.fits:
        difference = f"|{first}| - |{second}|"
        terms = {first: fit.first, second: fit.second, difference: fit.difference}
        for term, estimate in terms.items():
            said = words(fit, found.of, found.outcome) if term == difference else ""
            row = {"fit": fit.name, "term": term, "n": fit.runs, "settings": fit.settings}
            rows.append(row | interval("coefficient", estimate) | {"in_words": said})
    return pd.DataFrame(rows)


@rc_context(STYLE)
def scatter(found: Regression) -> Figure | None:
    """A point a run, a column an environment, a line of panels a figure; None without a run."""
    if not found.rows:
        return None
    environments = list(dict.fromkeys(row.setting.env_id for row in found.rows))
    drawn, axes = figure(1.5 + 3.1 * len(environments), 6.2, 2, len(environments))
    for column, env in enumerate(environments):
        here = [row for row in found.rows if row.setting.env_id == env]
        for line, name in enumerate(found.of):
            at = axes[line, column]
            for setting in {row.setting.number: row.setting for row in here}.values():
                points = [row.values for row in here if row.setting is setting]
                at.plot(
                    [values[line + 1] for values in points],
                    [values[0] for values in points],
                    "o",
                    markersize=4,
                    alpha=0.7,
                    color=setting.colour,
                    label=short(setting.label),
                    gid=identity(setting, "runs", at),
                )
            at.set(xlabel=f"{name}, mean over the run", ylabel=found.outcome if not column else "")
        axes[0, column].set_title(env)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=4)
    return drawn
