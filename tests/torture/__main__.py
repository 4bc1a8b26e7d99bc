"""`python -m tests.torture`: all classes for ten minutes, or one case again."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping

from tests.torture import crafted, damage, kills, library, limits, overrides, soak
from tests.torture.runner import Tally, Trial, run_trial
from tests.torture.runs import SHARED, warm

CLASSES: dict[str, Trial] = {
    "kills": kills.trial,
    "damage": damage.trial,
    "crafted": crafted.trial,
    "overrides": overrides.trial,
    "limits": limits.trial,
    "library": library.trial,
    "soak": soak.trial,
}
# Cases of a full round: as many of each class are tried as are in proportion to these.
WANTED = {
    "kills": 200, "damage": 300, "crafted": 200, "overrides": 1000, "limits": 60, "library": 50_000,
}  # fmt: skip
MOST_KINDS = 40  # that are listed; of keys there are hundreds
SOAK = 0.15  # share of the time


def table(tallies: Mapping[str, Tally]) -> str:
    """What was tried and what survived, as Markdown, and what it was of."""
    lines = ["| class | cases tried | survived |", "|---|---:|---:|"]
    lines += [f"| {name} | {t.cases:,} | {t.survived:,} |" for name, t in tallies.items()]
    for name, tally in tallies.items():
        kinds = [f"{kind} {count}" for kind, count in sorted(tally.kinds.items())]
        if len(kinds) > MOST_KINDS:
            kinds = [f"{len(kinds)} different ones"]
        if kinds := [*kinds, *sorted(set(tally.notes))]:
            lines.append(f"\n{name}: {'; '.join(kinds)}")
    return "\n".join(lines)


def tried(name: str, seed: int, tally: Tally, seconds: float) -> None:
    """Try one more of a class."""
    survived, told = run_trial(CLASSES[name], name, seed, seconds)
    tally.add(seed, survived, told)
    if not survived:
        again = f"python -m tests.torture {name} {seed}"
        print(f"FAILED {again}\n  {told.what.strip().splitlines()[-1]}", flush=True)


def rounds(tallies: Mapping[str, Tally], first: int, hours: float) -> None:
    """Try what is least tried of a full round, until the time is over."""
    end, only = time.monotonic() + 3600 * hours, len(tallies) == 1
    if "soak" in tallies:
        seconds = 3600 * hours * (1 if only else SOAK)
        os.environ[soak.SECONDS] = str(seconds)
        tried("soak", first, tallies["soak"], 2 * seconds + 600)
    others = {name: tally for name, tally in tallies.items() if name != "soak"}
    while others and time.monotonic() < end:
        name = min(others, key=lambda n: others[n].cases / others[n].wanted)
        tally = others[name]
        tried(name, first + tally.trials, tally, 240)


def main() -> int:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("name", nargs="?", choices=CLASSES, help="one class")
    parser.add_argument("seed", nargs="?", type=int, help="one case of it")
    parser.add_argument("--hours", type=float, default=1 / 6)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    args = parser.parse_args()
    if args.seed is not None:
        survived, told = run_trial(CLASSES[args.name], args.name, args.seed)
        print(told.what)
        return 0 if survived else 1
    shared = tempfile.mkdtemp(prefix="torture-shared-")
    os.environ[SHARED] = shared
    try:
        warm()
        names = [args.name] if args.name else list(CLASSES)
        tallies = {name: Tally(WANTED.get(name, 1)) for name in names}
        began = time.monotonic()
        rounds(tallies, args.first, args.hours)
        print(f"{(time.monotonic() - began) / 60:.0f} minutes\n{table(tallies)}")
    finally:
        shutil.rmtree(shared, ignore_errors=True)
    return 1 if any(tally.failed for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
