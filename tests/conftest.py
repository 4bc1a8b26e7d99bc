"""One thread a worker (the suite runs in two processes on two cores), and a run to look at."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Torch may have been imported before this file set the variable."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of CartPole with PER that has finished and kept its memory. Read it, do not write."""
    from tests.runs.helpers import run

    folder = tmp_path_factory.mktemp("finished") / "run"
    run(
        folder,
        "memory=per",
        "evaluation.every=100",
        "evaluation.episodes=2",
        "checkpoint.keep_memory_when_finished=true",
    )
    return folder
