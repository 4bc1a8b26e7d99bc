"""Will the memory fit? The arithmetic before a run."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from rlmem.errors import UserError
from rlmem.memories import FrameStorage, ReplayMemory, RingWriter, UniformSampler
from rlmem.runs import build
from rlmem.runs import preflight as module
from rlmem.runs.preflight import memory_limit, preflight, slow_precision
from tests.settings import settings

GIB = 2**30


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """2 GiB, 1 of them available, without a cgroup; the file that a limit can be written to."""
    usage = SimpleNamespace(total=2 * GIB, available=1 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: usage)
    monkeypatch.setattr(module, "CGROUPS", tmp_path)
    monkeypatch.setattr(module, "OWN_CGROUP", tmp_path / "own")
    return tmp_path / "memory.max"


def frames(capacity: int, budget: str | None = None) -> ReplayMemory:
    storage = FrameStorage(capacity, (1, 84, 84), np.uint8, stack=4)
    return ReplayMemory(storage, UniformSampler(), RingWriter(), seed=0, budget=budget)


def test_the_limit_is_the_machines_memory(machine: Path) -> None:
    assert memory_limit() == (2 * GIB, "the machine's memory")


@pytest.mark.parametrize("text", ["max\n", f"{64 * GIB}\n"])
def test_a_cgroup_without_a_lower_limit_does_not_count(machine: Path, text: str) -> None:
    machine.write_text(text)
    assert memory_limit() == (2 * GIB, "the machine's memory")


def test_a_cgroups_limit_counts(machine: Path) -> None:
    machine.write_text(f"{GIB // 2}\n")
    assert memory_limit() == (GIB // 2, "the cgroup's limit")


@pytest.mark.parametrize(
    ("own", "limits"),
    [
        ("0::/slurm/job_7\n", {"slurm/job_7/memory.max": "max\n", "slurm/memory.max": GIB // 4}),
        ("4:memory:/job_7\n", {"memory/job_7/memory.limit_in_bytes": GIB // 4}),
    ],
)
def test_the_limits_of_a_job_lie_below_the_root(
    machine: Path, own: str, limits: dict[str, Any]
) -> None:
    (machine.parent / "own").write_text(own)
    for name, limit in limits.items():
        path = machine.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(limit))
    assert memory_limit() == (GIB // 4, "the cgroup's limit")


def test_a_memory_that_fits_is_one_line_with_its_bytes(machine: Path) -> None:
    assert preflight(frames(100_000)) == (
        "memory when full (100,000 transitions): 675.1 MiB, most of it frames; "
        "the machine's memory: 2.0 GiB, 1.0 GiB available"
    )


def test_entries_that_do_not_compress_are_told_apart_and_warned_of(machine: Path) -> None:
    given = ["agent=nec", "env=pong", "memory.capacity=1000", "env.num_envs=1"]
    told = []
    for entries in (100_000, 500_000):
        cfg = settings(*given, f"memory.entries={entries}")
        spec = build.build_env(cfg).spec
        agent = build.build_agent(cfg, spec)
        told.append(preflight(build.build_memory(cfg, spec, agent.columns())))
    assert re.match(
        r"memory when full \(600,000 entries, 1,000 transitions\): \d+.\d MiB, and far below "
        r"\d+.\d MiB, as far as frames compress; [^\n]+$",
        told[0],
    )
    assert "WARNING: that is more than there is" in told[1]
    assert told[1].endswith("Use memory.budget=819.2MiB or less.")  # it is compressed already


def test_a_run_that_comes_to_more_than_the_machine_has_is_refused_with_the_size(
    machine: Path,
) -> None:
    machine.write_text("max")
    with pytest.raises(UserError) as refused:
        preflight(frames(600_000), env_steps=600_000)
    assert re.match(
        r"memory\.capacity=600000: 4\.0 GiB by the end of the run, "
        r"more than the machine's memory of 2\.0 GiB; "
        r"use memory\.capacity=\d+ or less, or memory/storage=compressed, or "
        r"memory/storage=memmap memory\.storage\.directory=FOLDER$",
        str(refused.value),
    )
    assert "WARNING" in preflight(frames(600_000), env_steps=200_000)  # never fills


def test_a_budget_is_advised_where_entries_take_most(machine: Path) -> None:
    cfg = settings("agent=nec", "env=cartpole", "memory.entries=5000000", "memory.capacity=1000")
    spec = build.build_env(cfg).spec
    memory = build.build_memory(cfg, spec, build.build_agent(cfg, spec).columns())
    assert preflight(memory).endswith("Use memory.budget=819.2MiB or less.")


def test_entries_that_a_run_may_never_have_are_warned_of_and_not_refused(machine: Path) -> None:
    cfg = settings("agent=nec", "env=pong", "memory.entries=5000000", "env.num_envs=1")
    spec = build.build_env(cfg).spec
    memory = build.build_memory(cfg, spec, build.build_agent(cfg, spec).columns())
    assert "WARNING" in preflight(memory, env_steps=100_000)


@pytest.mark.parametrize("limit", [GIB // 2, 64 * GIB], ids=["cgroup", "available"])
def test_a_memory_that_does_not_fit_is_warned_of_with_a_capacity_that_does(
    machine: Path, limit: int
) -> None:
    machine.write_text(str(limit))
    text = preflight(frames(300_000))
    assert "WARNING: that is more than there is" in text
    fits = int(re.search(r"memory\.capacity=(\d+)", text)[1])
    assert fits > 40_000
    assert "WARNING" not in preflight(frames(fits))


@pytest.mark.parametrize("limit", [GIB // 2, 64 * GIB], ids=["cgroup", "available"])
def test_a_budget_that_does_not_fit_is_warned_of_with_one_that_does(
    machine: Path, limit: int
) -> None:
    machine.write_text(str(limit))

    def told(budget: str) -> str:
        return preflight(frames(1_000_000, budget))

    text = told("4GiB")
    assert "WARNING: that is more than there is" in text
    assert "WARNING" not in told(re.search(r"Use memory\.budget=(\S+) or less", text)[1])


def test_jobs_that_run_at_once_share_what_there_is(machine: Path) -> None:
    machine.write_text("max")
    memory = frames(100_000)
    assert "WARNING" not in preflight(memory, jobs=3)
    text = preflight(memory, jobs=4)
    assert "\nWARNING: 4 jobs run at once, and all together 2.6 GiB are more than there is" in text
    assert text.endswith("or fewer jobs at once.")
    fits = int(re.search(r"memory\.capacity=(\d+)", text)[1])
    assert "WARNING" not in preflight(frames(fits), jobs=4)
    assert "WARNING: that is more" in preflight(frames(300_000), jobs=4)  # one is too large already


@pytest.mark.parametrize(
    ("has", "precision", "device", "warned"),
    [
        (False, "bf16-mixed", "cpu", True),
        (True, "bf16-mixed", "cpu", False),
        (False, "bf16-mixed", "cuda", False),
        (False, "32-true", "cpu", False),
    ],
)
def test_a_precision_that_the_processor_imitates_is_warned_of(
    has: bool, precision: str, device: str, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = {"architecture": "x86_64", "avx512_bw": has}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor)
    told = slow_precision(precision, device)
    assert (told is not None) == warned
