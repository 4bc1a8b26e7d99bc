"""The examples of docs/extending.md, as a user has them: in a folder of their own, trained with."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import rlmem
import rlmem.memories
from rlmem.cli import _study
from rlmem.config import check, check_evaluate, compose, run_hydra
from rlmem.envs import make_env
from rlmem.errors import UserError
from rlmem.registry import load_plugins
from rlmem.runs.build import build_memory
from rlmem.runs.evaluate import evaluate
from tests.settings import settings

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
FILES = dict(re.findall(r"`([\w/]+\.(?:py|yaml))`\n\n```\w+\n(.*?)```", PAGE.read_text(), re.S))
SHORT = ["trainer.max_env_steps=1200", "agent.learning_starts=400", "log.every=200"]
SHORT += ["evaluation.episodes=1", "log.progress=false"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts_of_this_test: None) -> Path:
    """The examples as files of a folder that is the current one."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_page_has_an_example_of_each_kind() -> None:
    names = {"reservoir", "large_reservoir", "recent", "sarsa_like", "corridor", "weight_norm"}
    names |= {"study"}
    assert {Path(name).stem for name in FILES} == names


@pytest.mark.slow
def test_a_memory_is_trained_with_counted_saved_and_resumed() -> None:
    given = ["plugins=[my_parts.reservoir]", "memory=reservoir", "memory.capacity=300", *SHORT]
    run = rlmem.train([*given, "env=cartpole", "memory.offered=0.5"], run_dir="run")
    summary = run.summary
    assert summary is not None
    assert (summary["memory"], summary["memory_entries"]) == ("reservoir", 300)
    assert summary["memory_bytes"] == sum(summary["memory_components"].values()) > 300 * 32
    assert run.config["memory"]["offered"] == 0.5
    per = rlmem.train([*given, "memory/sampler=prioritized", "agent.lr=1e-4"], run_dir="per")
    assert per.summary is not None
    assert "priorities" in per.summary["memory_components"]


@pytest.mark.slow
def test_a_memory_that_is_cut_off_goes_on_as_if_it_had_not_been(folder: Path) -> None:
    given = ["plugins=[my_parts.reservoir]", "memory=reservoir", "memory.capacity=300"]
    given += ["env=cartpole", "checkpoint.keep_memory_when_finished=true", *SHORT]
    whole = rlmem.train([*given, "trainer.max_env_steps=2000"], run_dir="whole")
    rlmem.train(given, run_dir="part")
    part = rlmem.train([*given[:1], "resume=part", "trainer.max_env_steps=2000"])
    for name in ("env_steps", "train_return_mean", "eval_return_mean", "memory_bytes"):
        assert part.summary[name] == whole.summary[name]  # type: ignore[index]
    assert part.episodes["return"].tolist() == whole.episodes["return"].tolist()


