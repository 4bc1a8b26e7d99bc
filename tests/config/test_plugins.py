"""Parts of somebody's own: named on the command line, configured by their settings or a yaml."""

import importlib
import re
import sys
import types
from pathlib import Path

import pytest
import yaml

from rlmem import registry
from rlmem.config import run_hydra
from rlmem.config.run_directory import run_settings
from rlmem.config.schema import TrainSettings
from rlmem.errors import UserError
from rlmem.runs.resume import write_config
from tests.settings import settings

PLUGIN = """
from dataclasses import dataclass

from rlmem.memories.replay import Replay, ReplaySettings
from rlmem.memories.samplers.uniform import UniformSampler
from rlmem.registry import part
from rlmem.settings import Settings, part_of, setting


@dataclass(kw_only=True)
class ReservoirSettings(ReplaySettings):
    share: float = setting(0.5, at_least=0, at_most=1, help="of new transitions that are kept")


@part("memory", "reservoir", settings=ReservoirSettings)
class Reservoir(Replay):
    pass


@dataclass
class EchoSettings(Settings):
    every: int = setting(10, at_least=1)


@part("callbacks", "echo", settings=EchoSettings)
class Echo:
    def __init__(self, settings, run, run_dir):
        self.every = settings.every


@part("memory/sampler", "oldest")
class Oldest:
    pass


@dataclass(kw_only=True)
class FadingSettings(Settings):
    half_life: int = setting(1000, at_least=1)


@part("memory/sampler", "fading", settings=FadingSettings)
class Fading(UniformSampler):
    def __init__(self, half_life=1000):
        self.half_life = half_life


@dataclass(kw_only=True)
class TwoSettings(ReplaySettings):
    second: object = part_of("memory/sampler", option="rank")


@part("memory", "two", settings=TwoSettings)
class Two(Replay):
    pass
"""


