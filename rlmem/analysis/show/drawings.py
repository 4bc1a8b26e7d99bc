"""Which figures a report has, their files, and how they stand in its page."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from rlmem.analysis.compare.looks import Look
from rlmem.analysis.compare.settings import Setting
from rlmem.analysis.compare.thresholds import threshold_grids
from rlmem.analysis.read.curves import OVER_RUN
from rlmem.analysis.show.section import Section
from rlmem.analysis.show.sentences import finding, in_words, listed
from rlmem.analysis.show.svg import in_page, said_before
from rlmem.errors import need
from rlmem.units import several

TIMED = {"insert_us": "to insert an env step", "sample_us": "to draw a minibatch"}
EVALUATIONS = 3  # of a run at least, to be drawn over env steps
EVALUATION = "an evaluation's"
FRONTIER = "The dotted line joins the settings that no other beats in both return and bytes."


@dataclass(frozen=True)
class Drawing:
    """A figure of a page; its files are figures/NAME.png and figures/NAME.svg.

    Attributes:
        env_id: "": of no environment alone.
        caption: what to see in it.
        view: what its x is; an environment's figures with one are shown one at a time.
        key: what its signs are.
    """

    env_id: str
    name: str
    caption: str
    svg: Markup
    view: str = ""
    key: str = ""


def drawing(
    env_id: str, name: str, caption: str, svg: str, view: str = "", alt: str = "", key: str = ""
) -> Drawing:
    """A figure of a page from matplotlib's SVG.

    Args:
        alt: what who cannot see it is told, beside the caption.
    """
    spoken = " ".join([caption, key, alt]).strip()
    return Drawing(env_id, name, caption, in_page(name, svg, spoken), view, key)


def captioned(drawn: Drawing, words: str) -> Drawing:
    """The same with somebody's own words as its caption, which are what is said of it first."""
    words = words if words.endswith((".", "!", "?")) else f"{words}."
    return replace(drawn, caption=words, svg=said_before(drawn.svg, words))


def draw(
    settings: Sequence[Setting],
    sections: Sequence[Section],
    folder: Path,
    marked: Sequence[str] = (),
    highlight: Sequence[str] = (),
) -> list[Drawing]:
    """Draw and save all figures that the settings and sections give.

    Args:
        marked: labels that are in colour where others are grey.
        highlight: labels that alone are in colour, in an environment that has one of them.

    Raises:
        UserError: matplotlib is missing.
    """
    need("matplotlib", "mode=report", "plot")
    drawn = _Drawings(folder)
    for env_id in dict.fromkeys(setting.env_id for setting in settings):
        here = [setting for setting in settings if setting.env_id == env_id]
        _draw_environment(drawn, env_id, here, marked, highlight)
    _draw_over_environments(drawn, settings)
    for section in sections:
        for name, (caption, figure) in section.figures.items():
            drawn.keep("", name, caption, figure)
    return drawn.made