@pytest.mark.slow
def test_a_memory_is_drawn_while_it_learns_and_after(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    given = ["plugins=[my_parts.reservoir]", "memory=reservoir", "memory.capacity=300", *SHORT]
    given += ["env=cartpole", "checkpoint.keep_memory_when_finished=true", "log.map_every=600"]
    rlmem.train(given, run_dir="run")
    while_learning = {path.name for path in (folder / "run" / "map").iterdir()}
    assert [name[:6] for name in while_learning] == ["ages_0", "ages_0"]
    evaluate(check_evaluate(compose("evaluate", ["mode=map", "run=run", *given[:1]])))
    after = {path.name for path in (folder / "run" / "map").iterdir()}
    assert after - while_learning == {"ages.png", "ages.svg"}


def test_the_ages_of_a_reservoir_are_those_of_what_it_holds() -> None:
    load_plugins(["my_parts.reservoir"])
    reservoir = sys.modules["my_parts.reservoir"]
    storage = rlmem.memories.SlotStorage(5, (1,), np.float32)
    memory = rlmem.memories.ReplayMemory(
        storage, rlmem.memories.UniformSampler(), reservoir.ReservoirWriter(), seed=0
    )
    states, never = np.arange(41, dtype=np.float32)[:, None], np.zeros((40, 1), bool)
    following = {"observation": states[1:], "reward": never.astype(np.float32)}
    following |= {"terminated": never, "truncated": never}
    whole = {"observation": states[:-1], "action": np.zeros(40, np.int64), "next": following}
    memory.extend(whole)
    held = memory.sample(200)["observation"].unique().tolist()
    assert sorted(39 - memory.writer.ages) == held


@pytest.mark.slow
def test_a_run_directory_does_not_import_the_plugins_it_names(folder: Path) -> None:
    given = ["plugins=[my_parts.reservoir]", "memory=reservoir", "memory.capacity=300", *SHORT]
    rlmem.train([*given, "env=cartpole"], run_dir="run")
    code = (
        "import sys, rlmem; from rlmem.errors import UserError\n"
        "for read in (lambda: rlmem.train(['resume=run']), lambda: rlmem.load_run('run')):\n"
        "    try: read()\n"
        "    except UserError as error: print(error)\n"
        "print('my_parts.reservoir' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    first, second, imported = done.stdout.splitlines()
    assert first.endswith("give plugins=[...] again, as the run was started, if you trust them")
    assert "no such memory" in second
    assert "the run was made with plugins=['my_parts.reservoir']: name them again" in second
    assert imported == "False"
    code = "import rlmem; rlmem.load_run('run', plugins=['my_parts.reservoir']).agent"
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)


@pytest.mark.slow
def test_a_sampler_an_environment_and_a_callback_are_trained_with() -> None:
    plugins = "plugins=[my_parts.recent,my_parts.corridor,my_parts.weight_norm]"
    given = [plugins, "memory/sampler=recent", "memory.sampler.half_life=200", "env=corridor"]
    run = rlmem.train([*given, "env.length=5", "callbacks=weight_norm", *SHORT], run_dir="run")
    assert run.summary is not None
    assert run.summary["env_id"] == "Corridor-v0"
    assert run.metrics["weight_norm"].dropna().gt(0).all()
    assert len(run.metrics["weight_norm"].dropna()) > 2


@pytest.mark.slow
def test_an_agent_is_trained_with_and_what_it_logs_is_in_the_rows() -> None:
    given = ["plugins=[my_parts.sarsa_like]", "agent=expected_sarsa", "env=cartpole", *SHORT]
    run = rlmem.train([*given, "agent.target_epsilon=0.3"], run_dir="run")
    assert run.summary is not None
    assert run.summary["agent"] == "expected_sarsa"
    assert run.metrics["td_error_signed"].notna().sum() > 2
    assert rlmem.load_run("run").agent.cfg.target_epsilon == 0.3


@pytest.mark.slow
def test_an_agent_with_another_target_keeps_to_the_keys_of_dqn() -> None:
    given = ["plugins=[my_parts.sarsa_like]", "agent=expected_sarsa", "env=cartpole", *SHORT]
    run = rlmem.train([*given, "memory=medqn_u", "agent.loss=huber"], run_dir="run")
    assert run.metrics["consolidation_loss"].notna().any()
    agent = run.agent
    never, one = torch.zeros(2, 1, dtype=torch.bool), torch.ones(2, 1)
    observation = torch.randn(2, 4)
    row = {"next_observation": observation, "reward": one, "terminated": never}
    row |= {"steps_to_next": torch.tensor([[1], [1]])}
    q = agent.target(observation).detach()
    value = 0.9 * q.amax(-1, keepdim=True) + 0.1 * q.mean(-1, keepdim=True)
    torch.testing.assert_close(agent.td_target(row), 1 + agent.cfg.gamma * value)


ODD_AGENT = '''
from dataclasses import dataclass
import torch
from rlmem.agents.dqn import DQN, DQNSettings
from rlmem.registry import part

@dataclass(kw_only=True)
class OddSettings(DQNSettings):
    extends = "dqn"

@part("agent", "odd", settings=OddSettings)
class Odd(DQN):
    """Adam with amsgrad, a schedule, and an update that tells its loss alone."""

    def __init__(self, *args):
        super().__init__(*args)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=1e-3, amsgrad=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda _: 1.0)

    def update(self, batch):
        for row in self.minibatches(batch):
            q = self.online(row["observation"]).gather(-1, row["action"].unsqueeze(-1))
            loss = (self.td_target(row) - q).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.grad_steps += 1
        return {"loss": loss.detach()}

    def losses(self, batch, outputs):
        return outputs["loss"]
'''


@pytest.mark.slow
def test_an_agent_that_tells_its_loss_alone_learns_and_is_resumed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "my_parts" / "odd.py").write_text(ODD_AGENT)
    given = ["plugins=[my_parts.odd]", "agent=odd", "env=cartpole", *SHORT]
    given += ["checkpoint.keep_memory_when_finished=true"]
    whole = rlmem.train([*given, "trainer.max_env_steps=1600"], run_dir="whole")
    assert "WARNING: agent=odd: a checkpoint keeps its optimizer alone" in capsys.readouterr().out
    assert whole.metrics["loss"].notna().any()
    assert whole.metrics["td_error_mean"].isna().all()
    rlmem.train(given, run_dir="part")
    part = rlmem.train([*given[:1], "resume=part", "trainer.max_env_steps=1600"])
    assert part.episodes["return"].tolist() == whole.episodes["return"].tolist()
    with pytest.raises(UserError, match="returns neither td_error nor priority"):
        rlmem.train([*given, "memory=per"], run_dir="per")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("memory=reservor", "memory=reservor: no such memory; did you mean reservoir?"),
        ("memory=reservoir memory.offerd=1", "memory.offerd=1: no such key in memory; did you mea"),
        ("memory=large_reservoir memory.offered=7", "memory.offered=7.0: must be above 0 and at"),
        ("memory=reservoir memory.offered=2", "memory.offered=2.0: must be above 0 and at most 1"),
        ("memory=reservoir memory.offered=x", "memory.offered=x: must be a number"),
        ("memory=reservoir agent.n_step=3", "agent.n_step=3: a reservoir holds single steps; use"),
        ("memory=reservoir memory/sampler=visits", "memory/sampler=visits: does not go with memor"),
    ],
)
def test_a_mistake_with_a_part_of_ones_own_is_one_line(given: str, line: str) -> None:
    with pytest.raises(UserError) as caught:
        check(compose("train", ["plugins=[my_parts.reservoir]", *given.split()]))
    assert str(caught.value).startswith(line)


