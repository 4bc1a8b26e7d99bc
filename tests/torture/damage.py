"""A file of a checkpoint is damaged: one line that names it; put back, the run goes on."""

import os
import random
import shutil
from pathlib import Path

from tests.torture.runner import Told
from tests.torture.runs import pick, refusal, whole


def _flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.unlink()
    path.write_bytes(content)


HOW = {
    "flip": _flip,
    "swap": lambda path, rng: None,  # with another run's: see `trial`
    "cut": lambda path, rng: os.truncate(path, rng.randrange(path.stat().st_size)),
    "empty": lambda path, rng: os.truncate(path, 0),
    "gone": lambda path, rng: path.unlink(),
    "link": lambda path, rng: (path.unlink(), path.symlink_to("/etc/passwd")),
    "fifo": lambda path, rng: (path.unlink(), os.mkfifo(path)),
    "folder": lambda path, rng: (path.unlink(), path.mkdir()),
}


def trial(rng: random.Random, folder: Path) -> Told:
    """One kind of run, several of its files."""
    name, overrides = pick(rng)
    stopped = f"trainer.max_env_steps={100 if 'pong' in name else 150}"
    run, other = folder / "run", whole(name, folder, stopped, "seed=1")
    shutil.copytree(whole(name, folder, stopped), run)
    files = sorted(p for p in (run / "checkpoints/last").rglob("*") if p.is_file())
    files = [p for p in files if p.name != "README.txt" and p.stat().st_size]
    tried = []
    for path in rng.sample(files, min(6, len(files))):
        how = rng.choice(sorted(HOW))
        theirs = other / path.relative_to(run)
        if how == "swap" and not _differs(path, theirs):
            how = "flip"
        backup = folder / "backup"
        shutil.copytree(run, backup)
        if how == "swap":
            shutil.copyfile(theirs, path)
        HOW[how](path, rng)
        said = refusal(run, overrides)
        what = f"{name}: {path.relative_to(run)} ({how})"
        assert said is not None, f"{what}: nobody noticed"
        assert "\n" not in said, f"{what}: {said}"
        parts = (str(path), str(path.parent), path.name)
        assert str(path) in said or "random" in str(path), f"{what}: {said} names none of {parts}"
        shutil.rmtree(run)
        backup.rename(run)
        tried.append((path.name, how))
    said = refusal(run, [*overrides, stopped])
    assert said is None, f"{name}: all files are put back, and {said}"
    told = ", ".join(f"{file} {how}" for file, how in tried)
    return Told(f"{name}; {told}", len(tried), tuple(how for _, how in tried))


def _differs(path: Path, other: Path) -> bool:
    """Whether another run has such a file, with other contents."""
    return other.is_file() and other.read_bytes() != path.read_bytes()
