"""The experience-replay study: does decorrelation go with a run's result, or the TD errors?"""

from collections.abc import Sequence

from rlmem.analysis.compare.settings import Setting
from rlmem.analysis.show.section import Section

from .page import regression_section
from .regression import regress

OUTCOME = "train_return_mean"  # of summary.json
FIGURES = "correlation_count", "td_error_mean"  # columns of metrics.csv


def section(settings: Sequence[Setting]) -> Section:
    """The regression of the page."""
    return regression_section(regress(settings, OUTCOME, FIGURES))
