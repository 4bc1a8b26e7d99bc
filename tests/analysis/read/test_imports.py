"""What a look at a sweep's files may load: it would take longer than the look."""

import subprocess
import sys

import pytest

MODULES = ["collection", "external", "record", "runs", "sweeps"]
HEAVY = {"numpy", "pandas", "scipy", "matplotlib", "torch", "lightning", "hydra", "omegaconf"}


@pytest.mark.parametrize(
    "module", [*(f"rlmem.analysis.read.{name}" for name in MODULES), "rlmem.analysis.show.status"]
)
def test_importing_it_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert module in loaded.stdout.split()
    assert not HEAVY & set(loaded.stdout.split())
