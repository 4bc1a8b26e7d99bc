"""Scoring a run's checkpoint, drawing its map, comparing runs, and how a sweep stands."""

import csv
import json
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from rlmem.callbacks.checkpoint import find_checkpoint, load_model
from rlmem.callbacks.evaluation import video_fps
from rlmem.callbacks.records import EVALUATION_COLUMNS
from rlmem.data.rollout import Video, evaluate_policy
from rlmem.data.stream import derive_seed
from rlmem.envs import human_normalized_score
from rlmem.errors import UserError
from rlmem.jobs import build
from rlmem.jobs.resume import saved_config

SHOWN = 10  # lines of what a report left out


def evaluate(cfg: DictConfig) -> None:
    """Do what `mode` names: score a run, draw its map, compare runs, or say how a sweep stands.

    Raises:
        UserError: there is no such run, checkpoint or sweep.
    """
    MODES[cfg.mode](cfg)


def plot(cfg: DictConfig) -> None:
    """`mode=plot`: curves of several runs in one image."""
    from rlmem.analysis.show.run_curves import plot_runs

    out = Path(cfg.out or "curves.png")
    plot_runs([Path(run) for run in cfg.runs], out)
    print(f"written: {out}")


def report(cfg: DictConfig) -> None:
    """`mode=report`: tables, figures and a page that compare all runs of some folders."""
    from rlmem.analysis.show.report import write_report

    sweeps, external = paths(cfg.sweep), paths(cfg.external) + paths(cfg.outsiders)
    if cfg.outsiders:
        print("outsiders= is now called external=; the old name works as well")
    out = Path(cfg.out) if cfg.out else (sweeps[0] if len(sweeps) == 1 else Path()) / "report"
    written = write_report(sweeps, out, external)
    print(f"runs: {len(written.collection.runs)}, settings: {len(written.settings)}")
    for note in written.collection.notes:
        print(f"note: {note}")
    for path, reason in written.collection.left_out[:SHOWN]:
        print(f"left out of the means: {path} ({reason})")
    if len(written.collection.left_out) > SHOWN:
        print(f"and {len(written.collection.left_out) - SHOWN} more, listed on the page")
    print(f"written: {out}/index.html, results.csv, summary.csv, figures/")


def status(cfg: DictConfig) -> None:
    """`mode=status`: what of a sweep is done, running, failed and missing."""
    from rlmem.analysis.show.status import read_status, render_status

    for folder in paths(cfg.sweep):
        print(render_status(read_status(folder)))


def dashboard(cfg: DictConfig) -> None:
    """`mode=dashboard`: a W&B workspace, or the file that defines it where there is no key."""
    from rlmem.integrations.wandb_dashboard import write_dashboard

    print(write_dashboard(cfg.entity, cfg.project, Path(cfg.out or "wandb_dashboard.json")))


def draw_map(cfg: DictConfig) -> None:
    """`mode=map`: pictures and figures of the map that a run left."""
    from rlmem.jobs.map import show_map

    show_map(cfg)


def paths(value: Any) -> list[Path]:
    """A path, or a list of them."""
    return [Path(part) for part in ([value] if isinstance(value, str) else value)]


def score(cfg: DictConfig) -> None:
    """Play episodes with a run's checkpoint and write evaluation/ into the run directory."""
    run_dir = Path(cfg.run)
    saved = saved_config(run_dir)
    if saved is None:
        raise UserError(f"run={cfg.run}: no run there (a run directory has a config.yaml)")
    run_cfg = OmegaConf.create(saved)
    env = build.build_evaluation_env(run_cfg, cfg.episodes, render=cfg.video)
    agent = build.build_agent(run_cfg, env.spec)
    env_steps = load_networks(cfg, run_dir, agent)
    epsilon = run_cfg.evaluation.epsilon if cfg.epsilon is None else cfg.epsilon
    seed = derive_seed(run_cfg.seed, 5) if cfg.seed is None else cfg.seed
    out = run_dir / "evaluation"
    out.mkdir(exist_ok=True)
    video = None
    if cfg.video:
        video = Video(out / f"{cfg.checkpoint}_{env_steps:09d}.mp4", video_fps(env))
    result = evaluate_policy(
        env,
        agent.act,
        episodes=cfg.episodes,
        epsilon=epsilon,
        seed=seed,
        on_frame=video.append if video else None,
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


def load_networks(cfg: DictConfig, run_dir: Path, agent: build.Agent) -> int:
    """Load the chosen checkpoint's networks and return its env steps."""
    if cfg.checkpoint == "best":
        path = run_dir / "checkpoints" / "best.ckpt"
        if not path.exists():
            raise UserError(f"run={cfg.run}: no {path.name} yet; use checkpoint=last")
        try:
            content = torch.load(path, weights_only=True, map_location="cpu")
            agent.load_state_dict(content["state_dict"])
        except Exception as error:  # torch raises several kinds
            reason = str(error).splitlines()[0]
            raise UserError(f"{path} cannot be loaded: {reason}") from None
        return int(content["env_steps"])
    folder = find_checkpoint(run_dir)
    if folder is None:
        raise UserError(f"run={cfg.run}: it has no checkpoint yet")
    load_model(folder, agent)
    return int(json.loads((folder / "manifest.json").read_text())["env_steps"])


MODES = {
    "score": score,
    "map": draw_map,
    "plot": plot,
    "report": report,
    "status": status,
    "dashboard": dashboard,
}
