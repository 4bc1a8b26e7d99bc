"""The tables of a report: CSV files for programs, columns of texts for people."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rlmem.analysis.compare.baselines import Comparison, Difference, above
from rlmem.analysis.compare.settings import FEW_SEEDS, Setting, any_goals
from rlmem.analysis.compare.statistics import Estimate, are_alike
from rlmem.analysis.read.curves import OVER_RUN, TIMES
from rlmem.analysis.read.runs import NUMBERS, SUCCESS
from rlmem.run_files import write_small
from rlmem.units import number, readable_bytes, readable_seconds

ABOVE = {
    "bytes": "above its FIFO [95 %]",
    "entries": "above the FIFO of its entries [95 %]",
}
RETURN, OVER, SUCCEEDED = (
    f"{name} [95 %]" for name in ("return, mean", "return over the run", "success")
)


def plain(value: float) -> int | float | None:
    """A number as a CSV file has it: whole ones without a fraction, nothing for NaN."""
    if not np.isfinite(value):
        return None
    return int(value) if value == int(value) else value


def interval(name: str, estimate: Estimate | None) -> dict[str, str]:
    """Value, low and high as three columns; empty where there is none."""
    parts = (estimate.value, estimate.low, estimate.high) if estimate else (None,) * 3
    ends = ("", "_low95", "_high95")
    return {
        f"{name}{end}": "" if part is None else f"{part:.6g}"
        for end, part in zip(ends, parts, strict=True)
    }


def results_table(settings: Sequence[Setting]) -> pd.DataFrame:
    """A row a run; `eval_success_rate` where an environment has goals, `device` where runs
    learned on several."""
    numbers = [*NUMBERS, *TIMES, *([SUCCESS] if any_goals(settings) else [])]
    keys = sorted({key for setting in settings for key in setting.distinct})
    several = len({run.device for setting in settings for run in setting.runs} - {""}) > 1
    rows = [
        {
            **_names(setting),
            "seed": run.seed,
            "status": run.status,
            **({"device": run.device} if several else {}),
            **{key: setting.distinct.get(key) for key in keys},
            **{name: plain(run.number(name)) for name in numbers},
            "folder": run.folder,
        }
        for setting in settings
        for run in setting.runs
    ]
    return pd.DataFrame(rows, dtype=object)


def summary_table(settings: Sequence[Setting]) -> pd.DataFrame:
    """A row a setting; `success_rate` and its bounds where an environment has goals."""
    goals = any_goals(settings)
    means = [*(name for name in NUMBERS if "return" not in name), *TIMES]
    rows = [
        {
            **_names(setting),
            "n": len(setting.returns),
            "not_finished": len(setting.runs) - len(setting.finished),
            "return_is": setting.metric if len(setting.returns) else None,
            **interval("return_mean", setting.return_mean),
            **interval("return_iqm", setting.return_iqm),
            **interval(OVER_RUN, setting.return_over_run),
            "return_over_run_n": len(setting.values(OVER_RUN)),
            **(interval("success_rate", setting.success_mean) if goals else {}),
            **{name: plain(setting.mean(name)) for name in means},
        }
        for setting in settings
    ]
    return pd.DataFrame(rows, dtype=object)


def baselines_table(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    """A row a setting and baseline."""
    rows = []
    for compared in comparisons:
        row: dict[str, Any] = {
            "env_id": compared.setting.env_id,
            "label": compared.setting.label,
            "baseline": compared.baseline.label,
            "n": len(compared.setting.finished),
            "n_baseline": len(compared.baseline.finished),
            "paired": compared.paired,
        }
        for kind, found in compared.differences.items():
            row |= interval(f"{kind}_difference", found and found.estimate)
        row |= {f"{kind}_ratio": plain(ratio) for kind, ratio in compared.ratios.items()}
        rows.append(row)
    return pd.DataFrame(rows, dtype=object)


def _names(setting: Setting) -> dict[str, str]:
    return {"env_id": setting.env_id, "memory": setting.memory, "label": setting.label}


class Shown(NamedTuple):
    """What people read, and the number that a table is sorted by; NaN where there is none."""

    text: str
    value: float = float("nan")
    bounds: str = ""


def readable(estimate: Estimate | None, seeds: Sequence[float] = ()) -> str:
    """`480 [455, 500]`; where there are no bounds the seeds' own values: `480 (455, 500, 485)`."""
    shown = _shown(estimate, seeds)
    return f"{shown.text} {shown.bounds}".strip()


def readable_difference(found: Difference | None) -> str:
    """As `readable`, of a difference; `0, the same in each seed` where no seed tells otherwise."""
    if found is None:
        return "missing"
    seeds = found.seeds
    if len(seeds) > 1 and max(seeds) == min(seeds):
        return f"{number(seeds[0])}, the same in each seed"
    return readable(found.estimate, seeds)


