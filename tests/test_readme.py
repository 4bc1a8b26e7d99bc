"""The README's examples, run as they stand; the commands of all pages, as bash and as settings."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.settings import settings

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "README.md"
PAGES = [PAGE, *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
# Marks of commands that need a folder, a part or an environment of one's own, or a sweep.
NOT_COMPOSED = ("resume=", "plugins=", "hydra", "=A", "objective=", "package:Name-v0")


def commands() -> Iterator[str]:
    """The lines of all pages that begin a training, a line that goes on in the next joined."""
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        for line in re.findall(r"^ {4}(python train\.py .*)$", text, re.M):
            if not any(mark in line for mark in NOT_COMPOSED):
                yield line


def one_of(override: str) -> str:
    """An override of a sweep with its first value."""
    key, value = override.split("=", 1)
    value = re.sub(r"^range\((\d+)\)$", "0", value)
    return f"{key}={value.split(',')[0] if value[:1] not in '[{' else value}"


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) > 1


@pytest.mark.slow
@pytest.mark.parametrize("code", EXAMPLES, ids=lambda code: re.findall(r"import (\w+)", code)[-1])
def test_an_example_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "stable_baselines3" in code:
        pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, PAGE.name, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_are_bash(page: Path) -> None:
    text = page.read_text().replace("\\\n", " ")
    lines = re.findall(r"^ {4}(?:\$ )?((?:python|make|pip|rlmem-\w+) .*)$", text, re.M)
    checked = subprocess.run(["bash", "-n"], input="\n".join(lines), capture_output=True, text=True)
    assert not checked.stderr


@pytest.mark.parametrize("command", commands())
def test_a_command_composes(command: str) -> None:
    words = shlex.split(command, comments=True)[2:]
    settings(*(one_of(word) for word in words if word != "-m"))
