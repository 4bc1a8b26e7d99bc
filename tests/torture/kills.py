"""SIGKILL at random moments and at single writes, up to three in a row; then to the end, and
compared with what was let alone: runs of each kind, A3C's workers, sweeps and studies."""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from rlmem.callbacks.checkpoint_files import find_checkpoint, no_checkpoint
from rlmem.cli import _study
from tests.runs.helpers import assert_same_run
from tests.torture.runner import Told, begun, forked, kill, waited
from tests.torture.runs import BASE, KINDS, SMALL, command, made, numbers, pick, start, whole
from tests.torture.writes import Writes

MOST_WRITES = {
    "run": 1100,
    "sweep": 4400,
}  # that an aimed kill picks from: about as many as there are
SWEEP = ["-m", "seed=0,1", "memory=uniform,per", *BASE, *SMALL, "memory.capacity=300"]
STUDY = f"""
title: tiny
common: {" ".join([*BASE, *SMALL])}
rows:
  uniform: memory=uniform memory.capacity=300
  per: {{overrides: memory=per memory.capacity=300, fifo: [bytes]}}
columns:
  CartPole: {{overrides: env=cartpole, seeds: 1}}
"""


def trial(rng: random.Random, folder: Path) -> Told:
    """One series of kills."""
    which = rng.choices(["run", "a3c", "sweep", "study"], [84, 6, 7, 3])[0]
    return {"run": _run, "a3c": _workers, "sweep": _sweep, "study": _study_trial}[which](
        rng, folder
    )


def cut_off(
    rng: random.Random, cut: Path, what: Callable[[], int], lasted: float, writes: int
) -> str:
    """Begin something in a process and kill it, at one of its writes or at a moment.

    Args:
        cut: folder that it writes; what it says lies beside it.
        lasted: seconds that it takes at most.
        writes: its writes, about.

    Returns:
        How it was killed, or that it was not.
    """
    if rng.random() < 0.5:
        return aimed(what, cut, rng.randint(1, writes))
    child = begun(what, cut.with_suffix(".txt"))
    time.sleep(rng.random() * lasted)
    return _ended(kill(child), cut, "at random")


