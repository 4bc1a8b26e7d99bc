"""`python -m tests.torture`: all classes for ten minutes, or one case again."""

import argparse
import sys
import time
from collections.abc import Mapping

from tests.torture import crafted, damage, kills, library, limits, overrides
from tests.torture.runner import Tally, Trial, run_trial

CLASSES: dict[str, Trial] = {
    "kills": kills.trial,
    "damage": damage.trial,
    "crafted": crafted.trial,
    "overrides": overrides.trial,
    "limits": limits.trial,
    "library": library.trial,
}


def table(tallies: Mapping[str, Tally]) -> str:
    """What was tried and what survived, as Markdown."""
    lines = ["| class | tried | survived |", "|---|---:|---:|"]
    lines += [f"| {name} | {t.tried} | {t.survived} |" for name, t in tallies.items()]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("name", nargs="?", choices=CLASSES, help="one class")
    parser.add_argument("seed", nargs="?", type=int, help="one case of it")
    parser.add_argument("--hours", type=float, default=1 / 6)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    args = parser.parse_args()
    if args.seed is not None:
        survived, told = run_trial(CLASSES[args.name], args.name, args.seed)
        print(told)
        return 0 if survived else 1
    chosen = {args.name: CLASSES[args.name]} if args.name else CLASSES
    tallies = {name: Tally() for name in chosen}
    end, seed = time.monotonic() + 3600 * args.hours, args.first
    while time.monotonic() < end:
        for name, trial in chosen.items():
            survived, told = run_trial(trial, name, seed)
            tally = tallies[name]
            tally.tried += 1
            if not survived:
                tally.failed.append((seed, told))
                again = f"python -m tests.torture {name} {seed}"
                print(f"FAILED {again}\n  {told.strip().splitlines()[-1]}", flush=True)
        seed += 1
    print(table(tallies))
    return 1 if any(tally.failed for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
