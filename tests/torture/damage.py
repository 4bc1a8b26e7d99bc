"""A file of a checkpoint is damaged: one line that names it; put back, the run goes on."""

import os
import random
import shutil
from pathlib import Path

from tests.torture.runner import forked
from tests.torture.runs import pick, refusal, start


def _flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.unlink()
    path.write_bytes(content)


HOW = {
    "flip": _flip,
    "cut": lambda path, rng: os.truncate(path, rng.randrange(path.stat().st_size)),
    "empty": lambda path, rng: os.truncate(path, 0),
    "gone": lambda path, rng: path.unlink(),
    "link": lambda path, rng: (path.unlink(), path.symlink_to("/etc/passwd")),
    "fifo": lambda path, rng: (path.unlink(), os.mkfifo(path)),
    "folder": lambda path, rng: (path.unlink(), path.mkdir()),
}


def trial(rng: random.Random, folder: Path) -> str:
    """One kind of run, several of its files."""
    name, overrides = pick(rng)
    run = folder / "run"
    stopped = [*overrides, "trainer.max_env_steps=150"]
    code = forked(lambda: start(run, stopped), 120, folder / "log.txt")
    assert code == 0, (name, code, (folder / "log.txt").read_text()[-800:])
    files = sorted(p for p in (run / "checkpoints/last").rglob("*") if p.is_file())
    files = [p for p in files if p.name != "README.txt" and p.stat().st_size]
    tried = []
    for path in rng.sample(files, min(4, len(files))):
        how = rng.choice(sorted(HOW))
        backup = folder / "backup"
        shutil.copytree(run, backup)
        HOW[how](path, rng)
        said = refusal(run, overrides)
        what = f"{name}: {path.relative_to(run)} ({how})"
        assert said is not None, f"{what}: nobody noticed"
        assert "\n" not in said, f"{what}: {said}"
        parts = (str(path), str(path.parent), path.name)
        assert str(path) in said or "random" in str(path), f"{what}: {said} names none of {parts}"
        shutil.rmtree(run)
        backup.rename(run)
        tried.append(f"{path.name} {how}")
    return f"{name}; {', '.join(tried)}"
