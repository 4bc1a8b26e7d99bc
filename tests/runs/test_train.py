"""Whole runs with tiny settings: every memory, the experiments, failures, sweeps."""

import gc
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml

from rlmem.agents.dqn import DQN
from rlmem.analysis.show.status import read_status
from rlmem.config import run_hydra
from rlmem.errors import UserError, shortage
from rlmem.machine import peak_rss_bytes
from rlmem.memories import ReplayMemory
from rlmem.runs.train import train
from tests.runs.helpers import TINY, TINY_ATARI, TINY_GWR, assert_same_run, rows_of, run, summary_of
from tests.settings import settings

ROOT = Path(__file__).parents[2]
MEMORIES = ["none", "uniform", "cer", "per", "per_rank", "gwr", "medqn_u", "medqn_r"]
slow = pytest.mark.slow


@slow
@pytest.mark.parametrize("memory", MEMORIES)
def test_every_memory_trains_on_cartpole(memory: str, tmp_path: Path) -> None:
    summary = run(tmp_path, f"memory={memory}")
    assert (summary["status"], summary["memory"]) == ("finished", memory)
    updates = 7 if memory == "none" else 201  # none: one each 32 transitions
    assert (summary["env_steps"], summary["grad_steps"]) == (300, updates)
    assert summary["transitions_seen"] == 300
    assert summary["memory_bytes"] > 0
    assert summary["eval_episodes"] == 1


@slow
@pytest.mark.parametrize("memory", MEMORIES)
def test_the_agents_switches_work_with_every_memory(memory: str, tmp_path: Path) -> None:
    switches = ["agent.n_step=3", "agent.double=true", "agent.dueling=true"]
    summary = run(tmp_path, f"memory={memory}", *switches, "trainer.max_env_steps=200")
    assert summary["status"] == "finished"
    assert summary["grad_steps"] == (4 if memory == "none" else 101)


@slow
def test_several_updates_a_trainer_step_keep_the_ratio(tmp_path: Path) -> None:
    summary = run(tmp_path, "memory=per", "agent.updates_per_step=4", "env.num_envs=2")
    assert summary["env_steps"] == 300
    assert summary["grad_steps"] == 204  # 4 from env step 100 on, every 4


@slow
@pytest.mark.parametrize("memory", ["per", "none", "gwr"])
def test_rounds_share_a_trainer_step_and_change_nothing_else(memory: str, tmp_path: Path) -> None:
    given = [f"memory={memory}", "agent.target_update_every=episode", "log.every=50"]
    given += ["checkpoint.keep_memory_when_finished=true", "evaluation.every=100"]
    run(tmp_path / "one", *given)
    run(tmp_path / "ten", *given, "trainer.rounds=10")
    assert_same_run(tmp_path / "one", tmp_path / "ten")


@slow
@pytest.mark.parametrize(
    "given",
    [
        ["memory=gwr_plain"],
        ["memory=gwr_released", "env.num_envs=1"],
        ["memory=gwr", "memory.prototype=exemplar"],
        ["memory=gwr", "memory.eviction=lru", "memory.capacity=40", "threshold.activation=1"],
        ["memory=gwr", "memory/sampler=uniform"],
        ["memory=gwr", "memory/sampler=prioritized"],
    ],
    ids=" ".join,
)
def test_every_kind_of_map_trains_on_cartpole(given: list[str], tmp_path: Path) -> None:
    summary = run(tmp_path, *given)
    assert (summary["status"], summary["grad_steps"]) == ("finished", 201)
    assert summary["transitions_seen"] == 300
    assert 2 < summary["memory_entries"] < 250
    full = "memory.eviction=lru" in given
    assert (summary["memory_entries"] == 40) == full


@slow
def test_a_released_map_of_exemplars_trains_on_a_real_game(tmp_path: Path) -> None:
    map_ = ["memory=gwr_released", "memory.prototype=exemplar", "memory.metric.scale_samples=100"]
    summary = run(tmp_path, *TINY_ATARI, *map_, "env=pong", "agent.n_step=1")
    assert (summary["status"], summary["grad_steps"]) == ("finished", 26)
    assert 0 < summary["memory_entries"] < 250
    # A node of averages would take 28,224 bytes; the projection's signs 0.9 MB.
    assert summary["memory_bytes"] < 2_500_000


@slow
def test_gwr_trains_on_a_real_game(tmp_path: Path) -> None:
    summary = run(tmp_path, *TINY_ATARI, *TINY_GWR, "env=road_runner")
    assert summary["status"] == "finished"
    assert summary["frames"] == 1200
    assert summary["grad_steps"] == 26
    assert 0 < summary["memory_entries"] < 250
    assert summary["human_normalized_score"] is not None


