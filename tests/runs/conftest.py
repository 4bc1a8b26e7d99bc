"""A run that was stopped, for the tests that go on with it."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.runs.helpers import CARTPOLE, stopped


@pytest.fixture(scope="session")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of CartPole with PER, stopped at 201 env steps. Copy it to go on with it."""
    folder = tmp_path_factory.mktemp("interrupted") / "run"
    with pytest.MonkeyPatch.context() as patch:
        stopped(patch, 201, folder, *CARTPOLE)
    return folder


@pytest.fixture
def copy(interrupted: Path, tmp_path: Path) -> Path:
    """A copy of the stopped run."""
    return Path(shutil.copytree(interrupted, tmp_path / "runs" / "cut"))


@pytest.fixture(autouse=True)
def no_training_outlives_its_test() -> Iterator[None]:
    """One that a failed test left would go on for hours beside the others."""
    yield
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if any(word.endswith(("train.py", "study_main()")) for word in child.cmdline()):
                for process in [*child.children(recursive=True), child]:
                    process.kill()
