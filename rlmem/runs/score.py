"""Scoring a run's checkpoint: episodes, without learning, and what they say."""

import csv
import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlmem.agents.base import Learner
from rlmem.callbacks.checkpoint import load_memory, load_model, read_manifest
from rlmem.callbacks.checkpoint_files import (
    BEST,
    CheckpointFiles,
    find_checkpoint,
    no_checkpoint,
)
from rlmem.callbacks.pictures import beside_game
from rlmem.callbacks.records import EVALUATION_COLUMNS
from rlmem.callbacks.weights import load_best
from rlmem.checksums import verify_file
from rlmem.collect.config import SeedOf, derive_seed
from rlmem.collect.rollout import Video, evaluate_policy
from rlmem.config.run_directory import run_settings
from rlmem.config.schema import EvaluateSettings
from rlmem.config.shares import processes_of, share_of
from rlmem.envs import human_normalized_score
from rlmem.errors import UserError, printable
from rlmem.run_files import append_text, new_text, table_text, write_small
from rlmem.runs import build
from rlmem.runs.summary import why_no_checkpoint
from rlmem.units import several

SCORE_COLUMNS = [
    *("checkpoint", "env_steps", "episodes", "epsilon", "seed"),
    *("return_mean", "return_std", "success_rate", "human_normalized_score"),
]


