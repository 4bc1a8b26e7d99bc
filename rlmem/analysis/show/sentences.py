"""What the runs of an environment say, in a sentence: for heads, captions and alt text."""

from collections.abc import Sequence

from rlmem.analysis.compare.baselines import Difference, between_means
from rlmem.analysis.compare.settings import FEW_SEEDS, Setting
from rlmem.analysis.read.runs import OVER_RUN
from rlmem.units import number, readable_bytes, several

SHOWN = 3  # settings of a sentence, beside the best


def ranked(settings: Sequence[Setting], metric: str) -> list[tuple[Setting, float]]:
    """Those that have a number, with its mean, the highest first."""
    known = [(setting, setting.mean(metric)) for setting in settings if setting.finished]
    return sorted((each for each in known if each[1] == each[1]), key=lambda each: -each[1])


def finding(settings: Sequence[Setting], metric: str | None = None) -> str:
    """Which setting of one environment returned most, and how far the next is behind; of a single
    setting what it returned.

    Args:
        metric: the return; None: the one that the environment's settings are compared by.
    """
    metric = metric or settings[0].compares
    order = ranked(settings, metric)
    if not order:
        ended = any(setting.finished for setting in settings)
        return f"No run of {settings[0].env_id} has {'a return' if ended else 'ended'}."
    best, value = order[0]
    level = [setting for setting, mean in order if mean == value]
    when = {OVER_RUN: " over the run", "eval_return_mean": " in the final evaluation"}
    if len(settings) == 1:
        what = f"{listed(level)} returned {_plain(value)}{when.get(metric, '')}"
        alone = len(best.peers or settings) == 1
        beside = "; there is nothing to compare it with" if alone else ""
        return f"On {best.env_id}, {what}{beside}."
    each = " each" if len(level) > 1 else ""
    first = f"{listed(level)} returned most{when.get(metric, '')}: {_plain(value)}{each}"
    said = f"On {best.env_id}, {first}."
    others = order[len(level) :]
    if not others:
        return said
    second = others[0][0]
    found = between_means(best, second, metric)
    next_is = "Next" if found and is_clear(found) else "Perhaps as good"
    return f"{said} {next_is}: {_quoted(second.label)}, lower by {_amount(found)}."


def listed(settings: Sequence[Setting]) -> str:
    """Labels as a sentence names them, or how many there are."""
    if len(settings) > SHOWN:
        return several(len(settings), "setting")
    *names, last = (_quoted(setting.label) for setting in settings)
    return f"{', '.join(names)} and {last}" if names else last


def _quoted(label: str) -> str:
    """A label of several words is set apart from the sentence."""
    return f"\u201c{label}\u201d" if " " in label else label


def is_clear(found: Difference) -> bool:
    """Whether the interval is above 0, or all seeds' differences, which have none where they are
    alike. Of few seeds nothing is said: of two equal settings with 2 seeds each, every second pair
    has a winner in both."""
    low = found.estimate.low
    if low is not None:
        return low > 0
    return len(found.seeds) >= FEW_SEEDS and min(found.seeds) > 0


def how_sure(settings: Sequence[Setting]) -> str:
    """Seeds, and what stands behind the difference that `finding` names."""
    metric = settings[0].compares
    order = [setting for setting, _ in ranked(settings, metric)]
    counts = sorted({len(setting.seeds_of(metric)) for setting in order})
    if not counts:
        return ""
    many = several(counts[-1], "seed")
    many = f"{counts[0]} to {many}" if len(counts) > 1 else many
    level = [setting for setting in order if setting.mean(metric) == order[0].mean(metric)]
    next_ = order[len(level) :]  # as `finding` has it
    found = between_means(order[0], next_[0], metric) if next_ else None
    kind = "" if found is None else ", paired by seed" if found.paired else ", not the same seeds"
    if next_ and order[0].external != next_[0].external:
        kind = ", of two programs and so not paired"
    if any(setting.by_seed(metric) is None for setting in (order[0], *next_[:1])):
        kind = ", some more than once, which gives no interval"
    few = (
        ""
        if counts[0] >= FEW_SEEDS
        else f"; fewer than {FEW_SEEDS} have no interval and do not tell which is better"
    )
    return f"{many} a setting{kind}{few}."


def _plain(value: float) -> str:
    """Three digits, as a sentence has them."""
    return number(value, "{:,.0f}" if abs(value) >= 100 else "{:.3g}")


def _amount(found: Difference | None) -> str:
    """`12 (95 % interval 3 to 20)`"""
    if found is None:
        return "-"
    estimate = found.estimate
    if estimate.low is not None and estimate.high is not None:
        bounds = f"{_plain(estimate.low)} to {_plain(estimate.high)}"
        return f"{_plain(estimate.value)} (95 % interval {bounds})"
    if found.paired and len(found.seeds) > 1:
        return f"{_plain(estimate.value)} (by seed {', '.join(map(_plain, found.seeds))})"
    return _plain(estimate.value)


def in_words(settings: Sequence[Setting], metric: str | None = None) -> str:
    """The highest returns and their bytes, for who cannot see the figure."""
    parts = []
    for setting, value in ranked(settings, metric or settings[0].compares)[: SHOWN + 1]:
        size = setting.mean("memory_bytes_peak")
        held = f" with {readable_bytes(size)}" if size == size else ""
        parts.append(f"{setting.label} {_plain(value)}{held}")
    if not parts:
        return ""
    more = len(settings) - len(parts)
    return "; ".join(parts) + (f"; and {several(more, 'other')}" if more > 0 else "")
