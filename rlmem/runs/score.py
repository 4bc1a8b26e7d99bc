"""Scoring a run's checkpoint: episodes, without learning, and what they say."""

import csv
import json
from pathlib import Path
from typing import Any

import torch

from rlmem.agents.base import Learner
from rlmem.callbacks.checkpoint import find_checkpoint, load_model
from rlmem.callbacks.pictures import beside_game
from rlmem.callbacks.records import EVALUATION_COLUMNS
from rlmem.collect.collector import derive_seed
from rlmem.collect.rollout import Video, evaluate_policy
from rlmem.config.run_directory import run_settings
from rlmem.config.schema import EvaluateSettings
from rlmem.envs import human_normalized_score
from rlmem.errors import UserError
from rlmem.runs import build


def score(cfg: EvaluateSettings) -> dict[str, Any]:
    """Play episodes with a run's checkpoint, write evaluation/ into the run directory and print it.

    Returns:
        What evaluation/summary.json holds.

    Raises:
        UserError: there is no such run or checkpoint.
    """
    run_dir = Path(cfg.run)
    run_cfg = run_settings(run_dir, f"run={cfg.run}")
    env = build.build_evaluation_env(run_cfg, cfg.episodes, render=cfg.video)
    agent = build.build_agent(run_cfg, env.spec)
    env_steps = load_networks(run_dir, cfg.checkpoint, agent)
    memory = None
    if agent.asks:
        memory = load_answers(run_dir, cfg.checkpoint, run_cfg, env.spec, agent)
    epsilon = run_cfg.evaluation.epsilon if cfg.epsilon is None else cfg.epsilon
    seed = derive_seed(run_cfg.seed, 5) if cfg.seed is None else cfg.seed
    out = run_dir / "evaluation"
    out.mkdir(exist_ok=True)
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
    with (out / "evaluations.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(EVALUATION_COLUMNS)
        pairs = zip(result.returns, result.lengths, strict=True)
        writer.writerows([env_steps, i, r, n] for i, (r, n) in enumerate(pairs, start=1))
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
        "human_normalized_score": normalized,
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(f"{env.spec.env_id}, checkpoint {cfg.checkpoint} at {env_steps:,} env steps")
    print(f"return {result.mean:.2f} +- {result.std:.2f} (std over {cfg.episodes} episodes)")
    if result.success_rate is not None:
        print(f"success rate {result.success_rate:.2f}")
    if normalized is not None:
        print(f"human-normalised score {normalized:.3f}")
    if video:
        video.close()
        print(f"video: {video.path}")
    print(f"written: {out}/evaluations.csv, summary.json")
    return summary


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
    memory = build.build_memory(run, spec, agent.columns())
    agent.join(memory)
    folder = find_checkpoint(run_dir)
    assert folder is not None, "the networks were loaded from it"
    try:
        memory.load_answers(folder / "memory")
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}/memory cannot be loaded: {error}") from None
    return memory


def load_networks(run_dir: Path, checkpoint: str, agent: Learner) -> int:
    """Load a checkpoint's networks, `last` or `best`, and return its env steps.

    Raises:
        UserError: there is no such checkpoint, or it is damaged.
    """
    if checkpoint == "best":
        path = run_dir / "checkpoints" / "best.ckpt"
        if not path.exists():
            raise UserError(f"run={run_dir}: no {path.name} yet; use checkpoint=last")
        try:
            content = torch.load(path, weights_only=True, map_location="cpu")
            agent.load_state_dict(content["state_dict"])
        except Exception as error:  # torch raises several kinds
            reason = str(error).splitlines()[0]
            raise UserError(f"{path} cannot be loaded: {reason}") from None
        return int(content["env_steps"])
    folder = find_checkpoint(run_dir)
    if folder is None:
        raise UserError(f"run={run_dir}: it has no checkpoint yet")
    load_model(folder, agent)
    return int(json.loads((folder / "manifest.json").read_text())["env_steps"])
