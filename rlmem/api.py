"""rlmem from Python: train, score and load runs as the command line does."""

import contextlib
import io
import warnings
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas

from rlmem.cli import repeat_overrides, spin_briefly
from rlmem.config import check, check_evaluate, check_output_dir, compose
from rlmem.config.run_directory import run_settings
from rlmem.config.schema import TrainSettings
from rlmem.errors import UserError
from rlmem.registry import load_plugins
from rlmem.run_files import table_text, whole_lines
from rlmem.runs.summary import read_summary


@contextlib.contextmanager
def _left_as_found() -> Iterator[None]:
    """What a run sets for its process, whose caller has a use of its own for it, is put back:
    torch's threads, random states and flushing of denormal numbers, and the filters of warnings.
    A run is of float32, whatever numbers its caller makes by default."""
    import torch

    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    flushes = (torch.tensor(1e-310, dtype=torch.float64) * 1).item() == 0
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(gpus), warnings.catch_warnings():
        try:
            torch.set_default_dtype(torch.float32)
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.set_num_threads(threads)
            torch.set_flush_denormal(flushes)


class Run:
    """What a run directory holds; read when it is asked for.

    Attributes:
        path: the run directory.

    Raises:
        UserError: there is no run, or it was made with plugins that are not named.
    """

    def __init__(self, path: str | Path) -> None:
        if not isinstance(path, str | Path):
            raise UserError(f"{path!r} is no run directory; give its path as a text")
        self.path = Path(path)
        self.settings: TrainSettings = run_settings(self.path, f"load_run({str(path)!r})")

    @property
    def config(self) -> dict[str, Any]:
        """The whole configuration, plain and resolved: what config.yaml holds."""
        return self.settings.values

    @property
    def summary(self) -> dict[str, Any] | None:
        """How the run ended; None while it has not.

        Raises:
            UserError: summary.json is there and damaged.
        """
        found, file = read_summary(self.path), self.path / "summary.json"
        if found is None and file.exists():
            raise UserError(f"{file}: cannot be read; its run's last checkpoint may say the same")
        return found

    @property
    def metrics(self) -> pandas.DataFrame:
        """A row every `log.every` env steps; docs/metrics.md explains the columns."""
        return self._table("metrics")

    @property
    def episodes(self) -> pandas.DataFrame:
        """A row a training episode: env_steps, episode, return, length, seconds."""
        return self._table("episodes")

    @property
    def evaluations(self) -> pandas.DataFrame:
        """A row an evaluation episode: env_steps, episode, return, length."""
        return self._table("evaluations")

    def _table(self, name: str) -> pandas.DataFrame:
        path = self.path / f"{name}.csv"
        try:
            return pandas.read_csv(io.StringIO(whole_lines(table_text(path))))
        except (FileNotFoundError, pandas.errors.EmptyDataError):
            return pandas.DataFrame()
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({error})") from None

    @cached_property
    def agent(self) -> Any:
        """The agent with the weights of its newest checkpoint; `agent.act(observation, 0.0, rng)`.

        Raises:
            UserError: there is no checkpoint, or it is damaged.
        """
        return self.load_agent("last")

    def load_agent(self, checkpoint: str = "last") -> Any:
        """The agent with the weights of a checkpoint, `last` or `best`; an agent that asks its
        memory what to play has `last` only.

        Raises:
            UserError: there is no such checkpoint, or it is damaged.
        """
        from rlmem.runs import build
        from rlmem.runs.score import load_player

        with _left_as_found():
            env = build.build_evaluation_env(self.settings, 1, render=False)
            agent = build.build_agent(self.settings, env.spec)
            env.close()
            load_player(self.path, checkpoint, self.settings, env.spec, agent)
            return agent.eval()

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"