def aimed(what: Callable[[], int], cut: Path, at: int) -> str:
    """Kill a process just before one of its writes; see `cut_off`."""

    def end(number: int, name: str) -> None:
        if number == at:
            print(f"write {number}: {name}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def counted() -> int:
        Writes(end).begin()
        return what()

    return _ended(waited(begun(counted, cut.with_suffix(".txt")), 120), cut, "aimed")


def _ended(code: int | None, cut: Path, how: str) -> str:
    said = cut.with_suffix(".txt").read_text()[-500:]
    assert code in (0, -signal.SIGKILL), f"code {code}: {said}"
    return "too late" if code == 0 else how


def _run(rng: random.Random, folder: Path) -> Told:
    name, overrides = pick(rng)
    alone, cut, kills = whole(name, folder), folder / "cut", []
    lasted = numbers(alone / "summary.json", but=())["wall_seconds"] + 0.5
    for _ in range(rng.randint(1, 3)):
        how = cut_off(rng, cut, lambda: start(cut, overrides), lasted, MOST_WRITES["run"])
        kills.append(how)
        if not cut.exists() or how == "too late":
            continue
        assert no_checkpoint(cut) is None, "a kill left half a checkpoint"
    held = find_checkpoint(cut) is not None
    code = forked(lambda: start(cut, overrides), 120, folder / "cut.txt")
    assert code == 0, (name, kills, code, (folder / "cut.txt").read_text()[-800:])
    if "a3c" in name:  # of several processes: no two runs are the same
        assert numbers(cut / "summary.json")["status"] == "finished"
    else:
        assert_same(alone, cut)
    what = f"{name}; {', '.join(kills)}; {'from a checkpoint' if held else 'anew'}"
    return Told(what, kinds=(name, *kills))


def assert_same(alone: Path, cut: Path) -> None:
    """A run that was cut off left what one that was let alone left, but for times."""
    files = [
        {p.relative_to(run) for p in run.rglob("*") if not p.match("memory/*/*.npy")}
        for run in (alone, cut)
    ]
    assert files[0] == files[1], files[0] ^ files[1]
    assert_same_run(alone, cut)
    for file in ("summary.json", "checkpoints/last/manifest.json"):
        assert numbers(alone / file) == numbers(cut / file), file
    a, b = ((run / "checkpoints/best.ckpt").read_bytes() for run in (alone, cut))
    assert a == b, "best.ckpt"


def _workers(rng: random.Random, folder: Path) -> Told:
    """A3C: one of its workers is killed, or the process above them."""
    name, run = "a3c, cartpole", folder / "run"
    overrides = [*KINDS[name], "trainer.max_env_steps=1000000", "checkpoint.every=500"]
    child = begun(lambda: start(run, overrides), folder / "output")
    main, end = psutil.Process(child), time.monotonic() + 120
    while find_checkpoint(run) is None and time.monotonic() < end:
        time.sleep(0.05)
    below = [p for p in main.children(recursive=True) if _is_worker(p)]
    workers = below[-2:]
    time.sleep(rng.random())
    if rng.random() < 0.5:
        how = "a worker"
        rng.choice(workers).kill()
        code = waited(child, 60)
        said = (folder / "output").read_text().splitlines()
        told = [line for line in said if line.startswith("rlmem: ")]
        assert (code, len(told)) == (2, 1), (code, said[-5:])
        assert "worker" in told[0], told
    else:
        how = "above its workers"
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    _, alive = psutil.wait_procs(below, 60)
    assert not alive, f"{how}: {alive} go on"
    assert find_checkpoint(run) is not None
    assert no_checkpoint(run) is None
    steps = numbers(run / "checkpoints/last/manifest.json")["env_steps"]
    longer = [*overrides, f"trainer.max_env_steps={steps + 300}"]
    code = forked(lambda: start(run, longer), 120, folder / "again")
    assert code == 0, (how, (folder / "again").read_text()[-800:])
    assert numbers(run / "summary.json")["status"] == "finished"
    return Told(f"{name}: {how} killed", kinds=(name, how))


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return False


def _commanded(argv: list[str]) -> int:
    code, said = command(argv)
    print(said)
    return code


def _sweep(rng: random.Random, folder: Path) -> Told:
    """Four jobs by one command; the same command goes on."""

    def sweep(place: Path) -> int:
        return _commanded([*SWEEP, f"hydra.sweep.dir={place}"])

    alone, cut, kills = made("sweep", folder, sweep), folder / "cut", []
    for _ in range(rng.randint(1, 3)):
        kills.append(cut_off(rng, cut, lambda: sweep(cut), 12, MOST_WRITES["sweep"]))
    code = forked(lambda: sweep(cut), 200, folder / "cut.txt")
    assert code == 0, (kills, code, (folder / "cut.txt").read_text()[-800:])
    return _compared("sweep", alone, cut, kills)


def _study_trial(rng: random.Random, folder: Path) -> Told:
    """Three jobs in other processes, of which one begins with what another left."""

    def study(place: Path) -> int:
        place.mkdir(exist_ok=True)
        (place / "study.yaml").write_text(STUDY)
        return _study(str(place), "", 2)

    alone, cut, kills = made("study", folder, study), folder / "cut", []
    for _ in range(rng.randint(1, 2)):
        child = begun(lambda: study(cut), folder / "cut.txt")
        time.sleep(rng.random() * 30)
        code = kill(child)
        assert code in (0, -signal.SIGKILL), (code, (folder / "cut.txt").read_text()[-800:])
        kills.append("too late" if code == 0 else "at random")
    code = forked(lambda: study(cut), 200, folder / "cut.txt")
    assert code == 0, (kills, code, (folder / "cut.txt").read_text()[-800:])
    assert (alone / "results.csv").exists(), "no record"
    return _compared("study", alone, cut, kills)


def _compared(name: str, alone: Path, cut: Path, kills: list[str]) -> Told:
    """The runs of a sweep or study are those of one that was let alone."""
    runs = [{p.parent.relative_to(f) for p in f.rglob("summary.json")} for f in (alone, cut)]
    assert runs[0] == runs[1], (name, runs)
    for run in runs[0]:
        assert_same(alone / run, cut / run)
    return Told(f"{name}; {', '.join(kills)}", kinds=(name, *kills))
