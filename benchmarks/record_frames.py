"""Record an Atari game's transitions as plain numpy files that every library can read.

python benchmarks/record_frames.py --game road_runner --steps 20000         # random play
python benchmarks/record_frames.py --run RUN_DIR --steps 20000 --out FOLDER # its network plays
python benchmarks/record_frames.py --run RUN_DIR --training --out FOLDER    # as it was trained

`--training` repeats the actions of a run's training, which its last checkpoint has kept, in the
run's environments: the recording is of all transitions that the run's memory was given.

What a folder holds, `recording.py` says.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import exit_not_installed, versions

Policy = Callable[[np.ndarray], np.ndarray]  # observation [E, stack, 84, 84] -> actions [E]
EPSILON = 0.05  # of a trained policy
SEED, STEPS, ENVS = 0, 20_000, 4


def default_folder(game: str, steps: int = STEPS) -> Path:
    """Where a recording of random play is kept between benchmarks."""
    return Path(tempfile.gettempdir()) / "rlmem-frames" / f"{game}-random-{steps}"


def ensure(game: str, steps: int = STEPS) -> Path:
    """The folder of random play of a game, recorded by a process of its own if it is missing."""
    folder = default_folder(game, steps)
    if not folder.exists():
        command = [sys.executable, __file__, "--game", game, "--steps", str(steps)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            sys.exit(f"{folder} cannot be recorded here: run {' '.join(command[1:])} with rlmem")
    return folder


def random_policy(num_actions: int) -> Any:
    """(observation, epsilon, rng) -> actions, whatever is seen."""
    return lambda observation, epsilon, rng: rng.integers(num_actions, size=len(observation))


def run_settings(run_dir: Path) -> Any:
    """The settings that a run was made with.

    Raises:
        UserError: there is no run, or it is of no Atari game.
    """
    from rlmem.config.run_directory import run_settings as read
    from rlmem.errors import UserError

    run = read(run_dir, f"--run {run_dir}")
    if run.env.suite != "atari":
        raise UserError(f"--run {run_dir}: made with env={run.env.name}, which is no Atari game")
    return run


def run_policy(run_dir: Path, checkpoint: str, spec: Any) -> tuple[Any, int]:
    """The acting function of a run's network, and the env steps it was trained for.

    Raises:
        UserError: no such run or checkpoint, or a network for other observations or actions.
    """
    from rlmem.callbacks.checkpoint import find_checkpoint, load_model, read_manifest
    from rlmem.callbacks.weights import load_best
    from rlmem.errors import UserError
    from rlmem.runs.build import build_agent

    agent = build_agent(run_settings(run_dir), spec)
    if checkpoint == "best":
        path = run_dir / "checkpoints" / "best.ckpt"
        if not path.exists():
            raise UserError(f"--run {run_dir}: it has no best.ckpt; use --checkpoint last")
        return agent.act, load_best(path, agent)
    folder = find_checkpoint(run_dir)
    if folder is None:
        raise UserError(f"--run {run_dir}: it has no checkpoint")
    load_model(folder, agent)
    return agent.act, int(read_manifest(folder)["env_steps"])


@dataclass(frozen=True)
class Play:
    """Who plays, in what, from which seed, and what about.json says of it."""

    env: Any
    policy: Policy
    seed: int
    about: dict[str, Any]


def play(
    game: str,
    envs: int = ENVS,
    seed: int = SEED,
    run_dir: Path | None = None,
    checkpoint: str = "best",
    epsilon: float = EPSILON,
) -> Play:
    """Random play, or that of a run's network ("best" or "last") with some exploration."""
    from rlmem.config import check, compose
    from rlmem.envs import make_env

    overrides = ["env=atari", f"env.game={game}", "env/protocol=machado"]
    env = make_env(check(compose("train", overrides)).env, envs)
    act, name = random_policy(env.spec.num_actions), "random"
    if run_dir is not None:
        act, trained = run_policy(run_dir, checkpoint, env.spec)
        agent = run_settings(run_dir).agent.name
        name = f"agent={agent}, {trained:,} env steps, epsilon {epsilon:g}"
    rng = np.random.default_rng(seed)
    about = {"game": game, "protocol": "machado", "policy": name, "seed": seed}
    return Play(env, lambda observation: act(observation, epsilon, rng), seed, about)


