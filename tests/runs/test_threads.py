"""How many threads a run computes with."""

import json
from pathlib import Path

import psutil
import pytest
import torch
from hydra.types import RunMode
from omegaconf import OmegaConf

from rlmem.networks import make_network
from rlmem.runs import threads
from rlmem.runs.threads import choose_threads, free_cores

SMALL = make_network("mlp", (4,), 2, [8], False, 1.0)
LARGE = make_network("nature", (4, 84, 84), 2, [8], False, 1 / 255)


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "TORCH_THREADS", 4)
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 2, 3})


@pytest.mark.parametrize(("busy", "free"), [(0.0, 4), (25.0, 3), (60.0, 2), (100.0, 1)])
def test_a_run_takes_the_free_cores_where_its_network_gains_from_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: float, free: int
) -> None:
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: busy)
    assert free_cores() == free
    assert choose_threads(None, LARGE, tmp_path) == free
    assert choose_threads(None, SMALL, tmp_path) == 1
    assert choose_threads(3, SMALL, tmp_path) == 3


def test_a_run_takes_no_more_cores_than_its_scheduler_leaves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 0.0)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {1, 3})
    assert free_cores() == 2
    assert choose_threads(None, LARGE, tmp_path) == 2


@pytest.mark.parametrize(
    ("launcher", "count"),
    [
        ({}, 4),  # one after the other
        ({"n_jobs": 2}, 2),
        ({"n_jobs": -1}, 1),
        ({"submitit_folder": "x", "array_parallelism": 64}, 4),  # each job has cores of its own
        ({"submitit_folder": "x"}, 1),  # all start at once
    ],
    ids=["basic", "joblib, two", "joblib, all", "slurm", "submitit here"],
)
def test_jobs_that_start_together_share_the_cores(
    launcher: dict[str, object], count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hydra = OmegaConf.create({"launcher": launcher, "sweeper": {}, "mode": RunMode.MULTIRUN})
    monkeypatch.setattr(threads.HydraConfig, "initialized", lambda: True)
    monkeypatch.setattr(threads.HydraConfig, "get", lambda: hydra)
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 0.0)
    assert choose_threads(None, LARGE, tmp_path) == count


def test_a_resumed_run_goes_on_with_the_threads_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = tmp_path / "checkpoints" / "last"
    last.mkdir(parents=True)
    (last / "manifest.json").touch()
    monkeypatch.setattr(threads, "read_manifest", {last: {"threads": 2}}.get)
    assert choose_threads(None, LARGE, tmp_path) == 2
    assert choose_threads(1, LARGE, tmp_path) == 1


@pytest.mark.slow
def test_the_threads_are_in_the_checkpoint(finished_run: Path) -> None:
    manifest = json.loads((finished_run / "checkpoints" / "last" / "manifest.json").read_text())
    assert manifest["threads"] == torch.get_num_threads() == 1
