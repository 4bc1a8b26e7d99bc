"""How a run begins and ends in its folder: the last save, what is left there, what is compiled."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import rlmem.runs.run
from rlmem.callbacks.checkpoint import Checkpointing, find_checkpoint
from rlmem.collect.collector import Collector
from rlmem.errors import UserError
from tests.runs.helpers import run, stopped, summary_of


@pytest.mark.slow
def test_a_first_signal_during_the_last_save_does_not_cut_it_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, saved = Checkpointing.save, []

    def signalled(self: Checkpointing, agent: Any, **options: Any) -> None:
        if not saved and self.stream.env_steps >= 300:  # the run is over
            os.kill(os.getpid(), signal.SIGTERM)
        saved.append(self.stream.env_steps)
        save(self, agent, **options)

    monkeypatch.setattr(Checkpointing, "save", signalled)
    with pytest.raises(SystemExit) as end:
        run(tmp_path, "checkpoint.every=100000")
    assert end.value.code == 128 + signal.SIGTERM
    assert summary_of(tmp_path)["status"] == "interrupted"
    assert find_checkpoint(tmp_path) is not None
    monkeypatch.undo()
    assert run(tmp_path, f"resume={tmp_path}")["status"] == "finished"


@pytest.mark.slow
def test_an_interrupt_while_lightning_sets_up_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def setup(self: Checkpointing, *args: Any, **options: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Checkpointing, "setup", setup)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert summary_of(tmp_path)["status"] == "interrupted"


@pytest.mark.slow
def test_a_run_whose_folder_is_moved_ends_there_and_goes_on_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, moved = tmp_path / "run", tmp_path / "moved"
    draw = Collector._draw

    def draw_or_move(stream: Collector) -> Any:
        if stream.env_steps == 201:
            folder.rename(moved)
        return draw(stream)

    with monkeypatch.context() as patch:
        patch.setattr(Collector, "_draw", draw_or_move)
        with pytest.raises(UserError, match="was moved, removed or replaced"):
            run(folder, "checkpoint.every=120", "trainer.rounds=1")
    assert not folder.exists()
    assert run(moved, f"resume={moved}", "trainer.rounds=1")["status"] == "finished"


@pytest.mark.slow
def test_in_a_slurm_job_lightning_keeps_to_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its own it would take over SIGUSR1, load what lies in the folder, and refuse 4 tasks."""
    job = {"NTASKS": "4", "JOB_ID": "7", "JOB_NAME": "train.sh", "PROCID": "0", "LOCALID": "0"}
    for name, value in (job | {"NODEID": "0", "NODELIST": "here"}).items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    (tmp_path / "hpc_ckpt_1.ckpt").write_bytes(b"no checkpoint")
    draw = Collector._draw

    def draw_or_end(stream: Collector) -> Any:
        if stream.env_steps == 201:
            os.kill(os.getpid(), signal.SIGUSR1)
        return draw(stream)

    with monkeypatch.context() as patch:
        patch.setattr(Collector, "_draw", draw_or_end)
        with pytest.raises(SystemExit) as end:
            run(tmp_path)
    assert end.value.code == 128 + signal.SIGUSR1
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    assert [*tmp_path.glob("hpc_ckpt_*")] == [tmp_path / "hpc_ckpt_1.ckpt"]
    assert run(tmp_path, f"resume={tmp_path}")["status"] == "finished"


@pytest.mark.slow
def test_the_best_model_of_a_run_without_a_checkpoint_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = tmp_path / "checkpoints/best.ckpt"
    best.parent.mkdir()
    best.write_bytes(b"of another run")
    stopped(monkeypatch, 120, tmp_path)
    assert not best.exists()


@pytest.mark.slow
def test_a_run_that_goes_on_is_compiled_where_the_whole_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        rlmem.runs.run, "compile_update", lambda agent, how, grad_steps: asked.append(grad_steps)
    )
    stopped(monkeypatch, 200, tmp_path)
    run(tmp_path, f"resume={tmp_path}")
    assert len(asked) == 2
    assert asked[0] == asked[1]
