"""What a run of workers counts is what they have done, heard of or not."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from rlmem.callbacks import evaluation
from rlmem.collect import workers
from rlmem.errors import UserError
from tests.runs.helpers import rows_of, run, summary_of

TINY = [
    *("agent=a3c", "env=cartpole", "agent.n_step=5", "agent.network.hidden=[16]"),
    *("checkpoint.every=100000", "log.every=100000", "log.progress=false"),
    *("trainer.accelerator=cpu", "evaluation.episodes=1"),
]
ROUNDS = 60  # of a worker that then ends


def worker_that_ends(how: str, *of_worker: Any) -> None:
    """In a worker's place: it never reports by itself, and its last round does not end."""
    from rlmem.agents.a3c_worker import A3CWorker
    from rlmem.collect import worker

    play = A3CWorker.round

    def round_or_end(self: A3CWorker, report: Any) -> int:
        if self.desk.updates_made() == ROUNDS:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("the emulator is gone")
        return play(self, report)

    A3CWorker.round, worker.REPORT_SECONDS = round_or_end, 1e9
    worker.work(*of_worker)


def killed(*of_worker: Any) -> None:
    worker_that_ends("killed", *of_worker)


def raised(*of_worker: Any) -> None:
    worker_that_ends("raised", *of_worker)


@pytest.mark.slow
@pytest.mark.parametrize("how", [killed, raised])
def test_what_a_worker_did_before_it_ended_is_counted_and_gone_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any
) -> None:
    tiny = [*TINY, "agent.workers=1", "trainer.max_env_steps=1000"]
    lost, peaks = workers.WorkerStream._lost, []

    def noting(stream: workers.WorkerStream, process: Any, why: str) -> None:
        peaks.append(stream.peak_rss_bytes)
        lost(stream, process, why)

    with monkeypatch.context() as patch:
        patch.setattr(workers, "work", how)
        patch.setattr(workers.WorkerStream, "_lost", noting)
        with pytest.raises(UserError, match="worker 0 of 1 ended"):
            run(tmp_path, tiny=tiny)
    ended = summary_of(tmp_path)
    assert ended["grad_steps"] == ROUNDS
    assert ROUNDS < ended["env_steps"] == ended["transitions_seen"] <= 5 * ROUNDS
    episodes = rows_of(tmp_path / "episodes.csv")
    assert len(episodes) == ended["episodes"]
    if how is raised:  # no report of a killed one comes
        assert 0 <= ended["env_steps"] - sum(int(row["length"]) for row in episodes) <= 500
        assert len(episodes) > 3
        assert peaks[0] > 2**26
    summary = run(tmp_path, f"resume={tmp_path}", tiny=tiny)
    rows = rows_of(tmp_path / "episodes.csv")
    assert rows[: len(episodes)] == episodes
    assert [int(row["episode"]) for row in rows] == [*range(1, summary["episodes"] + 1)]


@pytest.mark.slow
def test_an_evaluation_is_of_the_moment_of_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers play on while one lasts, and what they then report is not all heard at once."""
    evaluate, play = evaluation.Evaluation.evaluate, evaluation.evaluate_policy
    behind, meanwhile = [], []

    def noting(self: Any, agent: Any) -> None:
        counted = self.stream._desk.env_steps
        behind.append(counted() - self.stream.env_steps)
        before = counted()
        evaluate(self, agent)
        meanwhile.append(counted() - before)
        if len(meanwhile) == 5:  # enough, however many steps a machine made meanwhile
            self.stream.stop_requested = True

    def slow(*options: Any, **more: Any) -> Any:
        time.sleep(1.0)
        return play(*options, **more)

    monkeypatch.setattr(evaluation.Evaluation, "evaluate", noting)
    monkeypatch.setattr(evaluation, "evaluate_policy", slow)
    often = ["agent.workers=2", "trainer.max_env_steps=10000000", "evaluation.every=100"]
    run(tmp_path, tiny=[*TINY, *often])
    assert len(behind) == 6  # and the last one, of the end
    assert max(behind) < max(meanwhile) / 4
