"""Runs that an earlier version saved: what they lack is today's default, the rest stays theirs."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rlmem.config import run_hydra
from rlmem.config.run_directory import NAMED_BY, run_settings
from rlmem.config.schema import EvaluateSettings
from rlmem.errors import UserError
from rlmem.runs.resume import differences
from tests.settings import settings


def read(values: dict[str, Any], folder: Path) -> Any:
    """The settings of a run that saved these values."""
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    return run_settings(folder, "run=x")


def names_only(node: Any) -> Any:
    """Nested keys without all but those that name parts."""
    below = {key: names_only(value) for key, value in node.items() if isinstance(value, dict)}
    return below | {key: value for key, value in node.items() if key in NAMED_BY}


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["memory=gwr", "env=road_runner", "env/protocol=noframeskip"],
        ["memory=medqn_r", "memory/storage=dense", "env=acrobot", "logger=[csv,wandb]"],
        ["memory/sampler=rank", "env=reacher", "agent=td3", "objective=return_and_bytes"],
        ["env=minatar_freeway", "logger=[]", "memory=none"],
    ],
    ids=" ".join,
)
def test_all_that_a_run_lacks_is_todays_default(command: list[str], tmp_path: Path) -> None:
    asked = settings(*command)
    assert read(names_only(asked.values), tmp_path) == asked


@pytest.mark.parametrize("section", ["trainer", "evaluation", "checkpoint", "log", "threshold"])
def test_a_section_that_a_run_lacks_is_todays(section: str, tmp_path: Path) -> None:
    asked = settings("memory=per", "env=acrobot", "agent.lr=0.002", "seed=4")
    values = {key: value for key, value in asked.values.items() if key != section}
    assert read(values, tmp_path) == asked


def evaluates(cfg: EvaluateSettings) -> None:
    Path("read").write_text(str(run_settings(Path(cfg.run), "run").log.every))


def test_the_command_line_reads_a_run_that_lacks_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {key: value for key, value in settings().values.items() if key != "log"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    monkeypatch.chdir(tmp_path)
    assert run_hydra(evaluates, "evaluate", ["run=."]) == 0
    assert (tmp_path / "read").read_text() == str(settings().log.every)


def test_a_default_that_follows_from_a_key_follows_from_the_saved_one(tmp_path: Path) -> None:
    asked = settings("memory=medqn_u", "trainer.max_env_steps=4321", "agent.batch_size=17")
    values = asked.values
    del values["memory"]["consolidation"]["weight_steps"], values["memory"]["capacity"]
    memory = read(values, tmp_path).memory
    assert (memory.consolidation.weight_steps, memory.capacity) == (4321, 17)


def test_a_part_of_no_known_option_is_given_no_keys_of_another(tmp_path: Path) -> None:
    values = settings("env=gym", "env.id=x").values
    values["env"] |= {"name": "theirs", "suite": "theirs"}
    del values["log"], values["env"]["num_envs"]
    with pytest.raises(UserError, match=r"env\.suite=theirs: no such suite"):
        read(values, tmp_path)
    values["env"]["suite"] = "cartpole"  # an option, but no suite
    with pytest.raises(UserError, match=r"env\.suite=cartpole: no such suite"):
        read(values, tmp_path)


@pytest.mark.parametrize("part", ["agent", "env", "memory"])
def test_a_configuration_without_one_of_the_parts_is_no_runs(part: str, tmp_path: Path) -> None:
    values = {key: value for key, value in settings().values.items() if key != part}
    with pytest.raises(UserError, match=f"{part} is not set"):
        read(values, tmp_path)


def saved_by_an_earlier_version(memory: str) -> dict[str, Any]:
    """Without what came after it, with a key that has gone since."""
    values = settings(f"memory={memory}").values
    del values["plugins"], values["trainer"]["compile"], values["memory"]["kind"]
    values["memory"]["older"] = 1
    return values


@pytest.mark.parametrize(
    ("memory", "kind"),
    [("uniform", "replay"), ("per", "replay"), ("medqn_r", "medqn"), ("gwr_released", "gwr")],
)
def test_a_run_of_an_earlier_version_is_read(memory: str, kind: str, tmp_path: Path) -> None:
    run = read(saved_by_an_earlier_version(memory), tmp_path)
    assert (run.memory.part.name, run.memory.name) == (kind, memory)
    assert (run.plugins, run.trainer.compile) == ([], False)


def test_a_run_of_an_earlier_version_goes_on_and_keeps_what_binds_it() -> None:
    saved = saved_by_an_earlier_version("per")
    assert differences(saved, settings("memory=per")) == ["memory.older was 1, is None"]
    del saved["memory"]["older"]
    assert differences(saved, settings("memory=per")) == []
    assert differences(saved, settings("memory=per", "seed=1")) == ["seed was 0, is 1"]
