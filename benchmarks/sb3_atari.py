"""SB3's DQN on RoadRunner with SB3's replay buffers and with rlmem's: speed, bytes, the weights.

python benchmarks/sb3_atari.py --buffer default      # one JSON line; also: optimized, frames,
                                                     # compressed
python benchmarks/sb3_atari.py --list
python benchmarks/sb3_atari.py [--only default,compressed] [--results FOLDER]   # all, as a table

The settings are those of peers/sb3.py, with a buffer of exactly `--steps` transitions. The clock
and the resident memory start after a tenth of the steps, with the first updates done; memory grows
from there by what is stored. The table takes it from a second run with 4 KiB pages and an allocator
that gives freed blocks back at once, which costs time. `weights_crc32` is of the trained network:
with one seed and one thread, equal numbers are the same run. `optimized` is SB3's
`optimize_memory_usage`, which cannot handle timeouts.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import psutil
from common import (
    FRAME_SKIP,
    NOT_INSTALLED,
    SCREEN,
    STACK,
    STICKY,
    TASKS,
    exit_not_installed,
    machine,
    versions,
)

BUFFERS = ("default", "optimized", "frames", "compressed")
METRICS = {  # metric -> decimals in the table
    "env_steps_per_second": 1,
    "bytes_a_transition": 0,
    "resident_bytes_a_transition": 0,
    "buffer_mb": 1,
    "resident_growth_mb": 1,
    "gb_a_million": 3,
}
PACKAGES = ["torch", "numpy", "gymnasium", "ale-py", "stable-baselines3", "rlmem"]
# glibc reads these when a process starts.
GIVE_BACK = {"MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_MMAP_THRESHOLD_": "65536"}


def arguments_of(buffer: str) -> dict[str, Any]:
    """What a user passes to DQN for this buffer."""
    if buffer == "default":
        return {}
    if buffer == "optimized":
        return {
            "optimize_memory_usage": True,
            "replay_buffer_kwargs": {"handle_timeout_termination": False},
        }
    from rlmem.integrations.sb3 import CompressedReplayBuffer, FrameReplayBuffer

    kinds = {"frames": FrameReplayBuffer, "compressed": CompressedReplayBuffer}
    return {"replay_buffer_class": kinds[buffer]}


def counted(buffer: Any) -> int:
    """Bytes of a buffer: by its own count, or of its arrays."""
    if hasattr(buffer, "footprint"):
        return sum(buffer.footprint().values())
    return sum(a.nbytes for a in vars(buffer).values() if hasattr(a, "nbytes"))


def rss() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


def small_pages() -> None:
    """No huge pages in this process, so that only what was written is resident."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE


