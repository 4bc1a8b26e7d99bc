"""The examples of the README, run as they stand."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) > 1


@pytest.mark.slow
@pytest.mark.parametrize("code", EXAMPLES, ids=lambda code: re.findall(r"import (\w+)", code)[-1])
def test_an_example_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "stable_baselines3" in code:
        pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, PAGE.name, "exec"), {"__name__": "__main__"})
