"""What a regression over runs says: in words, on the page, and as regression.csv."""

import csv
from html import escape
from pathlib import Path

from rlmem.analysis.csv_files import interval
from rlmem.analysis.hypothesis import Fit, Regression
from rlmem.analysis.statistics import Estimate
from rlmem.units import number

HEADER = ("fit", "term", "n", "settings", "value", "low95", "high95", "in_words")


def words(fit: Fit, of: tuple[str, str], outcome: str) -> str:
    """What a fit says, in one line."""
    low, high = fit.difference.low, fit.difference.high
    assert low is not None
    assert high is not None
    if low <= 0 <= high:
        return f"not shown which of the two goes with {outcome} more closely"
    closer, other = of if low > 0 else of[::-1]
    return f"{closer} goes with {outcome} more closely than {other} does"


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


def regression_html(found: Regression | None) -> str:
    """The section of the page; nothing without a regression."""
    if found is None:
        return ""
    first, second = found.of
    parts = [f"<h2>{first} or {second}: which goes with {found.outcome}?</h2>"]
    if found.fits:
        heads = ["runs", "settings", first, second, "difference of sizes"]
        head = "".join(f"<th>{escape(name)}</th>" for name in heads)
        rows = "".join(_row(fit, found) for fit in found.fits)
        parts.append(
            f"<p>Deviations of {found.outcome} for one deviation of each, over runs, [95 %].</p>\n"
            f"<div class=wide><table class=effects><thead><tr><th class=text>fit</th>{head}"
            f"<th class=text>in words</th></tr></thead>\n<tbody>{rows}</tbody></table></div>"
        )
    lines = [*found.notes, *(CAVEATS if found.fits else ())]
    parts.append(f"<ul class=remarks>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>")
    return "\n".join(parts)


def _row(fit: Fit, found: Regression) -> str:
    columns = [fit.name, str(fit.runs), str(fit.settings)]
    columns += [_readable(e) for e in (fit.first, fit.second, fit.difference)]
    columns.append(words(fit, found.of, found.outcome))
    return f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in columns)}</tr>\n"


def _readable(e: Estimate) -> str:
    parts = (e.value, e.low, e.high)
    value, low, high = ("-" if x is None else number(x, "{:+.2f}") for x in parts)
    return f"{value} [{low}, {high}]"


def write_regression(found: Regression | None, path: Path) -> None:
    """A row for each fit and term; no file without a fit."""
    if found is None or not found.fits:
        return
    first, second = found.of
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for fit in found.fits:
            terms = {first: fit.first, second: fit.second}
            terms[f"|{first}| - |{second}|"] = fit.difference
            for term, estimate in terms.items():
                last = estimate is fit.difference
                said = words(fit, found.of, found.outcome) if last else ""
                writer.writerow([fit.name, term, fit.runs, fit.settings, *interval(estimate), said])
