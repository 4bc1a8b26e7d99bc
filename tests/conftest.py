"""One thread a worker (the suite runs in two processes on two cores), and a run to look at."""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A machine may be slow, so no seconds count. The same cases each time, so that a failure is of what
# was changed; others are tried by `--hypothesis-profile=new_cases`.
NO_SECONDS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same_cases", NO_SECONDS, derandomize=True)
settings.register_profile("new_cases", NO_SECONDS)
settings.load_profile("same_cases")
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_finish() -> None:
    """What the tests have imported stays to the end: a run, which begins with a full collection of
    garbage, need not go through it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Torch may have been imported before this file set the variable."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def parts_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the test's plugins, modules in `tmp_path`, declare is forgotten after it."""
    from hydra.core.config_store import ConfigStore

    from rlmem import registry

    for room in registry.ROOMS:  # their modules declare their parts once, so before the copy
        registry.parts(room)
    monkeypatch.setattr(registry, "_parts", {g: dict(p) for g, p in registry._parts.items()})
    monkeypatch.setattr(registry, "_opened", set(registry._opened))
    monkeypatch.setattr(ConfigStore.instance(), "repo", {**ConfigStore.instance().repo})
    yield
    for name, module in list(sys.modules.items()):
        places = [vars(module).get("__file__"), *vars(module).get("__path__", [])]
        if any(str(place).startswith(f"{tmp_path}{os.sep}") for place in places):
            del sys.modules[name]


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