def measure(buffer: str, steps: int, num_envs: int, seed: int, threads: int) -> dict[str, Any]:
    """Train once; the line of a contender."""
    import ale_py
    import gymnasium
    import torch
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    torch.set_num_threads(threads)
    gymnasium.register_envs(ale_py)
    task = TASKS["atari"]
    env = make_atari_env(
        "RoadRunnerNoFrameskip-v4",
        n_envs=num_envs,
        seed=seed,
        wrapper_kwargs={
            "noop_max": 0,
            "frame_skip": FRAME_SKIP,
            "screen_size": SCREEN,
            "terminal_on_life_loss": False,
            "clip_reward": True,
            "action_repeat_probability": STICKY,
        },
    )
    first = steps // 10
    model = DQN(
        "CnnPolicy",
        VecFrameStack(env, n_stack=STACK),
        learning_rate=task.lr,
        buffer_size=steps,
        learning_starts=first // 2,
        batch_size=task.batch_size,
        gamma=task.gamma,
        train_freq=max(1, task.train_every // num_envs),  # counts calls of the vector env
        target_update_interval=task.target_update_every,
        exploration_fraction=0.1,
        exploration_final_eps=task.epsilon_end,
        policy_kwargs={"net_arch": [], "optimizer_kwargs": {"eps": task.adam_eps}},
        seed=seed,
        device="cpu",
        **arguments_of(buffer),
    )

    class Start(BaseCallback):
        """Notes the clock and the resident memory once, after the first updates."""

        at: tuple[int, float, int] | None = None

        def _on_step(self) -> bool:
            if self.at is None and self.num_timesteps >= first:
                self.at = self.num_timesteps, time.perf_counter(), rss()
            return True

    start = Start()
    model.learn(steps, callback=start, log_interval=None)
    assert start.at is not None
    passed, grown = time.perf_counter() - start.at[1], rss() - start.at[2]
    count = model.num_timesteps - start.at[0]
    size = counted(model.replay_buffer)
    weights = b"".join(p.detach().numpy().tobytes() for p in model.policy.parameters())
    return {
        "name": f"sb3 {buffer}",
        "steps": steps,
        "num_envs": num_envs,
        "metrics": {
            "env_steps_per_second": round(count / passed, 2),
            "bytes_a_transition": round(size / steps, 1),
            "resident_bytes_a_transition": round(grown / count, 1),
            "buffer_mb": round(size / 1e6, 3),
            "resident_growth_mb": round(grown / 1e6, 3),
            "gb_a_million": round(size / steps / 1e3, 4),
        },
        "weights_crc32": f"{zlib.crc32(weights):08x}",
        "versions": versions(PACKAGES),
    }


def spawn(
    buffer: str, args: argparse.Namespace, give_back: bool
) -> tuple[dict[str, Any] | None, int]:
    """Train in a process of its own: its line (or None), and its exit status."""
    command = [sys.executable, __file__, "--buffer", buffer, "--steps", str(args.steps)]
    command += ["--num-envs", str(args.num_envs), "--seed", str(args.seed)]
    command += ["--threads", str(args.threads), *(["--small-pages"] if give_back else [])]
    done = subprocess.run(
        command,
        env={**os.environ, **(GIVE_BACK if give_back else {})},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return (None if done.returncode else json.loads(done.stdout.splitlines()[-1])), done.returncode


def compare(args: argparse.Namespace) -> tuple[str, list[dict[str, Any]]]:
    """Every buffer twice, for the speed and for the resident memory: the page and the lines."""
    lines, rows = [], []
    for buffer in args.only.split(","):
        line, status = spawn(buffer, args, give_back=False)
        resident, status = spawn(buffer, args, give_back=True) if line else (None, status)
        if line is None or resident is None:
            problem = "not installed" if status == NOT_INSTALLED else "failed"
            rows.append([f"sb3 {buffer}", problem, *[""] * len(METRICS)])
            continue
        line["metrics"] |= {n: v for n, v in resident["metrics"].items() if "resident" in n}
        lines.append(line)
        cells = [f"{line['metrics'][m]:,.{d}f}" for m, d in METRICS.items()]
        rows.append([line["name"], *cells, line["weights_crc32"]])
        print(rows[-1], file=sys.stderr, flush=True)
    about = machine()
    used = lines[-1]["versions"] if lines else {}
    header = ["contender", *METRICS, "weights_crc32"]
    page = [
        "# sb3_atari",
        "",
        f"SB3's DQN on RoadRunner, {args.steps:,} steps of {args.num_envs} environments, a buffer "
        f"of as many transitions, seed {args.seed}, {args.threads} thread(s); 1 MB is 10^6 bytes.",
        f"Machine: {about['cpu']}, {about['cores']} cores, {about['memory_gib']} GiB, "
        f"{about['system']}. Versions: {', '.join(f'{k} {v}' for k, v in used.items())}.",
        "",
        "| " + " | ".join(header) + " |",
        "|---|" + "---:|" * (len(header) - 1),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    return "\n".join(page) + "\n", lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--buffer", choices=BUFFERS, help="one of them, in this process")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", default=",".join(BUFFERS), help="buffers to compare: a,b")
    parser.add_argument("--steps", type=int, default=20_000, help="env steps, and the buffer's")
    parser.add_argument("--num-envs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--small-pages", action="store_true", help="4 KiB pages in this process")
    parser.add_argument("--results", type=Path, help="write the table and its numbers there")
    args = parser.parse_args()
    if args.list:
        print("\n".join(BUFFERS))
    elif args.buffer:
        if args.small_pages:
            small_pages()
        try:
            line = measure(args.buffer, args.steps, args.num_envs, args.seed, args.threads)
        except ImportError as error:
            exit_not_installed(error)
        print(json.dumps(line), flush=True)
    else:
        page, lines = compare(args)
        print(page)
        if args.results:
            args.results.mkdir(parents=True, exist_ok=True)
            content = {"benchmark": "sb3_atari", "machine": machine(), "results": lines}
            (args.results / "sb3_atari.json").write_text(json.dumps(content, indent=1) + "\n")
            (args.results / "sb3_atari.md").write_text(page)


if __name__ == "__main__":
    main()