def training(run_dir: Path) -> tuple[Play, int]:
    """What a run played while it was trained, and the transitions that it was.

    Raises:
        UserError: no such run, or its checkpoint has not kept all of its actions.
    """
    from rlmem.callbacks.checkpoint_files import CheckpointFiles, find_checkpoint
    from rlmem.collect.config import SeedOf, derive_seed
    from rlmem.errors import UserError
    from rlmem.runs.build import build_env

    run, folder = run_settings(run_dir), find_checkpoint(run_dir)
    if folder is None:
        raise UserError(f"--run {run_dir}: it has no checkpoint")
    files = CheckpointFiles(folder)
    try:
        stream = files.state("stream")
    except ValueError as error:
        raise UserError(f"--run {run_dir}: {error}") from None
    whole = "actions" in stream and stream["seeded_at"] == 0
    if not whole or files.manifest.get("processes", 1) != 1:
        raise UserError(
            f"--run {run_dir}: its checkpoint has not kept its actions from the first step on; "
            "use a run of one process and of fewer env steps than checkpoint.reseed_every"
        )
    actions = np.asarray(stream["actions"]).astype(np.int64)
    left = iter(actions)
    seed = derive_seed(run.seed, SeedOf.EPISODES, 0)  # as the collector seeds them
    name = f"training, agent={run.agent.name}"
    rules = run.env.protocol.name
    about = {"game": run.env.game, "protocol": rules, "policy": name, "seed": run.seed}
    return Play(build_env(run), lambda observation: next(left), seed, about), actions.size


def record(out: Path, played: Play, steps: int) -> dict[str, Any]:
    """Play, and write the folder `out`, which appears when it is complete.

    Args:
        steps: transitions over all envs, a multiple of envs.

    Returns:
        The content of about.json.
    """
    from rlmem.envs import FrameStack

    env, envs = played.env, played.env.spec.num_envs
    times, shape = steps // envs, env.spec.frame_shape[1:]
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
        part = Path(scratch) / "recording"
        part.mkdir()
        observation = np.lib.format.open_memmap(
            part / "observation.npy", "w+", np.uint8, (times + 1, envs, *shape)
        )
        columns = {
            "action": np.empty((times, envs), np.int64),
            "reward": np.empty((times, envs), np.float32),
            "terminated": np.empty((times, envs), np.bool_),
            "truncated": np.empty((times, envs), np.bool_),
        }
        final: list[np.ndarray] = []
        total, returns = np.zeros(envs), []
        stack = FrameStack(env.spec)
        observation[0] = env.reset(played.seed)[:, 0]
        stack.reset(observation[0][:, None])
        for t in range(times):
            action = played.policy(stack.observation)
            step = env.step(action)
            done = step.terminated | step.truncated
            stack.push(step.observation, done)
            observation[t + 1] = step.observation[:, 0]
            final += [step.next_observation[e, 0].copy() for e in np.flatnonzero(done)]
            columns["action"][t], columns["reward"][t] = action, step.reward
            columns["terminated"][t], columns["truncated"][t] = step.terminated, step.truncated
            total += step.reward
            returns += total[done].tolist()
            total[done] = 0.0
        env.close()
        observation.flush()
        columns["final"] = np.stack(final) if final else np.empty((0, *shape), np.uint8)
        for column, values in columns.items():
            np.save(part / f"{column}.npy", values)
        about = {
            **played.about,
            "steps": times * envs,
            "envs": envs,
            "episodes": len(returns),
            "mean_return": float(np.mean(returns)) if returns else None,
            "versions": versions(["rlmem", "numpy", "ale-py"]),
        }
        (part / "about.json").write_text(json.dumps(about, indent=1) + "\n")
        os.rename(part, out)
    return about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--game", help="a ROM's name (default: the run's, or road_runner)")
    parser.add_argument("--run", type=Path, help="a run directory, whose network plays")
    parser.add_argument("--checkpoint", choices=["best", "last"], default="best")
    parser.add_argument("--epsilon", type=float, default=EPSILON, help="exploration with --run")
    parser.add_argument(
        "--training", action="store_true", help="what --run was trained on, as it was played"
    )
    parser.add_argument("--steps", type=int, help="transitions over all envs")
    parser.add_argument("--envs", type=int, default=ENVS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, help="a folder that does not exist yet")
    args = parser.parse_args()
    if args.run and not args.out:
        parser.error("--run needs --out")
    if args.training and not args.run:
        parser.error("--training needs --run")
    try:
        from rlmem.errors import UserError
    except ImportError as error:
        exit_not_installed(error)
    try:
        steps = args.steps or STEPS
        if args.training:
            played, most = training(args.run)
            steps = min(args.steps or most, most)
        else:
            game = args.game or (run_settings(args.run).env.game if args.run else "road_runner")
            played = play(game, args.envs, args.seed, args.run, args.checkpoint, args.epsilon)
        envs = played.env.spec.num_envs
        if steps < envs or steps % envs:
            parser.error(f"--steps {steps}: must be a multiple of {envs} environments")
        out = args.out or default_folder(game, steps)
        if out.exists():
            parser.error(f"{out} is there already")
        about = record(out, played, steps)
    except UserError as error:
        sys.exit(str(error))
    if about["episodes"]:
        print(f"mean return {about['mean_return']:.1f} over {about['episodes']} episodes")
    print(f"written: {out}")


if __name__ == "__main__":
    main()