def _shown(estimate: Estimate | None, seeds: Sequence[float] = (), none: str = "missing") -> Shown:
    if estimate is None:
        return Shown(none)
    bounds = ""
    if estimate.low is not None and estimate.high is not None:
        bounds = f"[{number(estimate.low)}, {number(estimate.high)}]"
    elif len(seeds) > 1:
        bounds = f"({', '.join(map(number, seeds))})"
    return Shown(number(estimate.value), estimate.value, bounds)


def _of_seeds(setting: Setting, name: str, estimate: Estimate | None, none: str) -> Shown:
    """A mean with its interval, or, of few seeds, with each seed's value; and of how many runs it
    is where that is not all."""
    values = setting.values(name).tolist()
    few = setting.few or len(values) < FEW_SEEDS
    shown = _shown(estimate, values if few else (), none)
    if not few and are_alike(values):
        shown = shown._replace(bounds="(each seed)")
    lacking = 0 < len(values) < len(setting.returns)
    of = f"{len(values)} of {len(setting.returns)} seeds" if lacking else ""
    return shown._replace(bounds=f"{shown.bounds} {of}".strip())


def columns_of(setting: Setting, goals: bool) -> dict[str, Shown]:
    """What a setting's line says, by the columns' heads; `goals`: some environment has them."""
    total, done = len(setting.runs), len(setting.returns)
    size, seconds = setting.mean("memory_bytes_peak"), setting.mean("wall_seconds")

    def mean(name: str, form: str = "{:,.0f}") -> Shown:
        value = setting.mean(name)
        return Shown(number(value, form), value)

    def of_seeds(name: str, estimate: Estimate | None, none: str) -> Shown:
        return _of_seeds(setting, name, estimate, none)

    return {
        "seeds": Shown(f"{done} of {total}" if done < total else str(len(setting.seeds)), done),
        **({SUCCEEDED: of_seeds(SUCCESS, setting.success_mean, "-")} if goals else {}),
        RETURN: of_seeds(setting.metric, setting.return_mean, "missing"),
        OVER: of_seeds(OVER_RUN, setting.return_over_run, "missing"),
        "env steps": mean("env_steps"),
        "gradient steps": mean("grad_steps"),
        "bytes, peak": Shown(readable_bytes(size) if np.isfinite(size) else "-", size),
        "entries": mean("memory_entries"),
        "bytes / transition": mean("bytes_per_transition"),
        "insert, us": mean("insert_us", "{:,.1f}"),
        "sample, us": mean("sample_us"),
        "steps / s": mean("env_steps_per_second"),
        "wall time": Shown(readable_seconds(seconds) if np.isfinite(seconds) else "-", seconds),
    }


def write_study_table(
    settings: Sequence[Setting],
    columns: Mapping[str, tuple[str, Sequence[str]]],
    fifos: Mapping[str, Mapping[str, str]],
    path: Path,
) -> None:
    """Write a study's table in Markdown: a section an environment, a line a setting.

    What was not run is `missing`.

    Args:
        columns: folder below runs/ -> title of each environment and its settings, in the order
            of the lines.
        fifos: kind -> setting -> the FIFO that it is to be held against.
    """
    kinds = [kind for kind in ABOVE if kind in fifos]
    goals = any_goals(settings)
    heads = ["setting", "seeds", *([SUCCEEDED] if goals else [])]
    for what, of in ((RETURN, ""), (OVER, "over the run, ")):
        heads += [what, *(of + ABOVE[kind] for kind in kinds)]
    heads += ["env steps", "gradient steps", "bytes, peak", "insert, us", "sample, us"]
    heads.append("wall time")
    # A run lies in runs/<column>/<row>/seed<n>.
    by_place = {(s.runs[0].folder.parents[1].name, s.label): s for s in settings}
    lines = []
    for folder, (title, labels) in columns.items():
        lines += [f"### {title}", "", f"| {' | '.join(heads)} |"]
        lines.append("|---|" + "---:|" * (len(heads) - 1))
        for label in labels:
            setting = by_place.get((folder, label))
            texts = dict.fromkeys(heads, "") | {"seeds": "0", RETURN: "missing"}
            if goals:
                texts |= {SUCCEEDED: "missing", RETURN: ""}
            if setting and setting.finished:
                shown = columns_of(setting, goals)
                texts |= {k: f"{v.text} {v.bounds}".strip() for k, v in shown.items() if k in texts}
                texts["seeds"] = str(len(setting.returns))
                for kind in kinds:
                    fifo = by_place.get((folder, fifos[kind].get(label, "")))
                    for name, of in ((setting.metric, ""), (OVER_RUN, "over the run, ")):
                        found = above(setting, fifo, name) if fifo else None
                        texts[of + ABOVE[kind]] = readable_difference(found) if found else ""
            texts["setting"] = label.replace("|", "\\|")
            lines.append(f"| {' | '.join(texts[head] for head in heads)} |")
        lines.append("")
    write_small(path, "\n".join(lines))
