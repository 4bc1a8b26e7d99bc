"""Numbers, byte sizes and times as people write and read them."""

import math
import re
from collections.abc import Sequence

_UNITS = {"B": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate(("K", "M", "G", "T"), start=1)
    for suffix, base in (("iB", 1024), ("B", 1000))
}


def number(value: float, form: str = "{:,.4g}") -> str:
    """A number for people: a dash for NaN, 0 for what a sum that cancels leaves, 10,350 in place of
    1.035e+04."""
    if 9999.5 <= abs(value) < 1e9:  # which four digits would write as 1e+04
        form = form.replace(".4g", ".0f")
    return form.format(0.0 if abs(value) < 1e-12 else value) if math.isfinite(value) else "-"


def several(count: int, what: str) -> str:
    """1,000 nodes, 1 node."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def readable_bytes(size: float) -> str:
    """4096 -> '4.0 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < (1023.5 if unit == "B" else 1023.95):  # above it the digits say 1024
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def readable_seconds(seconds: float) -> str:
    """75 -> '1 min 15 s'."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def parse_bytes(value: str | int) -> int:
    """'64MiB', '1.5 GB' or a number of bytes, as bytes.

    Raises:
        ValueError: it is not a size of at least one byte and at most 2^50.
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-zA-Z]*)\s*", str(value))
    unit = match and next((u for u in _UNITS if u.lower() == (match[2] or "B").lower()), None)
    if isinstance(value, bool) or not match or not unit:
        raise ValueError(f"{value} is not a number of bytes such as 64MiB, 1.5GB or 1000000")
    size = float(match[1]) * _UNITS[unit]
    if size < 1:
        raise ValueError(f"{value} is less than a byte")
    if size > 2**50:
        raise ValueError(f"{value} is more than a million GiB")
    return int(size)


def signed(value: float) -> str:
    """+1,234 or -0.056."""
    return f"{value:+,.0f}" if abs(value) >= 999.5 else f"{value:+.3g}"


def signed_bytes(value: float) -> str:
    """4096 -> '+4.0 KiB'."""
    return ("-" if value < 0 else "+") + readable_bytes(abs(value))


def aligned(rows: Sequence[tuple[str, str]]) -> str:
    """A line for each name and what is said of it, these below each other."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)
