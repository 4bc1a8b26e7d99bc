"""`python -m tests.torture`: all classes for ten minutes, or one case again."""

import argparse
import math
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
FULL_SOAK = 7200.0  # seconds that the runs of a full round's soak have


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


def rounds(tallies: Mapping[str, Tally], first: int, hours: float | None) -> None:
    """Try what is least tried of a full round, then soaks, until the time is over.

    Args:
        tallies: of each class that takes part; counted on.
        first: the first seed.
        hours: how long at most; None: a full round, and soaks to their ends.
    """
    others = {name: tally for name, tally in tallies.items() if name != "soak"}
    seconds = math.inf if hours is None else 3600 * hours
    soaking = seconds * (SOAK if others else 1) if "soak" in tallies else 0
    end = time.monotonic() + seconds - (0 if hours is None else soaking)
    while time.monotonic() < end:
        behind = [n for n in others if hours is not None or others[n].cases < others[n].wanted]
        if not behind:
            break
        name = min(behind, key=lambda n: others[n].cases / others[n].wanted)
        tried(name, first + others[name].trials, others[name], 240)
    if "soak" in tallies:
        seconds = FULL_SOAK if hours is None else soaking
        os.environ[soak.SECONDS] = str(seconds)
        tried("soak", first, tallies["soak"], 2 * seconds + 600)


def main() -> int:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("name", nargs="?", choices=CLASSES, help="one class")
    parser.add_argument("seed", nargs="?", type=int, help="one case of it")
    parser.add_argument("--hours", type=float, default=1 / 6)
    parser.add_argument("--full", action="store_true", help="a full round, however long it takes")
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
        rounds(tallies, args.first, None if args.full else args.hours)
        print(f"{(time.monotonic() - began) / 60:.0f} minutes\n{table(tallies)}")
    finally:
        shutil.rmtree(shared, ignore_errors=True)
    return 1 if any(tally.failed for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