@slow
def test_the_road_runner_study_runs(tmp_path: Path) -> None:
    study = ["experiment=road_runner_study", "memory.metric.scale_samples=100"]
    summary = run(tmp_path, *study, *TINY_ATARI, "evaluation.every=null")
    assert summary["status"] == "finished"
    assert summary["env_id"] == "ALE/RoadRunner"
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert config["env"]["protocol"]["name"] == "noframeskip"


@slow
def test_minatar_runs(tmp_path: Path) -> None:
    assert run(tmp_path, "env=minatar_breakout", "env.num_envs=1")["env_id"] == "MinAtar/Breakout"


def test_the_config_that_is_left_is_resolved(finished_run: Path) -> None:
    text = (finished_run / "config.yaml").read_text()
    assert "${" not in text
    assert yaml.safe_load(text)["memory"]["sampler"]["beta_steps"] == 300


def test_a_finished_run_can_drop_its_memory(tmp_path: Path) -> None:
    run(tmp_path, "trainer.max_env_steps=120")
    assert (tmp_path / "checkpoints/last/model.safetensors").exists()
    assert not (tmp_path / "checkpoints/last/memory").exists()


def test_a_seed_decides_the_run(tmp_path: Path) -> None:
    returns = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(tmp_path / name, f"seed={seed}")
        rows = rows_of(tmp_path / name / "episodes.csv")
        returns.append([(row["env_steps"], row["return"]) for row in rows])
    assert returns[0] == returns[1] != returns[2]


def test_a_crash_leaves_a_summary_that_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise FloatingPointError("the network has diverged")

    monkeypatch.setattr(DQN, "_update", fail)
    with pytest.raises(FloatingPointError):
        run(tmp_path)
    summary = summary_of(tmp_path)
    assert summary["status"] == "failed"
    assert summary["error"] == "FloatingPointError: the network has diverged"
    assert summary["env_steps"] == 100


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        ValueError("Error: engine error: Could not allocate memory"),  # MuJoCo
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_machine_without_memory_ends_a_run_in_one_line(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise error

    monkeypatch.setattr(DQN, "_update", fail)
    with pytest.raises(UserError, match=r"^there is no memory left; the run cannot go on"):
        run(tmp_path)


def test_a_full_gpu_is_not_the_machines_memory() -> None:
    full = torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB."
    )
    assert shortage(full) == (
        "the GPU's memory is full (Tried to allocate 2.00 GiB): a smaller agent.batch_size or "
        "network takes less"
    )


def test_a_full_shared_memory_is_one_line() -> None:
    full = RuntimeError("unable to allocate shared memory(shm) for file </torch_1>: No space left")
    assert (shortage(full) or "").startswith("/dev/shm is full")


def memories_alive() -> int:
    return sum(type(it) is ReplayMemory for it in gc.get_objects())


@pytest.fixture
def no_chance_collection() -> Iterator[None]:
    """Reference cycles stay until somebody collects them."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_chance_collection")
def test_a_run_begins_without_the_memory_of_the_one_before(tmp_path: Path) -> None:
    before = memories_alive()
    run(tmp_path / "a", "trainer.max_env_steps=120")
    run(tmp_path / "b", "trainer.max_env_steps=120")
    assert memories_alive() == before + 1


@pytest.mark.usefixtures("no_chance_collection")
def test_a_failed_job_of_a_sweep_does_not_keep_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = []

    def fail(*args: object) -> None:
        alive.append(memories_alive())
        raise FloatingPointError("the network has diverged")

    monkeypatch.setattr(DQN, "_update", fail)
    assert run_hydra(train, "train", ["-m", *TINY, "seed=0,1,2", f"hydra.sweep.dir={tmp_path}"])
    assert alive == [alive[0]] * 3


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process's peak stays")
def test_the_peak_is_of_the_run_and_not_of_what_was_before(tmp_path: Path) -> None:
    torch.ones(2**29, dtype=torch.uint8)
    before = peak_rss_bytes()
    assert before - run(tmp_path, "trainer.max_env_steps=120")["peak_rss_bytes"] > 2**28


def test_a_folder_that_holds_a_run_is_not_written_over(tmp_path: Path) -> None:
    run(tmp_path, "trainer.max_env_steps=120")
    before = (tmp_path / "metrics.csv").read_bytes()
    with pytest.raises(UserError, match="holds a run already"):
        run(tmp_path, "trainer.max_env_steps=120", "seed=1")
    assert (tmp_path / "metrics.csv").read_bytes() == before


def test_train_returns_what_a_sweep_optimizes(tmp_path: Path) -> None:
    cfg = settings(*TINY, f"paths.output_dir={tmp_path}")
    assert train(cfg) == summary_of(tmp_path)["eval_return_mean"]


SWEEP = ["-m", *TINY, "memory=uniform,per", "seed=0,1", "trainer.max_env_steps=200"]


def assert_a_run_each(sweep: Path) -> None:
    """Four folders, each with the files of its own job only."""
    found = {
        (summary_of(job)["memory"], summary_of(job)["seed"]): job
        for job in (file.parent for file in sweep.glob("*/summary.json"))
    }
    assert found.keys() == {(m, s) for m in ("uniform", "per") for s in (0, 1)}
    for (memory, seed), job in found.items():
        assert summary_of(job)["status"] == "finished"
        assert [row["env_steps"] for row in rows_of(job / "metrics.csv")] == ["100", "200"]
        assert {row["env_steps"] for row in rows_of(job / "evaluations.csv")} == {"200"}
        assert int(rows_of(job / "episodes.csv")[0]["episode"]) == 1
        config = yaml.safe_load((job / "config.yaml").read_text())
        assert (config["memory"]["name"], config["seed"]) == (memory, seed)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of four jobs that the basic launcher has run."""
    folder = tmp_path_factory.mktemp("sweep") / "of runs"
    assert run_hydra(train, "train", [*SWEEP, f"hydra.sweep.dir='{folder}'"]) == 0
    return folder


