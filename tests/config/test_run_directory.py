"""A run directory is data: what a stranger put there is refused, what a run saves is repeated."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

import rlmem.cli
from rlmem.config.run_directory import KEYS, NOT_REPEATED, run_settings, saved_overrides
from rlmem.config.schema import CONF_DIR, TrainSettings
from rlmem.errors import UserError
from rlmem.runs.resume import write_config
from tests.settings import settings

CANARY = "{_target_: pathlib.Path.touch, _args_: [{_target_: pathlib.Path, _args_: [canary]}]}"
HOSTILE = [
    # Hydra's own settings: callbacks and launchers are imported, env_set changes PATH.
    f"+hydra.callbacks.x={CANARY}",
    f"++hydra.callbacks.x={CANARY}",
    f"hydra.callbacks.sweep={CANARY}",
    f"+hydra={{callbacks: {{x: {CANARY}}}}}",
    "hydra.sweeper._target_=os.system",
    "+hydra.job.env_set.PATH=/tmp",
    "hydra.run.dir=canary",
    "hydra.mode=MULTIRUN",
    "hydra.searchpath=[file://evil]",
    "hydra/launcher=joblib",
    "+hydra/callbacks=evil",
    "~hydra.callbacks",
    "~hydra/job_logging",
    # Flags of Hydra, which are no overrides.
    "--config-dir=evil",
    "--config-path=evil",
    "-cdevil",
    "--multirun",
    "-m",
    "--experimental-rerun=evil/config.pickle",
    # Files from elsewhere, and groups that are merged into another place.
    "experiment={up}/evil/evil",
    "experiment={cwd}/evil/evil",
    "env=[cartpole,{up}/evil/evil]",
    "env=..",
    "experiment=${oc.env:HOME}",
    "+experiment@hydra.callbacks=evil",
    "env@hydra=cartpole",
    "+env@_global_=cartpole",
    "env@:hydra=cartpole",
    "+evil/evil=evil",
    "agent/evil=evil",
    # References and resolvers, also where Hydra's escapes make them.
    "label=${oc.env:HOME}",
    "label='${oc.env:HOME}'",
    "label=a-${hydra:runtime.cwd}",
    "label=$\\{oc.env:HOME\\}",
    "label=str(${oc.env:HOME})",
    "logger.wandb.tags=[a,'${oc.env:HOME}']",
    "+env.kwargs={a: {b: '${oc.env:HOME}'}}",
    "label='\\${oc.env:HOME}'",
    "label=???",
    # What is no single plain value.
    "~env",
    "~agent.lr",
    "~logger=csv",
    "seed=1,2",
    "seed=range(0,1000000000)",
    "env=glob(*)",
    "memory=choice(per,gwr)",
    "agent.lr=interval(0,1)",
    "seed",
    "",
    "=1",
    " seed=1",
    "seed=" + "9" * 5000,
    "label=int(inf)",
    "+env.kwargs.x=" + "[" * 4000,
    "+env.kwargs.x=" + "{a:" * 500 + "1" + "}" * 500,
    # Keys that no run reads, or that are the user's alone to give.
    "+defaults=[evil]",
    "+_target_=os.system",
    "train_schema=x",
    "+agents.x=1",
    "paths.cwd=x",
    "evaluate.run=x",
    # What a terminal would act on.
    "label='\x1b[2J'",
    "label='a\nb'",
    "label='\ud800'",
]


def write(run_dir: Path, content: Any) -> Path:
    run_dir.mkdir(exist_ok=True)
    text = content if isinstance(content, bytes) else yaml.safe_dump(content).encode()
    (run_dir / "overrides.yaml").write_bytes(text)
    return run_dir


def main(monkeypatch: pytest.MonkeyPatch, *argv: str) -> int | str | None:
    """The exit code of `train.py` with these arguments."""
    monkeypatch.setattr("sys.argv", ["train.py", *argv])
    with pytest.raises(SystemExit) as end:
        rlmem.cli.train_main()
    return end.value.code


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with a folder of configuration files that touch a canary."""
    monkeypatch.chdir(tmp_path)
    evil = tmp_path / "evil"
    evil.mkdir()
    text = f"# @package _global_\nhydra: {{callbacks: {{x: {CANARY}}}}}\n"
    for name in ("evil.yaml", "train.yaml"):
        (evil / name).write_text(text)
    (evil.parent / "evil.py").write_text("open('canary', 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize("line", HOSTILE, ids=lambda line: ascii(line[:40]))
def test_what_no_run_saves_ends_in_one_line_and_code_2(
    line: str, cwd: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(cfg: TrainSettings) -> None:
        pytest.fail("the run was begun")

    monkeypatch.setattr(rlmem.cli, "_train", never)
    before = set(cwd.rglob("*"))
    line = line.replace("{up}", os.path.relpath(cwd, CONF_DIR / "experiment"))
    line = line.replace("{cwd}", str(cwd))
    run_dir = write(cwd / "run", ["memory=per", line])
    environment = dict(os.environ)
    assert main(monkeypatch, f"resume={run_dir}") == 2
    err = capsys.readouterr().err
    assert err.startswith(f"rlmem: {run_dir}/overrides.yaml: ")
    assert err.count("\n") == 1
    assert len(err) < 600
    assert err.rstrip("\n").isprintable()
    assert set(cwd.rglob("*")) - before == {run_dir, run_dir / "overrides.yaml"}
    assert dict(os.environ) == environment


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"seed=1",
        b"{seed=1: 2}",
        b"- seed: 1",
        b"- [seed=1]",
        b"- 1",
        b"- 2020-01-01",
        b"[",
        b"- a: b: c",
        b"- !!python/object/apply:os.system [touch canary]",
        b"- !!python/name:os.system",
        b"&a [*a]",
        b"a: &a [x]\nb: [*a, *a]",
        b"- \xff",
        b"- seed=1\x00",
        b"[" * 10_000,
        b"- " * 8_000,
        b"- seed=1\n" * 10_000,
    ],
    ids=lambda content: ascii(content[:30]),
)
def test_a_file_that_is_no_list_of_texts_is_one_line(tmp_path: Path, content: bytes) -> None:
    run_dir = write(tmp_path / "run", content)
    with pytest.raises(UserError) as error:
        saved_overrides(run_dir, ())
    assert str(error.value).startswith(f"{run_dir}/overrides.yaml: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_no_file_is_neither_read_nor_waited_for(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "overrides.yaml")
    with pytest.raises(UserError, match="not a regular file"):
        saved_overrides(tmp_path, ())
    make(tmp_path / "config.yaml")
    with pytest.raises(UserError, match="no run there"):
        run_settings(tmp_path, "run=x")


def test_a_damaged_configuration_is_not_called_a_missing_run(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("")
    with pytest.raises(UserError, match=r"^run=x: its config\.yaml is damaged"):
        run_settings(tmp_path, "run=x")


def test_a_line_that_the_user_gives_anew_does_not_count(tmp_path: Path) -> None:
    run_dir = write(tmp_path / "run", ["seed=1", "plugins=[mine]", "~logger"])
    assert saved_overrides(run_dir, {"plugins", "logger"}) == ["seed=1"]


def test_keys_of_an_option_that_is_not_chosen_anew_do_not_count(tmp_path: Path) -> None:
    lines = ["logger=[csv,wandb]", "logger.wandb.mode=offline", "seed=1"]
    run_dir = write(tmp_path / "run", lines)
    assert saved_overrides(run_dir, {"logger": "csv"}) == ["seed=1"]
    kept = saved_overrides(run_dir, {"logger": "[csv,wandb]"})
    assert kept == ["logger.wandb.mode=offline", "seed=1"]


def test_every_key_of_a_run_is_allowed_or_left_out_on_purpose() -> None:
    known = {field.name for field in dataclasses.fields(TrainSettings) if field.init}
    left_out = {key.split(".")[0] for key in NOT_REPEATED}
    assert not KEYS & left_out
    assert {"experiment", "hparams_search"} | known == KEYS | left_out


COMMANDS = [
    [],
    ["memory=gwr", "env=road_runner", "threshold=rr_068_045", "env/protocol=noframeskip"],
    ["memory=uniform", "memory/sampler=rank", "memory/storage=dense", "logger=[csv,wandb]"],
    ["logger=wandb", "logger.wandb.tags=[a,'b, c',\"d=e\"]", "logger=[wandb]"],
    ["env=gym", "env.id=CartPole-v1", "+env.kwargs.x=1", "+env.kwargs.y={a: [1, b]}"],
    ["env=fetch_reach", "+env.kwargs={reward_type: dense, maze: [[1, 0], [0, 1]]}", "agent=td3"],
    ["env=gym", "env.id=my_package:Mine-v0", "env.name=mine", "++agent.lr=1e-3"],
    ["experiment=er_study", "env=acrobot", "memory=cer", "seed=7", "debug=true"],
    ["label='it\\'s \"so\", (a=b) [c]: {d}'", "seed=3"],
    ['label="größer: 5 %"', "memory.budget=64MiB", "trainer.max_episodes=null"],
    ["memory/storage=memmap", "memory.storage.directory=/scratch/seed=1", "agent.n_step=3"],
    ["agent.network.hidden=[32,32]", "agent.target_clip=[-50,0]", "trainer.max_env_steps=20_000"],
    ["objective=return_at_budget", "objective.budget=2MiB", "logger=[]", "log.map_every=100"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_run_is_repeated_exactly(
    command: list[str], cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = []

    def take(cfg: TrainSettings) -> None:
        configs.append(cfg.values)
        write_config(cfg, Path(cfg.paths.output_dir))

    monkeypatch.setattr(rlmem.cli, "_train", take)
    assert main(monkeypatch, *command, "hydra.run.dir=runs/seed=1") == 0
    saved = yaml.safe_load((cwd / "runs/seed=1/overrides.yaml").read_text())
    for again in ([], ["log.every=7"]):
        assert main(monkeypatch, "resume=runs/seed=1", *again) == 0
    first, second, third = configs
    assert second == {**first, "resume": "runs/seed=1"}
    assert third == {**second, "log": {**second["log"], "every": 7}}
    assert yaml.safe_load((cwd / "runs/seed=1/overrides.yaml").read_text()) == [*saved, again[0]]
    assert not (cwd / "outputs").exists()


def test_where_a_resumed_run_writes_is_not_its_own_to_say(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(rlmem.cli, "_train", lambda cfg: seen.append(cfg.paths.output_dir))
    elsewhere = ["env.name=../../canary", "memory.name=../canary", "paths.output_dir=canary"]
    write(cwd / "run", elsewhere)
    assert main(monkeypatch, "resume=run") == 0
    assert seen == [str(cwd / "run")]
    assert not list(cwd.parent.rglob("canary"))


@pytest.mark.parametrize("line", ["plugins=[evil]", "+plugins=[evil]"])
def test_plugins_of_a_run_directory_are_not_imported_but_asked_for(
    line: str, cwd: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(cwd / "run", ["memory=per", line])
    assert main(monkeypatch, "resume=run") == 2
    assert "the run was made with plugins, which are code: give plugins=" in capsys.readouterr().err
    assert not (cwd / "canary").exists()


def test_a_job_of_a_search_goes_on_as_one_run(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(rlmem.cli, "_train", lambda cfg: seen.append(cfg.agent.lr))
    write(cwd / "run", ["hparams_search=dqn_small", "env=acrobot", "agent.lr=0.004"])
    assert main(monkeypatch, "resume=run") == 0
    assert seen == [0.004]


@pytest.mark.parametrize(
    "config",
    [
        {"seed": 0, "env": {"id": "${oc.env:HOME}"}},
        {"seed": 0, "env": {"kwargs": {"a": [1, {"b": "x${hydra:runtime.cwd}"}]}}},
        {"seed": 0, "label": "\\${a}"},
        {"seed": 0, "env": {"${oc.env:HOME}": 1}},
        {"seed": "???"},
        {"seed": "${oc.decode:${oc.env:HOME}}\n\x1b[2J"},
    ],
    ids=str,
)
def test_a_saved_configuration_refers_to_nothing(tmp_path: Path, config: dict[str, Any]) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(UserError) as error:
        run_settings(tmp_path, "run=x")
    assert str(error.value).startswith(f"{tmp_path}/config.yaml: ")
    assert str(error.value).isprintable()


def test_a_saved_configuration_is_read_as_it_was_written(tmp_path: Path) -> None:
    given = ["label='a $5 {x}'", "env=gym", "env.id=x", "+env.kwargs={a: [1, null, 2.5]}"]
    saved = settings(*given)
    write_config(saved, tmp_path)
    assert run_settings(tmp_path, "run=x") == saved
    assert saved.env.kwargs == {"a": [1, None, 2.5]}
