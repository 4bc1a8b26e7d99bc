"""Hindsight when a batch is drawn, beside storing each transition 1 + k times.

python benchmarks/her.py [--steps 50000] [--bits 15] [--k 4]

The same episodes of bit flipping (random play) into each memory. Writes results/her.md: bytes a
transition, and milliseconds to draw 40 minibatches of 128, the fastest of 200.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import machine

ENVS, CAPACITY, BATCH, UPDATES, DRAWS = 8, 1_000_000, 128, 40, 200


def play(bits: int, steps: int) -> tuple[Any, list[dict[str, Any]]]:
    """Spec of the environment, and blocks of one turn of all environments each."""
    from rlmem.config import check, compose
    from rlmem.envs import make_env

    env = make_env(check(compose("train", ["env=bit_flip", f"env.bits={bits}"])).env, ENVS)
    rng, blocks, frames = np.random.default_rng(0), [], env.reset(0)
    for _ in range(steps // ENVS):
        action = rng.integers(bits, size=ENVS)
        step = env.step(action)
        following = {
            "observation": step.next_observation,
            "reward": step.reward[:, None],
            "terminated": step.terminated[:, None],
            "truncated": step.truncated[:, None],
            "achieved_goal": step.achieved_goal,
        }
        index = np.arange(ENVS)
        blocks.append({"observation": frames, "action": action, "env_id": index, "next": following})
        frames = step.observation
    return env.spec, blocks


def memory_of(spec: Any, *overrides: str) -> Any:
    from rlmem.config import check, compose
    from rlmem.runs.build import build_memory

    given = ["env=bit_flip", f"memory.capacity={CAPACITY}", f"agent.batch_size={BATCH}"]
    return build_memory(check(compose("train", [*given, *overrides])), spec)


def copies(blocks: list[dict[str, Any]], spec: Any, k: int) -> list[dict[str, Any]]:
    """All blocks, and k times the same transitions with another goal that was achieved. They come
    behind all others, where they do not part the frames of those."""
    rules, size, rng = spec.goal.rules, spec.goal.size, np.random.default_rng(0)
    written = list(blocks)
    for number, block in enumerate(blocks):
        for _ in range(k):
            other = blocks[min(number + int(rng.integers(8)), len(blocks) - 1)]
            goal = other["next"]["achieved_goal"]
            achieved = block["next"]["achieved_goal"]
            frames = np.concatenate([block["observation"][:, :-size], goal], 1)
            after = np.concatenate([block["next"]["observation"][:, :-size], goal], 1)
            following = {
                "observation": after,
                "reward": rules.reward(achieved, goal)[:, None],
                "terminated": rules.terminated(achieved, goal)[:, None],
                "truncated": np.zeros((ENVS, 1), np.bool_),
            }
            written.append({**block, "observation": frames, "next": following})
    return written


def measured(memory: Any, blocks: list[dict[str, Any]]) -> tuple[float, float]:
    """Bytes held, and ms to draw the minibatches of a cycle."""
    for block in blocks:
        memory.extend(block)
    spent = []
    for _ in range(DRAWS):
        started = time.perf_counter()
        memory.sample(BATCH, UPDATES)
        spent.append(time.perf_counter() - started)
    return sum(memory.footprint().values()), 1e3 * min(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--bits", type=int, default=15)
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    torch.set_num_threads(1)
    spec, blocks = play(args.bits, args.steps)
    contenders = {
        "uniform, without hindsight": (["memory=uniform"], blocks),
        "her, future": (["memory=her"], blocks),
        "her, final": (["memory=her", "memory.strategy=final"], blocks),
        "her, episode": (["memory=her", "memory.strategy=episode"], blocks),
        "her, random": (["memory=her", "memory.strategy=random"], blocks),
        f"uniform, {args.k} copies stored": (["memory=uniform"], copies(blocks, spec, args.k)),
    }
    about, steps = machine(), len(blocks) * ENVS
    lines = [
        "# Hindsight goals at sampling, and stored",
        "",
        f"`python benchmarks/her.py --steps {args.steps} --bits {args.bits} --k {args.k}`: random "
        f"play, {ENVS} envs, {UPDATES} minibatches of {BATCH}. {about['cpu']}, {about['cores']} "
        "cores, one torch thread.",
        "",
        "| memory | bytes a transition played | ms to draw |",
        "|---|---:|---:|",
    ]
    for name, (overrides, shown) in contenders.items():
        size, ms = measured(memory_of(spec, *overrides), shown)
        lines.append(f"| {name} | {size / steps:.1f} | {ms:.2f} |")
    print("\n".join(lines))
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / "her.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