@slow
def test_the_jobs_of_a_sweep_leave_their_own_files(sweep: Path) -> None:
    assert_a_run_each(sweep)


@slow
def test_the_same_sweep_again_skips_what_has_finished(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {file: file.stat().st_mtime_ns for file in sweep.glob("*/summary.json")}
    assert run_hydra(train, "train", [*SWEEP, f"hydra.sweep.dir='{sweep}'"]) == 0
    assert capsys.readouterr().out.count("finished already: ") == 4
    assert {file: file.stat().st_mtime_ns for file in sweep.glob("*/summary.json")} == before


@slow
def test_the_joblib_launcher_keeps_its_jobs_apart(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    launcher = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    done = subprocess.run(
        [sys.executable, ROOT / "train.py", *SWEEP, *launcher, f"hydra.sweep.dir={tmp_path}"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert_a_run_each(tmp_path)
    status = read_status(tmp_path)
    assert status.counts["done"] == len(status.jobs) == 4


def test_a_run_says_where_it_is_and_what_its_memory_will_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, "trainer.max_env_steps=120")
    out = capsys.readouterr().out
    assert f"run directory: {tmp_path}" in out
    assert re.search(r"memory when full \(10,000 transitions\): [\d.]+ KiB", out)
    assert re.search(r"^status +finished$", out, re.MULTILINE)
    assert "nothing was learned" not in out


def test_a_run_whose_episodes_are_all_cut_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CartPole's last at least 8 steps; 25 env steps of 5 envs are 5 of each."""
    summary = run(tmp_path, "checkpoint.reseed_every=25", "env.num_envs=5", "agent.train_every=5")
    assert summary["episodes"] == 0
    said = "WARNING: no training episode ended: checkpoint.reseed_every=25 cuts those of env.num_e"
    assert said in capsys.readouterr().out


def test_a_run_that_makes_no_update_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A map of images begins once it has measured a thousand of them."""
    run(tmp_path, "env=mini_maze", "env.observation=pixels", "env.cell=1", "memory=gwr")
    out = capsys.readouterr().out
    assert re.search(r"^gradient steps +0$", out, re.MULTILINE)
    assert "WARNING: nothing was learned: in 300 env steps memory=gwr had no minibatch" in out


def test_keys_without_effect_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that the user gave, and not what an experiment or a default sets."""
    given = settings(
        *TINY, "memory=per", "memory.sampler.beta_end=.4", f"paths.output_dir={tmp_path}"
    )
    given.overrides = ["memory.sampler.beta_steps=7", "memory.sampler.alpha=.5"]
    train(given)
    lines = [line for line in capsys.readouterr().out.splitlines() if "has no effect" in line]
    why = "memory.sampler.beta_start=0.4 and memory.sampler.beta_end=0.4"
    assert lines == [f"WARNING: memory.sampler.beta_steps=7: has no effect with {why}"]


def test_thresholds_that_nobody_reads_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for memory, told in (("per", True), ("gwr", False)):
        given = settings(*TINY, f"memory={memory}", f"paths.output_dir={tmp_path / memory}")
        given.overrides = [f"memory={memory}", "threshold.activation=0.5"]
        train(given)
        line = f"WARNING: threshold.activation=0.5: memory={memory} reads no thresholds; memory=gwr"
        assert (line in capsys.readouterr().out) == told
