"""The README's examples, run as they stand; the commands of all pages, as bash and as settings."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.settings import settings
from tests.torture.runner import forked
from tests.torture.runs import command

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


def pasted() -> list[str]:
    """The README's commands in their order, but for those of make and pip."""
    return re.findall(r"^ {4}(python .*)$", PAGE.read_text(), re.M)


# What makes a pasted command short: none of its words, but how long its runs are, and how many.
ATARI = (
    "trainer.max_env_steps=1100 evaluation.episodes=1 agent=dqn agent.learning_starts=1090 "
    "env.protocol.max_frames=400"
)
SHORT = {
    "env=road_runner": ATARI,
    "env=pong": ATARI,
    "env=cartpole": "trainer.max_env_steps=300 evaluation.episodes=1 agent.learning_starts=100",
}
FEWER = {"seed=0,1,2": "seed=0", "range(5)": "range(2)", "episodes=10": "episodes=1"}


def one_of(override: str) -> str:
    """An override of a sweep with its first value."""
    key, value = override.split("=", 1)
    value = re.sub(r"^range\((\d+)\)$", "0", value)
    return f"{key}={value.split(',')[0] if value[:1] not in '[{' else value}"


def test_the_pages_have_examples_and_commands() -> None:
    assert len(EXAMPLES) > 1
    assert len([*commands()]) > 40


@pytest.mark.slow
@pytest.mark.parametrize("code", EXAMPLES, ids=lambda code: re.findall(r"import (\w+)", code)[-1])
def test_an_example_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "stable_baselines3" in code:
        pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, PAGE.name, "exec"), {"__name__": "__main__"})


@pytest.mark.slow
def test_every_command_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    """In an empty folder, one after the other, as they stand but for their length: the first in
    bash, the others as the words that it would give them, in forks of this process."""
    (tmp_path / "train.py").write_text("from rlmem.cli import train_main\ntrain_main()\n")
    scripts = tmp_path / "bin"
    scripts.mkdir()
    (scripts / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (scripts / "python").chmod(0o755)
    env = os.environ | {
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    assert len(pasted()) > 7
    for number, whole in enumerate(pasted()):
        line, _, comment = whole.partition("#")
        for many, few in FEWER.items():
            line = line.replace(many, few)
        short = next((more for mark, more in SHORT.items() if mark in line), "")
        said = tmp_path / f"said_{number}.txt"
        if number == 0:
            bash = ["bash", "-c", f"{line} {short} # {comment}"]
            with said.open("w") as file:
                code = subprocess.run(
                    bash, cwd=tmp_path, env=env, stdout=file, stderr=file, check=False
                ).returncode
        else:
            program, script, *words = shlex.split(f"{line} {short}")
            assert program == "python"
            code = forked(partial(called, tmp_path, script, words), 600, said)
        assert code == 0, f"{whole}\n{said.read_text()[-3000:]}"


def called(folder: Path, script: str, words: list[str]) -> int:
    """The exit code of `python train.py` or `python evaluate.py` in a folder."""
    os.chdir(folder)
    code, said = command(words, script.removesuffix(".py"))
    print(said)
    return code


def test_the_extras_that_can_be_installed_are_those_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"\"\.\[(\w+)\]\"", PAGE.read_text())
    assert len(named) > 4
    assert set(named) <= set(declared["optional-dependencies"])


def test_the_commands_of_make_are_there() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert set(re.findall(r"make ([a-z]+)\b(?= |`|$)", PAGE.read_text(), re.M)) <= set(targets)


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text().splitlines()) <= 200


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_are_bash(page: Path) -> None:
    text = page.read_text().replace("\\\n", " ")
    lines = re.findall(r"^ {4}(?:\$ )?((?:python|make|pip|rlmem-\w+) .*)$", text, re.M)
    checked = subprocess.run(["bash", "-n"], input="\n".join(lines), capture_output=True, text=True)
    assert not checked.stderr


@pytest.mark.parametrize("line", commands())
def test_a_command_composes(line: str) -> None:
    words = shlex.split(line, comments=True)[2:]
    settings(*(one_of(word) for word in words if word != "-m"))
