"""Runs on a GPU: every kind of agent learns there, goes on bit for bit, and moves to a CPU."""

from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from rlmem.agents.dqn import DQN
from rlmem.agents.recorded import RecordedUpdate
from rlmem.errors import UserError
from rlmem.runs.evaluate import evaluate
from tests.runs.helpers import (
    KEEP,
    TINY,
    TINY_ATARI,
    TINY_GWR,
    assert_same_run,
    run,
    stopped,
    summary_of,
)
from tests.runs.test_nec import NEC
from tests.runs.test_no_replay import PQN, STREAM
from tests.settings import evaluate_settings

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
GPU = ["trainer.accelerator=gpu", "checkpoint.every=120"]
PENDULUM = [
    *(s for s in TINY if not s.startswith(("agent.lr", "agent.target"))),
    "env=gym",
    "env.id=Pendulum-v1",
]
PONG = [*TINY, *TINY_ATARI, "env=pong"]
DRQ = [*PONG, "agent=rainbow", "agent.distribution=none", "agent.target_network=false"]
DRQ += ["agent.noisy=false", "agent.epsilon.start=1", "agent.epsilon.end=0.01"]
DRQ += ["agent.augment.shift=4", "agent.augment.intensity=0.05"]
RUNS = {
    "dqn, none": [*TINY, "memory=none"],
    "dqn, per": [*TINY, "memory=per", "agent.n_step=3", "agent.double=true", "agent.dueling=true"],
    "dqn, gwr": [*TINY, *TINY_GWR],
    "dqn, medqn_r": [*TINY, "memory=medqn_r"],
    "dqn, screens": PONG,
    "rainbow": [*(s for s in PONG if "target" not in s), "agent=rainbow", "memory=per_rainbow"],
    "rainbow, moved screens": DRQ,
    "ddpg": [*PENDULUM, "agent=ddpg"],
    "td3, per": [*PENDULUM, "agent=td3", "memory=per"],
    "nec": NEC,
    "pqn": PQN,
    "stream_q": STREAM,
}
RECORDED = ["dqn, per", "dqn, medqn_r", "dqn, screens", "rainbow", "rainbow, moved screens"]


@pytest.mark.parametrize("own", RUNS.values(), ids=RUNS)
def test_a_run_on_a_gpu_goes_on_bit_for_bit(
    own: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    given = [*own, *GPU, KEEP]
    summary = run(whole, *given, tiny=())
    assert summary["device"] == torch.cuda.get_device_name()
    assert summary["grad_steps"] > 0
    stopped(monkeypatch, 204, cut, *given, tiny=())
    run(cut, *given, f"resume={cut}", tiny=())
    assert_same_run(whole, cut)


def test_a_run_of_a_gpu_goes_on_and_is_scored_on_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped(monkeypatch, 204, tmp_path, *DRQ, *GPU, tiny=())
    assert summary_of(tmp_path)["device"] == torch.cuda.get_device_name()
    resume = ["trainer.accelerator=cpu", f"resume={tmp_path}"]
    summary = run(tmp_path, *DRQ, "checkpoint.every=120", *resume, tiny=())
    assert (summary["status"], summary["device"]) == ("finished", "cpu")
    evaluate(evaluate_settings(f"run={tmp_path}", "episodes=1"))
    scored = capsys.readouterr().out.partition("checkpoint last at 300 env steps")[2]
    assert "(1 episode)" in scored


@pytest.mark.parametrize("own", RECORDED, ids=RECORDED)
def test_a_recorded_update_learns_the_same_bit_for_bit(
    own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, recorded, cut = tmp_path / "plain", tmp_path / "recorded", tmp_path / "cut"
    given, record, made = [*RUNS[own], *GPU, KEEP], RecordedUpdate._record, []
    monkeypatch.setattr(RecordedUpdate, "_record", lambda *call: made.append(1) or record(*call))
    run(plain, *given, tiny=())
    assert not made
    given.append("trainer.compile=true")
    run(recorded, *given, tiny=())
    assert_same_run(plain, recorded)
    assert len(made) == 1
    stopped(monkeypatch, 260, cut, *given, tiny=())
    run(cut, *given, f"resume={cut}", tiny=())
    assert_same_run(plain, cut)
    assert len(made) == 3


def _of_an_update_that_waits(folder: Path) -> str:
    update = DQN._update

    def waiting(agent: DQN, row: Any) -> Any:
        found = update(agent, row)
        found["td_error"].mean().item()
        return found

    with patch.object(DQN, "_update", waiting), pytest.raises(UserError) as raised:
        run(folder, *GPU, "trainer.compile=true")
    return str(raised.value)


def test_an_update_that_waits_for_the_gpu_is_named(tmp_path: Path) -> None:
    """In a process of its own: after a recording that failed torch draws no numbers there."""
    with get_context("spawn").Pool(1) as pool:
        said = pool.apply(_of_an_update_that_waits, (tmp_path,))
    assert said.startswith("trainer.compile=true: the update cannot be recorded on this GPU")
    assert said.endswith("use trainer.compile=false, in a new process")


def test_what_cannot_be_recorded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="on a GPU the update of this agent"):
        run(tmp_path, *PENDULUM, *GPU, "agent=ddpg", "trainer.compile=true", tiny=())


def test_lower_precision_learns_on_a_gpu(tmp_path: Path) -> None:
    summary = run(tmp_path, *DRQ, *GPU, "trainer.precision=bf16-mixed", tiny=())
    assert summary["grad_steps"] > 0