def score(cfg: EvaluateSettings) -> dict[str, Any]:
    """Play episodes with a run's checkpoint, write evaluation/ into the run directory and print it.

    Scores of before stay in evaluation/scores.csv, a row each; the other files are of the newest.

    Returns:
        What evaluation/summary.json holds.

    Raises:
        UserError: there is no such run or checkpoint.
    """
    run_dir = Path(cfg.run)
    run_cfg = run_settings(run_dir, f"run={cfg.run}")
    env = build.build_evaluation_env(run_cfg, cfg.episodes, render=cfg.video)
    agent = build.build_agent(run_cfg, env.spec)
    env_steps, memory = load_player(run_dir, cfg.checkpoint, run_cfg, env.spec, agent)
    epsilon = run_cfg.evaluation.epsilon if cfg.epsilon is None else cfg.epsilon
    seed = derive_seed(run_cfg.seed, SeedOf.SCORE) if cfg.seed is None else cfg.seed
    out = run_dir / "evaluation"
    try:
        out.mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(
            f"run={cfg.run}: cannot write its evaluation/ ({error.strerror}); score a copy of it "
            "that you may write to"
        ) from None
    video = None
    if cfg.video:
        beside = None
        if memory is not None:
            beside = beside_game(run_cfg, run_dir, agent, memory, env, env_steps)
        path = out / f"{cfg.checkpoint}_{env_steps:09d}.mp4"
        video = Video(path, env.spec.video_fps, beside)
    result = evaluate_policy(
        env,
        agent.act,
        episodes=cfg.episodes,
        epsilon=epsilon,
        seed=seed,
        on_frame=video.append if video else None,
        restart=agent.restart,
    )
    env.close()
    normalized = human_normalized_score(env.spec.env_id, result.mean)
    summary = {
        "run": str(run_dir),
        "checkpoint": cfg.checkpoint,
        "env_id": env.spec.env_id,
        "env_steps": env_steps,
        "episodes": cfg.episodes,
        "epsilon": epsilon,
        "seed": seed,
        "return_mean": result.mean,
        "return_std": result.std,
        "success_rate": result.success_rate,
        "unended": result.unended,
        "human_normalized_score": normalized,
    }
    print(printable(f"{env.spec.env_id}, checkpoint {cfg.checkpoint} at {env_steps:,} env steps"))
    spread = f" +- {result.std:.2f}" if cfg.episodes > 1 else ""
    print(f"return {result.mean:.2f}{spread} ({several(cfg.episodes, 'episode')})")
    if result.success_rate is not None:
        print(f"success rate {result.success_rate:.2f}")
    if result.remark:
        print(result.remark)
    if normalized is not None:
        print(f"human-normalised score {normalized:.3f}")
    if video:
        video.close()
        if not video.failed:
            print(f"video: {video.path}")
    try:
        with new_text(out / "evaluations.csv", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(EVALUATION_COLUMNS)
            pairs = zip(result.returns, result.lengths, strict=True)
            writer.writerows([env_steps, i, r, n] for i, (r, n) in enumerate(pairs, start=1))
        write_small(out / "summary.json", json.dumps(summary, indent=2) + "\n")
        _add_row(out / "scores.csv", {name: summary[name] for name in SCORE_COLUMNS})
    except OSError as error:
        raise UserError(
            f"run={cfg.run}: cannot write its evaluation/ ({error.strerror}); what was scored "
            "stands above"
        ) from None
    print(f"written: {out}/evaluations.csv, summary.json, and a row of scores.csv")
    return summary


def _add_row(path: Path, row: dict[str, Any]) -> None:
    """Append a row to a table in one write, so that none is cut by another process."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(row), lineterminator="\n")
    cut_off = path.exists() and table_text(path)[-1:] not in ("", "\n")  # a kill, or a full disk
    with append_text(path, newline="") as file:
        if file.tell() == 0:
            writer.writeheader()
        text.write("\n" * cut_off)
        writer.writerow(row)
        file.write(text.getvalue())


def load_player(
    run_dir: Path, checkpoint: str, run: Any, spec: Any, agent: Learner
) -> tuple[int, Any]:
    """Load what an agent needs to play, `last` or `best`: its networks and, if it asks one, its
    memory.

    Returns:
        Env steps of the checkpoint, and the memory or None.

    Raises:
        UserError: there is no such checkpoint, or it is damaged.
    """
    env_steps = load_networks(run_dir, checkpoint, agent)
    return env_steps, load_answers(run_dir, checkpoint, run, spec, agent) if agent.asks else None


def load_answers(run_dir: Path, checkpoint: str, run: Any, spec: Any, agent: Learner) -> Any:
    """Give an agent that asks its memory, with what that knew at the last checkpoint; the memory.

    Raises:
        UserError: there is none, or it is damaged.
    """
    if checkpoint == "best":
        raise UserError(
            f"run={run_dir}: best.ckpt holds agent={run.agent.name}'s network, but not the memory "
            "that it asks; use checkpoint=last"
        )
    folder = find_checkpoint(run_dir)
    assert folder is not None, "the networks were loaded from it"
    return load_run_memory(run, spec, agent, folder)


def load_run_memory(run: Any, spec: Any, agent: Learner, folder: Path) -> Any:
    """The memory as a checkpoint has it: for as many environments as the run trained on, however
    many play here; of several processes the first one's. An agent that asks is told it.

    Raises:
        UserError: it is damaged.
    """
    run = share_of(run, processes_of(run.trainer), run.seed)
    memory = build.build_memory(run, replace(spec, num_envs=run.env.num_envs), agent.columns())
    if agent.asks:
        agent.join(memory)
    load_memory(folder, memory)
    return memory


def load_networks(run_dir: Path, checkpoint: str, agent: Learner) -> int:
    """Load a checkpoint's networks, `last` or `best`, and return its env steps.

    Raises:
        UserError: there is no such checkpoint, or it is damaged.
    """
    if checkpoint not in ("last", "best"):
        raise UserError(f"checkpoint={checkpoint}: must be last or best")
    if checkpoint == "best":
        path = run_dir / "checkpoints" / BEST
        if not os.path.lexists(path):
            none = f"no {path.name} yet; use checkpoint=last"
            if find_checkpoint(run_dir) is None:
                none = why_no_checkpoint(run_dir, f"no {path.name} yet; train it for longer")
            raise UserError(f"run={run_dir}: {none}")
        env_steps = load_best(path, agent, run_dir)
        _check_known(run_dir, path, env_steps)
        return env_steps
    folder = find_checkpoint(run_dir)
    if folder is None:
        none = why_no_checkpoint(run_dir, "it has no checkpoint yet; train it for longer")
        raise UserError(no_checkpoint(run_dir) or f"run={run_dir}: {none}")
    load_model(folder, agent)
    return int(read_manifest(folder)["env_steps"])


def _check_known(run_dir: Path, best: Path, env_steps: int) -> None:
    """Refuse a best model that the last checkpoint should know and does not.

    Raises:
        UserError: it is another run's, or was changed.
    """
    if (folder := find_checkpoint(run_dir)) is None:
        return
    files = CheckpointFiles(folder)
    if env_steps > files.manifest["env_steps"] or not files.has(BEST):
        return  # saved after the checkpoint, or before checkpoints held it
    try:
        if (expected := files.expected(BEST)) is not None:
            verify_file(best, expected, run_dir)
    except ValueError as error:
        raise UserError(f"{error}, or of another run; use checkpoint=last") from None