class _Drawings:
    """Those made so far, each with a file of its own in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[Drawing] = []

    def keep(
        self,
        env_id: str,
        name: str,
        caption: str,
        figure: Any,
        view: str = "",
        alt: str = "",
        key: str = "",
    ) -> None:
        """Save a figure; None is none."""
        if figure is None:
            return
        from rlmem.drawing import save

        file = re.sub(r"[^\w.-]+", "-", f"{name}-{env_id}".strip("-"))[:80]
        file = file.encode()[:200].decode(errors="ignore")  # a letter may take 4 bytes
        taken = {other.name for other in self.made}
        names = chain([file], (f"{file}-{k}" for k in range(2, len(self.made) + 3)))
        file = next(name for name in names if name not in taken)
        svg = save(figure, self.folder, file)
        self.made.append(drawing(env_id, file, caption, svg, view, alt, key))


def _draw_environment(
    drawn: _Drawings,
    env_id: str,
    here: Sequence[Setting],
    marked: Sequence[str],
    highlight: Sequence[str],
) -> None:
    """The figures of one environment's settings."""
    from rlmem.analysis.show import figures
    from rlmem.analysis.show.heatmaps import heatmaps

    named = [setting for setting in here if setting.label in highlight]
    chosen = named or figures.in_colour(here, marked)
    others = len(here) - len(chosen)
    shown = named or here
    grey = [f"In grey: {several(others, 'other setting')}."] if others else []
    compared, final = here[0].compares, here[0].metric
    missing = []
    if unknown := [s for s in here if not np.isfinite(s.mean("memory_bytes_peak"))]:
        missing = [f"Not drawn, as their bytes are not known: {listed(unknown)}."]
    returns = {"bytes": ("bytes", compared)}
    if compared == OVER_RUN:
        returns["final"] = "bytes, final", final
    for name, (view, metric) in returns.items():
        line = [FRONTIER] * (len(figures.placed(here, metric)) > 1)
        drawn_of = figures.return_against_bytes(here, metric, chosen)
        said, key = found(shown, metric, named), " ".join([*grey, *line, *missing])
        drawn.keep(env_id, name, said, drawn_of, view, in_words(shown, metric), key)
    for name, over in (("curves", "env_steps"), ("seconds", "seconds")):
        drawn_of = figures.curves(here, over=over, chosen=chosen)
        left = [s for s in here if not s.seed_lines("train_return_mean", over)]
        of, there = over.replace("_", " "), [s for s in shown if s not in left] or shown
        unknown = [f"Not drawn, as their {of} are not known: {listed(left)}."] if left else []
        key = " ".join([*grey, _around(here, over), *unknown])
        said, alt = found(there, compared, named), in_words(there)
        drawn.keep(env_id, name, said, drawn_of, of, alt, key)
    if played := [setting for setting in here if _is_evaluated(setting)]:
        around = [_around(played, "evaluated_at", "eval_return_mean", EVALUATION)]
        if left := [setting for setting in here if setting not in played]:
            around += [f"Not drawn, as not all seeds were evaluated often: {listed(left)}."]
        drawn_of = figures.curves(played, "eval_return_mean", "evaluated_at", chosen)
        said, key = found(shown, final, named), " ".join(around)
        drawn.keep(env_id, "evaluated", said, drawn_of, "env steps, evaluated", key=key)
    runs = [run.curves for setting in here for run in setting.runs]
    if any((curve["frames"] > curve["env_steps"]).any() for curve in runs):
        drawn_of = figures.curves(here, over="frames", chosen=chosen)
        drawn.keep(env_id, "frames", "Return over frames, of which a step has several", drawn_of)
    drawn_of = figures.curves(here, "memory_bytes", chosen=chosen)
    drawn.keep(env_id, "held", "Bytes that the memory holds", drawn_of)
    for column, what in TIMED.items():
        timed = sum(bool(np.isfinite(setting.mean(column))) for setting in here)
        left = f"; the first {figures.MOST_BARS} of {timed}" * (timed > figures.MOST_BARS)
        drawn.keep(env_id, column[:6], f"Microseconds {what}{left}", figures.times(here, column))
    for label, grid in threshold_grids(here).items():
        drawn.keep(env_id, f"thresholds-{label}", "The two thresholds", heatmaps(grid))


def _draw_over_environments(drawn: _Drawings, settings: Sequence[Setting]) -> None:
    """The figures of all settings together."""
    from rlmem.analysis.show import figures

    # The label of another program's curve may be one of ours, in another environment.
    ours = {setting.label for setting in settings if setting.runs[0].external is None}
    by_label: dict[str, dict[str, Setting]] = {}
    scores: dict[str, dict[str, np.ndarray]] = {}
    looks: dict[str, Look] = {}
    few: set[str] = set()
    for setting in settings:
        label = setting.label
        if setting.runs[0].external is not None and label in ours:
            label += " (another program)"
        looks[label] = setting.look
        if len(setting.returns):
            by_label.setdefault(label, {})[setting.env_id] = setting
        if len(normalized := setting.values("human_normalized_score")):
            scores.setdefault(label, {})[setting.env_id] = normalized
            few |= set() if setting.has_bounds(setting.metric) else {label}
    caption = "Probability of improvement"
    if len({setting.env_id for setting in settings}) > 1:
        caption += ", over all environments that two settings share"
    drawn.keep("", "improvement", caption, figures.improvement(by_label))
    games = ", ".join(sorted(figures.common_games(scores)))
    drawn.keep(
        "", "profiles", f"Performance profiles over {games}", figures.profiles(scores, looks, few)
    )


def _is_evaluated(setting: Setting) -> bool:
    """Whether each of its runs that are drawn was evaluated often enough for a line."""
    runs = setting.finished or setting.runs
    return all(len(run.curves["evaluated_at"]) >= EVALUATIONS for run in runs)


def found(settings: Sequence[Setting], metric: str, among: Sequence[Setting]) -> str:
    """What `finding` says, of some of an environment's settings if there are such."""
    said = finding(settings, metric)
    return f"Among those in colour, {said[0].lower()}{said[1:]}" if among else said


def _around(
    settings: Sequence[Setting],
    over: str,
    column: str = "train_return_mean",
    of: str = "the last 100 training",
) -> str:
    """What curves are means of, where they end, and what stands around them."""
    few = {setting.few for setting in settings if len(setting.runs) > 1}
    means = f"Mean of {of} episodes"
    if not few:
        return f"{means}."
    shown = [(False, "bands: 95 % intervals over the seeds"), (True, "thin: each seed")]
    said = "; ".join([means, *(words for has, words in shown if has in few)]) + "."
    ends = ({x[-1] for x, _ in setting.seed_lines(column, over)} for setting in settings)
    return f"{said} A mean ends where its first seed ends." if max(map(len, ends)) > 1 else said
