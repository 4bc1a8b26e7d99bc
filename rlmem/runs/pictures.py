"""`mode=map`: what the memory that a run left shows of itself."""

from pathlib import Path

import numpy as np

from rlmem.callbacks.checkpoint import read_manifest
from rlmem.callbacks.checkpoint_files import find_checkpoint
from rlmem.collect.collector import Policy
from rlmem.collect.config import SeedOf, derive_seed
from rlmem.collect.rollout import evaluate_policy, shares
from rlmem.config.run_directory import run_settings
from rlmem.config.schema import EvaluateSettings, TrainSettings
from rlmem.config.validate import check_output_dir
from rlmem.envs import EnvStepper
from rlmem.envs.spec import Step
from rlmem.errors import UserError, need, one_line
from rlmem.memories.base.pictures import Embed, Picture, PictureContext, Table
from rlmem.registry import marked
from rlmem.runs import build
from rlmem.runs.score import load_player, load_run_memory
from rlmem.runs.summary import why_no_checkpoint
from rlmem.units import several


def show_memory(cfg: EvaluateSettings) -> None:
    """Draw and measure a run's memory into map/ of the run directory.

    Raises:
        UserError: there is no run or no checkpoint, its memory has no pictures, holds nothing yet
            or was not kept, or matplotlib is missing.
    """
    need("matplotlib", "mode=map", "plot")
    run_dir = Path(cfg.run)
    run_cfg, folder = _find_memory(cfg, run_dir)
    env = build.build_evaluation_env(run_cfg, cfg.episodes, render=False)
    try:
        agent = build.build_agent(run_cfg, env.spec)
        env_steps, memory = load_player(run_dir, cfg.checkpoint, run_cfg, env.spec, agent)
        if memory is None:
            memory = load_run_memory(run_cfg, env.spec, agent, folder)
        out = Path(cfg.out) if cfg.out else run_dir / "map"
        check_output_dir(out, "out", "out=map")
        epsilon = run_cfg.evaluation.epsilon if cfg.epsilon is None else cfg.epsilon
        seed = derive_seed(run_cfg.seed, SeedOf.SCORE) if cfg.seed is None else cfg.seed

        def play(embed: Embed) -> dict[str, list[np.ndarray]]:
            print(
                f"playing {several(cfg.episodes, 'episode')} by the {cfg.checkpoint} networks, of "
                f"{env_steps:,} env steps, with epsilon {epsilon:g}, and as many at random",
                flush=True,
            )
            # Every agent's epsilon is the probability of a random action: 1 is random play.
            return {
                name: visited(embed, env, agent.act, cfg.episodes, share, seed)
                for name, share in (("run's", epsilon), ("random", 1.0))
            }

        steps = int(read_manifest(folder)["env_steps"])
        context = PictureContext(run_cfg, agent, env.spec, steps, play, run_dir / "map")
        for shown in run_cfg.memory.part.cls.pictures(memory, context):
            try:
                _write(shown, out)
            except OSError as error:
                raise UserError(f"out={out}: cannot be written to ({one_line(error)})") from None
    finally:
        env.close()


def _write(shown: Picture | Table, out: Path) -> None:
    """Write a picture's or a table's files, and say what they show."""
    from rlmem import drawing

    endings = ["csv"] if isinstance(shown, Table) else ["png"] + ["svg"] * shown.vector
    names = [f"{shown.name}.{ending}" for ending in endings]
    for name in names:
        (out / name).unlink(missing_ok=True)  # it may be a link to a file elsewhere
    if isinstance(shown, Table):
        shown.rows.to_csv(out / names[0], index=False)
    elif shown.vector:
        drawing.save(shown.figure, out, shown.name)
    else:
        shown.figure.savefig(out / names[0], dpi=drawing.DPI)
    if about := shown.text if isinstance(shown, Table) else shown.caption:
        print(about)
    print(f"written: {out}/{', '.join(names)}")


def _find_memory(cfg: EvaluateSettings, run_dir: Path) -> tuple[TrainSettings, Path]:
    """The run's configuration, and the checkpoint that holds its memory."""
    run_cfg = run_settings(run_dir, f"run={cfg.run}")
    if not hasattr(run_cfg.memory.part.cls, "pictures"):
        raise UserError(
            f"run={cfg.run}: its memory is {run_cfg.memory.name}, which has no pictures; mode=map "
            f"draws memory={marked('memory', 'pictures')}"
        )
    folder = find_checkpoint(run_dir)
    if folder is None:
        none = why_no_checkpoint(run_dir, "it has no checkpoint yet; train it for longer")
        raise UserError(f"run={cfg.run}: {none}")
    if not read_manifest(folder)["memory_saved"] and not run_cfg.agent.part.cls.asks:
        raise UserError(
            f"run={cfg.run}: it finished and its memory's files were not kept; to draw one, train "
            "with checkpoint.keep_memory_when_finished=true (a run that was cut off has the files)"
        )
    return run_cfg, folder


def visited(
    embed: Embed, env: EnvStepper, policy: Policy, episodes: int, epsilon: float, seed: int
) -> list[np.ndarray]:
    """Play the episodes that a scoring would play; what each visits, embedded [length + 1, d]:
    each observation once, the last one of an episode among them.

    Args:
        policy, episodes, epsilon, seed: as for `evaluate_policy`.
    """
    running: list[list[np.ndarray]] = [[] for _ in range(env.spec.num_envs)]
    finished: list[list[np.ndarray]] = [[] for _ in range(env.spec.num_envs)]

    def see(observation: np.ndarray, step: Step) -> None:
        for rows, row in zip(running, embed(observation), strict=True):
            rows.append(row)
        over = np.flatnonzero(step.terminated | step.truncated)
        if not len(over):
            return
        older = observation[over, env.spec.frame_shape[0] :]
        last = np.concatenate([older, step.next_observation[over]], axis=1)
        for e, row in zip(over, embed(last), strict=True):
            finished[e].append(np.stack([*running[e], row]))
            running[e] = []

    evaluate_policy(env, policy, episodes=episodes, epsilon=epsilon, seed=seed, on_step=see)
    # Environments that were done earlier than others played on: only scored episodes count.
    quota = shares(episodes, env.spec.num_envs)
    return [episode for rows, n in zip(finished, quota, strict=True) for episode in rows[:n]]
