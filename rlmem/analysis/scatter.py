"""The figure of a regression: the outcome of each run over the figures it is held against."""

from matplotlib import rc_context
from matplotlib.figure import Figure

from rlmem.analysis.figures import STYLE, _gid, _legend, figure, short
from rlmem.analysis.hypothesis import Regression


@rc_context(STYLE)
def scatter(found: Regression | None) -> Figure | None:
    """A point a run, a column an environment, a line of panels a figure; None without a run."""
    if found is None or not found.rows:
        return None
    environments = list(dict.fromkeys(row.cell.env_id for row in found.rows))
    drawn, axes = figure(1.5 + 3.1 * len(environments), 6.2, 2, len(environments))
    for column, env in enumerate(environments):
        here = [row for row in found.rows if row.cell.env_id == env]
        for line, name in enumerate(found.of):
            at = axes[line, column]
            for cell in {row.cell.number: row.cell for row in here}.values():
                points = [row.values for row in here if row.cell is cell]
                at.plot(
                    [values[line + 1] for values in points],
                    [values[0] for values in points],
                    "o",
                    markersize=4,
                    alpha=0.7,
                    color=cell.colour,
                    label=short(cell.label),
                    gid=_gid(cell, "runs", at),
                )
            at.set(xlabel=f"{name}, mean over the run", ylabel=found.outcome if not column else "")
        axes[0, column].set_title(env)
    _legend(drawn, axes[0, 0])
    return drawn
