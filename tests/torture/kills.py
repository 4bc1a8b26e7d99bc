"""SIGKILL at random moments, up to three in a row; then to the end, and compared with a run that
was let alone."""

import random
import time
from pathlib import Path

from rlmem.callbacks.checkpoint_files import find_checkpoint, no_checkpoint
from tests.runs.helpers import assert_same_run
from tests.torture.runner import begun, forked, kill
from tests.torture.runs import numbers, pick, start


def trial(rng: random.Random, folder: Path) -> str:
    """One series of kills."""
    name, overrides = pick(rng)
    whole, cut = folder / "whole", folder / "cut"
    began = time.monotonic()
    code = forked(lambda: start(whole, overrides), 120, folder / "whole.txt")
    assert code == 0, (name, code, (folder / "whole.txt").read_text()[-800:])
    lasted, kills = time.monotonic() - began, rng.randint(1, 3)
    for _ in range(kills):
        child = begun(lambda: start(cut, overrides), folder / "cut.txt")
        time.sleep(rng.random() * lasted)
        kill(child)
        assert no_checkpoint(cut) is None, "a kill left half a checkpoint"
    held = find_checkpoint(cut) is not None
    code = forked(lambda: start(cut, overrides), 120, folder / "cut.txt")
    assert code == 0, (name, code, (folder / "cut.txt").read_text()[-800:])
    if "a3c" in name:  # of several processes: no two runs are the same
        assert numbers(cut / "summary.json")["status"] == "finished"
    else:
        assert_same_run(whole, cut)
        for file in ("summary.json", "checkpoints/last/manifest.json"):
            assert numbers(whole / file) == numbers(cut / file), file
        a, b = ((run / "checkpoints/best.ckpt").read_bytes() for run in (whole, cut))
        assert a == b, "best.ckpt"
    return f"{name}; {kills} kills, {'from a checkpoint' if held else 'anew'}"
