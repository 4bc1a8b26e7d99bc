"""The scripts of docs/howto, run as they stand in an empty folder."""

import re
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "docs" / "howto"
SCRIPTS = {
    f"{page.stem} {number}" if number else page.stem: script
    for page in sorted(FOLDER.glob("*.md"))
    for number, script in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
}


def test_each_way_to_use_a_memory_has_a_script() -> None:
    assert set(SCRIPTS) >= {"budget", "own_loop", "sb3", "torchrl"}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.startswith("sb3"):
        pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    try:
        exec(compile(SCRIPTS[name], f"{name}.md", "exec"), {"__name__": "__main__"})
    finally:
        torch.set_num_threads(threads)
