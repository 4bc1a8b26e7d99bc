"""What is measured: the contenders of each benchmark, and the speeds that are aimed at."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from episodic_keys import ensure as make_keys
from record_frames import ensure

HERE = Path(__file__).resolve().parent
FASTEST_PEER = "the fastest peer"
SPEED = {"env_steps_per_second": 1}
PLAIN = "plain PyTorch, figures"


@dataclass
class Contender:
    """A command that prints one JSON line, and what came of it."""

    name: str
    command: list[str]
    peer: bool = False  # another library: asked for with --peers
    runs: list[dict[str, float]] = field(default_factory=list)  # metric -> value, a repeat each
    versions: dict[str, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Target:
    """What a contender should reach.

    Attributes:
        over: that it is divided by: a contender, FASTEST_PEER, or "": its metric is meant itself.
        bound: the least that is wanted, with `most` the most.
    """

    contender: str
    over: str
    bound: float
    metric: str = "env_steps_per_second"
    most: bool = False


@dataclass(frozen=True)
class Benchmark:
    """Contenders and the one that the others are divided by, "" for none."""

    contenders: list[Contender]
    baseline: str
    digits: dict[str, int]  # metric -> decimals in the table
    targets: tuple[Target, ...] = ()


def loop(name: str, path: str, *options: str) -> Contender:
    """A training run of one task."""
    return Contender(name, [path, *options], peer=path.startswith("peers"))


def listed(path: str, baseline: str, digits: dict[str, int], own: str = "") -> Benchmark:
    """The contenders that a script names itself with `--list`.

    Args:
        own: names of those that are no other library's, a,b; empty: all of them.
    """
    command = [sys.executable, str(HERE / path), "--list"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    ours = own.split(",") if own else names
    contenders = [Contender(n, [path, "--contender", n], peer=n not in ours) for n in names]
    return Benchmark(contenders, baseline, digits)


def cartpole() -> Benchmark:
    """DQN on CartPole-v1."""
    task, group = ("--task", "cartpole"), ("--group", "8")
    one = "rlmem, updates_per_step=1"
    contenders = [
        loop("bare", "bare_classic.py"),
        loop("bare, denormal numbers kept", "bare_classic.py", "--denormals"),
        loop("bare, groups of 8", "bare_classic.py", *group),
        loop(one, "rlmem_train.py", *task),
        loop("rlmem per, updates_per_step=1", "rlmem_train.py", *task, "--memory", "per"),
        loop(f"{one}, compiled", "rlmem_train.py", *task, "--compile"),
        loop("rlmem, updates_per_step=8", "rlmem_train.py", *task, *group),
        loop("cleanrl style", "peers/cleanrl.py", *task),
        loop("sb3", "peers/sb3.py", *task),
        loop("sb3, groups of 8", "peers/sb3.py", *task, *group),
        loop("torchrl", "peers/torchrl.py", *task),
        loop("torchrl, groups of 8", "peers/torchrl.py", *task, *group),
        loop("tianshou", "peers/tianshou.py", *task),
        loop("tianshou, groups of 8", "peers/tianshou.py", *task, *group),
    ]
    targets = (
        Target(one, "bare", 1.0),
        Target(one, "cleanrl style", 1.4),
        Target("rlmem per, updates_per_step=1", "bare", 0.9),
        Target(f"{one}, compiled", "bare", 1.6),
        Target("rlmem, updates_per_step=8", "bare, groups of 8", 1.15),
    )
    return Benchmark(contenders, "bare", {"env_steps_per_second": 0}, targets)


def atari() -> Benchmark:
    """DQN on RoadRunner."""
    e4, bf16, bare = ("--num-envs", "4"), "--bf16", "bare, 4 envs"
    contenders = [
        loop(bare, "bare_atari.py", *e4),
        loop("bare, 1 env", "bare_atari.py"),
        loop("bare, 4 envs, bf16", "bare_atari.py", *e4, bf16),
        loop("bare, 1 env, bf16", "bare_atari.py", bf16),
        loop("rlmem uniform, 4 envs", "rlmem_train.py", *e4),
        loop("rlmem uniform, frames, 4 envs", "rlmem_train.py", "--storage", "frames", *e4),
        loop("rlmem per, 4 envs", "rlmem_train.py", "--memory", "per", *e4),
        loop("rlmem uniform, 4 envs, bf16", "rlmem_train.py", *e4, bf16),
        loop("sb3, 1 env", "peers/sb3.py"),
        loop("sb3, 4 envs", "peers/sb3.py", *e4),
        loop("sb3, 4 envs, bf16", "peers/sb3.py", *e4, bf16),
        loop("cleanrl style, 1 env", "peers/cleanrl.py"),
        loop("cleanrl style, 1 env, bf16", "peers/cleanrl.py", bf16),
        loop("torchrl, 1 env", "peers/torchrl.py"),
        loop("tianshou, 1 env", "peers/tianshou.py"),
        loop("tianshou, 4 envs", "peers/tianshou.py", *e4),
    ]
    targets = (
        Target("rlmem uniform, 4 envs", bare, 0.97),
        Target("rlmem uniform, 4 envs, bf16", bare, 1.35),
        Target("rlmem uniform, 4 envs, bf16", FASTEST_PEER, 2.0),
    )
    return Benchmark(contenders, bare, SPEED, targets)


def stored() -> Benchmark:
    """DQN on RoadRunner with a memory that has seen 100,000 transitions."""
    options = ("--num-envs", "4", "--stored", "100000")
    rlmem = {m: f"rlmem {m}" for m in ("uniform", "per", "gwr")}
    contenders = [loop("bare", "bare_atari.py", *options)]
    for memory, name in rlmem.items():
        contenders.append(loop(name, "rlmem_train.py", "--memory", memory, *options))
    targets = tuple(Target(rlmem[memory], "bare", 0.95) for memory in ("gwr", "per"))
    return Benchmark(contenders, "bare", SPEED, targets)


def side_by_side() -> Benchmark:
    """Two Atari runs at once on the cores that one has alone."""
    benchmark = listed("side_by_side.py", "one alone", {"slowest": 1, "fastest": 1})
    pairs = [c.name for c in benchmark.contenders if c.name != "one alone"]
    return replace(benchmark, targets=tuple(Target(n, "one alone", 0.45, "slowest") for n in pairs))


def er_study() -> Benchmark:
    """A run of the experience-replay study."""
    benchmark = listed("er_study.py", f"{PLAIN} every 50 steps", {"env_steps_per_second": 0})
    often = [
        Target(f"rlmem, figures {when}", f"{PLAIN} {when}", 1.0)
        for when in ("every 50 steps", "each step")
    ]
    return replace(benchmark, targets=tuple(often))


def pqn() -> Benchmark:
    """PQN on CartPole-v1."""
    benchmark = listed("pqn.py", "bare", {"env_steps_per_second": 0})
    form = next(c.name for c in benchmark.contenders if "form" in c.name)
    targets = (Target("rlmem", form, 1.0), Target("rlmem", "bare", 0.9))
    return replace(benchmark, targets=targets)


def drq() -> Benchmark:
    """DrQ(eps) on RoadRunner."""
    benchmark = listed("drq.py", "bare", {"env_steps_per_second": 1})
    targets = (Target("rlmem", "bare", 0.87), Target("rlmem", "rlmem, frames", 0.97))
    return replace(benchmark, targets=targets)


def startup() -> Benchmark:
    """Commands that should answer at once."""
    digits = {"cpu_seconds": 2, "seconds": 2}
    benchmark = listed("startup.py", "train.py --help", digits)
    quick = [c.name for c in benchmark.contenders if c.name != "first env step"]
    targets = (Target(name, "", 1.0, "cpu_seconds", most=True) for name in quick)
    return replace(benchmark, targets=tuple(targets))


def diagnostics() -> Benchmark:
    """What the replay diagnostics add to a CartPole step."""
    digits = {"us_without": 0, "added_us": 1, "added_percent": 1}
    benchmark = listed("diagnostics.py", "uniform", digits)
    names = [c.name for c in benchmark.contenders]
    targets = (Target(name, "", 3.0, "added_percent", most=True) for name in names)
    return replace(benchmark, targets=tuple(targets))


def bytes_() -> Benchmark:
    """Bytes of a million RoadRunner transitions."""
    ensure("road_runner")  # the other libraries' interpreter cannot record it
    digits = {"gb_a_million": 3, "counted_gb_a_million": 3}
    digits |= {"sample_32_ms": 3, "written_per_second": 0}
    own = "rlmem dense,rlmem frames,rlmem compressed"
    return listed("bytes.py", "rlmem frames", digits, own)


def gwr() -> Benchmark:
    """Showing observations to a map."""
    digits = {"us_at_1000": 0, "us_at_10000": 0, "us_at_50000": 0, "us_mean": 0, "nodes": 0}
    return listed("gwr.py", "all keys", digits)


def storage() -> Benchmark:
    """Reading and writing frames."""
    digits = {"get_32_ms": 3, "written_per_second": 0, "bytes_per_transition": 0}
    return listed("storage.py", "bare ring", digits, "bare ring,rlmem")


def sum_tree() -> Benchmark:
    """Priorities."""
    digits = {"update_32_ms": 4, "draw_32_ms": 4}
    return listed("sum_tree.py", "plain numpy", digits, "plain numpy,rlmem")


def episodic() -> Benchmark:
    """NEC's dictionary: search, writes, speed of a run, bytes."""
    make_keys()
    digits = {"act_ratio": 2, "act_ratio_fastest": 2, "learn_ratio": 2, "write_ratio": 3}
    digits |= {"act_ms": 2, "env_steps_per_second": 0, "counted_over_rss": 3, "mb": 1}
    benchmark = listed("episodic.py", "speed of dqn", digits)
    names = [c.name for c in benchmark.contenders]
    most = {"act_ratio": 0.5, "write_ratio": 0.1}
    targets = [
        Target(name, "", bound, metric, most=True)
        for name in names
        if "keys" in name
        for metric, bound in most.items()
    ]
    targets.append(Target("speed of nec", "speed of dqn", 0.6))
    for name in (n for n in names if n.startswith("bytes")):
        targets.append(Target(name, "", 0.98, "counted_over_rss"))
        targets.append(Target(name, "", 1.02, "counted_over_rss", most=True))
    return replace(benchmark, targets=tuple(targets))


def noisy() -> Benchmark:
    """An action of data-efficient Rainbow with and without noise in its weights."""
    found = listed("noisy.py", "", {"without_us": 0, "noisy_us": 0, "noisy_ratio": 2})
    targets = [Target(c.name, "", 1.3, "noisy_ratio", most=True) for c in found.contenders]
    return replace(found, targets=tuple(targets))


def scaling() -> Benchmark:
    """A run of one process beside one of two, a core each."""
    digits = {"steps_one": 0, "steps_two": 0, "steps_ratio": 2}
    digits |= {"updates_one": 0, "updates_two": 0, "updates_ratio": 2}
    found = listed("scaling.py", "", digits)
    return replace(found, targets=(Target("atari", "", 1.3, "steps_ratio"),))


BENCHMARKS = {  # quick ones first
    **{"startup": startup, "sum_tree": sum_tree, "storage": storage, "bytes": bytes_, "gwr": gwr},
    **{"noisy": noisy, "diagnostics": diagnostics, "er_study": er_study, "episodic": episodic},
    **{"cartpole": cartpole, "pqn": pqn, "drq": drq},
    **{"atari": atari, "side_by_side": side_by_side, "stored": stored, "scaling": scaling},
}