def test_returns_over_several_steps_are_refused_of_slots_alone() -> None:
    """Also where a memory of one's own does not ask for it."""
    run = settings("memory=random_eviction", "env=cartpole")
    run.agent.n_step = 3
    env = make_env(run.env, 1)
    with pytest.raises(UserError, match=r"^agent\.n_step=3: memory=random_eviction does not hold"):
        build_memory(run, env.spec)
    env.close()


def test_a_plugin_that_cannot_be_imported_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_hydra(print, "train", ["plugins=[my_parts.nothing]"]) == 2
    assert capfd.readouterr().err.startswith("rlmem: plugins=[my_parts.nothing]: cannot be impor")


def test_help_lists_parts_of_ones_own(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_hydra(print, "train", ["plugins=[my_parts.reservoir]", "--help"])
    assert ", reservoir, " in capfd.readouterr().out


def test_options_beside_a_part_go_with_those_of_the_command_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    given = ["--cfg", "job", "plugins=[my_parts.reservoir]", "memory=large_reservoir"]
    assert run_hydra(print, "train", given) == 0
    assert "capacity: 50000" in capfd.readouterr().out


@pytest.mark.slow
def test_a_study_of_ones_own_runs(folder: Path) -> None:
    definition = yaml.safe_load(FILES["my_study/study.yaml"])
    assert "plugins=" in definition["common"]
    assert _study("my_study", "", 1) == 0
    assert "reservoir" in (folder / "my_study" / "report" / "results.csv").read_text()


OWN_ENV = """
from dataclasses import dataclass

import numpy as np

from rlmem.envs.spec import EnvSettings, EnvSpec, Step
from rlmem.registry import part
from rlmem.settings import setting


@dataclass
class CountSettings(EnvSettings):
    steps: int = setting(10, at_least=1)
    stack: int = setting(1, at_least=1)


class Count:
    def __init__(self, settings, num_envs):
        float32 = np.dtype(np.float32)
        self.spec = EnvSpec("Count", "own", num_envs, (3,), float32, settings.stack, 2, 1)
        self.steps, self.t = settings.steps, np.zeros(num_envs, int)

    def frames(self):
        return np.repeat(self.t[:, None], 3, 1).astype(np.float32)

    def reset(self, seed):
        self.t[:] = 0
        return self.frames()

    def step(self, action):
        self.t += 1
        following, done = self.frames(), self.t >= self.steps
        self.t[done] = 0
        return Step(self.frames(), following, np.ones(len(done), np.float32), done, ~done & False)

    def close(self):
        pass


@part("env", "count", settings=CountSettings)
class CountPart:
    @staticmethod
    def build(settings, num_envs, *, render=False, scoring=False):
        return Count(settings, num_envs)
"""

OWN_AGENT = """
from dataclasses import dataclass

import numpy as np
import torch

from rlmem.agents.base import AgentSettings, Learner
from rlmem.registry import part


@part("agent", "flat", settings=AgentSettings)
class Flat(Learner):
    def __init__(self):
        super().__init__()
        self.online = torch.nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.online.parameters(), lr=0.01)
        self.told = 0

    @classmethod
    def build(cls, settings, run, spec):
        return cls()

    def epsilon(self, env_steps):
        return 0.0

    def explore(self, observation, epsilon, rng):
        return np.zeros(len(observation), np.int64)

    act = explore

    def explore_restart(self, done):
        self.told += int(done.sum())
        print("told", self.told)

    def update(self, batch):
        loss = self.online(batch["observation"]).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.grad_steps += 1
        return {"loss": loss.detach()[None], "td_error": torch.zeros(batch["weight"].shape[:2])}
"""


def test_an_agent_and_an_environment_need_what_the_page_says(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A part of `EnvSettings` has no suite to name; a learner no more than the page lists."""
    (folder / "own.py").write_text(OWN_ENV + OWN_AGENT)
    given = ["plugins=[own]", "env=count", "agent=flat", *SHORT, "agent.updates_per_step=1"]
    summary = rlmem.train([*given, "env.steps=12"], run_dir="run").summary
    assert summary is not None
    assert (summary["episodes"], summary["status"]) == (100, "finished")
    assert re.findall(r"told (\d+)", capsys.readouterr().out)[-1] == "101"  # and at the start
    with pytest.raises(UserError, match=r"env=Count: it stacks 2 frames of shape \(3,\), and only"):
        rlmem.train([*given, "env.stack=2"], run_dir="stacked")