def train(overrides: Iterable[str] = (), *, run_dir: str | Path | None = None) -> Run:
    """Train one run, as `python train.py` does with the same overrides.

    Args:
        overrides: such as `["memory=gwr", "env=road_runner", "seed=1"]`; `resume=<run directory>`
            goes on with a run.
        run_dir: where it writes; by default outputs/<env>/<memory>/<time>-seed<seed>, as the
            command line has it. Not with `resume=<run directory>`.

    Returns:
        The run, finished.

    Raises:
        UserError: an override cannot work.
        SystemExit: the run was stopped by a signal, and is saved.
    """
    listed = isinstance(overrides, Iterable) and not isinstance(overrides, str)
    asked = list(overrides) if listed else []  # read once: it may be a generator
    if not listed or not all(isinstance(o, str) for o in asked):
        raise UserError('overrides are a list of texts, such as ["memory=gwr", "env=road_runner"]')
    if not isinstance(run_dir, str | Path | None):
        raise UserError(f"run_dir={run_dir!r}: must be a path, such as run_dir='outputs/mine'")
    refused = "hydra", "paths.output_dir"
    if where := [o for o in asked if o.lstrip("+~").startswith(refused)]:
        raise UserError(
            f"{where[0]}: only the command line takes this key; leave it out, and give the run's "
            "folder as run_dir='outputs/mine'"
        )
    if search := [o for o in asked if o.lstrip("+~").startswith("hparams_search")]:
        raise UserError(
            f"{search[0]}: a search is a command, python train.py -m {search[0]}; leave it out here"
        )
    given = [o for o in repeat_overrides(asked) if not o.startswith("hydra.")]
    cfg = compose("train", given)
    if cfg.resume not in (None, "auto"):  # it goes on in its own directory
        if run_dir is not None:
            raise UserError(f"resume={cfg.resume}: it goes on there; leave run_dir out")
        run_dir = cfg.resume
    cfg.paths.output_dir = str(Path(run_dir or "outputs").expanduser().absolute())
    if run_dir is None:
        check(cfg)  # before the names in it are read
        now = datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
        own_dir = Path("outputs", cfg.env.name, cfg.memory.name, f"{now}-seed{cfg.seed}")
        cfg.paths.output_dir = str(own_dir.absolute())
    settings = check(cfg)
    settings.overrides = given
    settings.folder_is_named = run_dir is not None
    made = Path(settings.paths.output_dir)
    was_there = made.exists()
    check_output_dir(made, "run_dir", "run_dir='outputs/mine'")
    spin_briefly()
    from rlmem.runs.train import train_run

    try:
        with _left_as_found():
            path, _ = train_run(settings)
    finally:
        if not was_there:
            with contextlib.suppress(OSError):  # it holds something, as where the run is there
                made.rmdir()
    return Run(path)


def evaluate(
    run: str | Path | Run,
    *,
    episodes: int = 10,
    checkpoint: str = "last",
    epsilon: float | None = None,
    seed: int | None = None,
    video: bool = False,
    plugins: Sequence[str] = (),
) -> dict[str, Any]:
    """Score a run's checkpoint, as `python evaluate.py run=...` does.

    Args:
        run: a run or its directory.
        episodes: episodes to play.
        checkpoint: last or best.
        epsilon: probability of a random action; None: the run's evaluation.epsilon.
        seed: of the episodes; None: derived from the run's seed.
        video: write an mp4 of the first episode.
        plugins: modules that declare parts of the run's.

    Returns:
        `return_mean`, `return_std`, `episodes`, ...: what evaluation/summary.json holds.

    Raises:
        UserError: there is no such run or checkpoint, or a value cannot work.
    """
    from rlmem.runs.score import score

    load_plugins([plugins] if isinstance(plugins, str) else list(plugins))
    cfg = compose("evaluate")
    cfg.run = str(run.path if isinstance(run, Run) else run)
    given = {"episodes": episodes, "checkpoint": checkpoint, "video": video}
    for key, value in {**given, "epsilon": epsilon, "seed": seed}.items():
        one = hasattr(value, "item") and len(value.shape) == 0  # numpy's and torch's numbers
        plain = value.item() if one else value
        if not isinstance(plain, int | float | str | None):
            raise UserError(f"{key}={plain!r}: must be a number, a text or None")
        cfg[key] = plain
    with _left_as_found():
        return score(check_evaluate(cfg))


def load_run(path: str | Path, *, plugins: Sequence[str] = ()) -> Run:
    """A run as it lies in its directory: config, summary, curves, agent.

    Args:
        plugins: modules that declare parts of the run's; they are code, so that a run names none.

    Raises:
        UserError: there is no run, or its configuration is damaged.
    """
    load_plugins([plugins] if isinstance(plugins, str) else list(plugins))
    return Run(path)
