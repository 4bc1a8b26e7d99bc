"""What the runs of an environment say, in a sentence: for heads, captions and alt text."""

from collections.abc import Sequence

from rlmem.analysis.compare.baselines import Difference, above
from rlmem.analysis.compare.settings import FEW_SEEDS, Setting
from rlmem.analysis.read.runs import OVER_RUN
from rlmem.units import number, readable_bytes, several

SHOWN = 3  # settings of a sentence, beside the best


def ranked(settings: Sequence[Setting]) -> list[Setting]:
    """Those with a return, the highest first."""
    known = [setting for setting in settings if setting.compared]
    return sorted(known, key=lambda s: -(s.compared.value if s.compared else 0.0))


def finding(settings: Sequence[Setting]) -> str:
    """Which setting of one environment returned most, and how far the next is behind."""
    order = ranked(settings)
    if not order or not order[0].compared:
        return f"No run of {settings[0].env_id} has ended."
    best = order[0]
    when = " over the run" if best.compares == OVER_RUN else ""
    said = f"On {best.env_id}, {best.label} returned most{when}: {_plain(best.compared.value)}"
    if len(order) == 1:
        return f"{said}."
    found = above(best, order[1], best.compares)
    if found and is_clear(found):
        return f"{said}; {order[1].label} {_amount(found)} less."
    return f"{said}; {order[1].label} is not clearly below: {_amount(found)} less."


def is_clear(found: Difference) -> bool:
    """Whether the interval is above 0, or, of few seeds that are paired, each seed's difference."""
    low = found.estimate.low
    return low > 0 if low is not None else len(found.seeds) > 1 and min(found.seeds) > 0


def how_sure(settings: Sequence[Setting]) -> str:
    """Seeds, and what stands behind the difference that `finding` names."""
    order = ranked(settings)
    counts = sorted({len(setting.finished) for setting in order})
    if not counts:
        return ""
    many = f"{counts[0]} to {several(counts[-1], 'seed')}"
    many = many if len(counts) > 1 else several(counts[0], "seed")
    found = above(order[0], order[1], order[0].compares) if len(order) > 1 else None
    kind = "" if found is None else ", paired by seed" if found.paired else ", not the same seeds"
    few = "" if counts[0] >= FEW_SEEDS else f"; below {FEW_SEEDS} seeds no interval is drawn"
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


def in_words(settings: Sequence[Setting]) -> str:
    """The highest returns and their bytes, for who cannot see the figure."""
    parts = []
    for setting in ranked(settings)[: SHOWN + 1]:
        size = setting.mean("memory_bytes_peak")
        held = f" with {readable_bytes(size)}" if size == size else ""
        assert setting.compared
        parts.append(f"{setting.label} {_plain(setting.compared.value)}{held}")
    more = len(settings) - len(parts)
    return "; ".join(parts) + (f"; and {several(more, 'other')}" if more > 0 else "")