@pytest.fixture(autouse=True)
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts_of_this_test: None) -> Path:
    """`mine.py` in the current folder; what it declares is forgotten after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "mine.py").write_text(PLUGIN)
    return tmp_path / "mine.py"


def given(*overrides: str) -> TrainSettings:
    return settings("plugins=[mine]", *overrides)


def test_a_part_without_a_yaml_has_the_defaults_of_its_settings() -> None:
    run = given("memory=reservoir")
    assert (run.memory.part.name, run.memory.name, run.memory.share) == (
        "reservoir",
        "reservoir",
        0.5,
    )
    assert run.memory.capacity == run.env.recommended["capacity"]  # of what it extends
    assert given("memory=reservoir", "memory.share=0.25").memory.share == 0.25
    assert given("memory=reservoir", "memory/sampler=rank").memory.sampler.part.name == "rank"
    assert given("memory/sampler=oldest").memory.sampler.part.name == "oldest"


def test_the_keys_of_a_sampler_are_its_constructors_arguments() -> None:
    chosen = given("memory/sampler=fading", "memory.sampler.half_life=5").memory.sampler
    assert chosen.build(None, 100).half_life == 5


def test_a_part_below_may_have_a_key_of_another_name() -> None:
    assert given("memory=two").memory.second.part.name == "rank"
    chosen = given("memory=two", "memory/sampler@memory.second=uniform").memory
    assert (chosen.second.part.name, chosen.sampler.part.name) == ("uniform", "uniform")


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["memory=reservoir", "memory.share=2"], "memory.share=2.0: must be at least 0 and at mos"),
        (["memory=reservoir", "memory.shar=1"], "memory.shar=1: no such key in memory; did you me"),
        (["memory=reservoi"], "memory=reservoi: no such memory; did you mean reservoir?"),
        (["memory=gwr", "memory/sampler=oldest"], "memory/sampler=oldest: does not go with memory"),
    ],
)
def test_a_mistake_in_a_plugins_part_is_one_line(overrides: list[str], line: str) -> None:
    with pytest.raises(UserError) as error:
        given(*overrides)
    assert str(error.value).startswith(line)


def test_a_yaml_beside_the_module_is_its_option(plugin: Path) -> None:
    folder = plugin.parent / "conf" / "memory"
    folder.mkdir(parents=True)
    content = {"defaults": ["uniform", "_self_"], "kind": "reservoir", "name": "half", "share": 0.4}
    (folder / "reservoir.yaml").write_text(yaml.safe_dump(content))
    memory = given("memory=reservoir").memory
    assert (memory.name, memory.share) == ("half", 0.4)


def test_a_callback_is_chosen_by_its_name() -> None:
    (echo,) = given("callbacks=echo", "callbacks.echo.every=3").callbacks.values()
    assert echo.build(None, None).every == 3


def test_a_run_is_read_only_with_its_plugins_named_again(tmp_path: Path) -> None:
    run = given("memory=reservoir")
    write_config(run, tmp_path)
    assert run_settings(tmp_path, "run=x") == run
    registry._parts["memory"].pop("reservoir")
    with pytest.raises(UserError, match=re.escape("made with plugins=['mine']: name them again")):
        run_settings(tmp_path, "run=x")


def names(run: TrainSettings) -> None:
    Path("chosen").write_text(run.memory.part.name)


def test_the_command_line_takes_plugins(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_hydra(names, "train", ["plugins=[mine]", "memory=reservoir"]) == 0
    assert Path("chosen").read_text() == "reservoir"
    assert run_hydra(names, "train", ["plugins=[theirs]"]) == 2
    err = capfd.readouterr().err
    assert err.startswith("rlmem: plugins=[theirs]: cannot be imported (No module named 'theirs');")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("code", "why"),
    [
        # W&B, where it has run in this process, exits with a 0.
        ("import sys; sys.exit()", "SystemExit(: 0)? in line 1"),
        ("import json\n\njson.loads('{')", "JSONDecodeError: Expecting .* in line 3"),
        (
            "import os\n\nos.no_such_name",
            "AttributeError: module .os. has .* in line 3",
        ),
        ("def f(:\n    pass", "SyntaxError: .* in line 1"),
    ],
)
def test_a_plugin_that_fails_while_it_is_imported_is_one_line(
    code: str, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("failing.py").write_text(code)
    try:
        assert run_hydra(names, "train", ["plugins=[failing]"]) == 2
    finally:
        sys.modules.pop("failing", None)
        importlib.invalidate_caches()
    line = rf"rlmem: plugins=\[failing\]: cannot be imported, failing\.py ends with {why}; cor"
    err = capfd.readouterr().err
    assert re.match(line, err)
    assert err.count("\n") == 1


def test_a_name_that_rlmem_has_is_one_line_that_names_both_places(
    plugin: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plugin.write_text(PLUGIN.replace("oldest", "uniform"))
    assert run_hydra(names, "train", ["plugins=[mine]"]) == 2
    assert capfd.readouterr().err == (
        "rlmem: memory/sampler=uniform is declared twice, by rlmem.memories.samplers.uniform and "
        "by mine; give yours another name\n"
    )


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "reservoir",
            "per",
            "plugins: mine declares memory=per, which is an option of r",
        ),
        (
            "@dataclass\n",
            "",
            "callbacks=echo: EchoSettings is no dataclass of its own; de",
        ),
    ],
)
def test_a_part_that_would_be_passed_over_is_one_line(
    plugin: Path, old: str, new: str, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    plugin.write_text(PLUGIN.replace(old, new))
    assert run_hydra(names, "train", ["plugins=[mine]"]) == 2
    assert capfd.readouterr().err.startswith(f"rlmem: {line}")


BARE_ENV = """
from dataclasses import dataclass
from rlmem.envs.spec import EnvSettings
from rlmem.registry import part
from rlmem.settings import setting

@dataclass(kw_only=True)
class BareSettings(EnvSettings):
    name: str = setting("bare")
    suite: str = setting("bare")

@part("env", "bare", settings=BareSettings)
class Bare:
    @classmethod
    def build(cls, settings, num_envs, *, render=False, scoring=False):
        raise NotImplementedError
"""


@pytest.mark.parametrize("chosen", ["agent=ddpg", "memory=gwr", "memory=medqn_u"])
def test_an_env_need_not_say_what_its_environments_have(plugin: Path, chosen: str) -> None:
    plugin.write_text(BARE_ENV)
    assert given("env=bare", chosen).env.name == "bare"


def test_a_part_of_a_notebook_has_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("cells")  # as __main__ is there
    monkeypatch.setitem(sys.modules, "cells", module)

    class Mine:
        pass

    Mine.__module__ = "cells"
    registry.part("memory/sampler", "of_a_cell")(Mine)
    chosen = settings("memory=per", "memory/sampler=of_a_cell")
    assert chosen.memory.sampler.part.cls is Mine
