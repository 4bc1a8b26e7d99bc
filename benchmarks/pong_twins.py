"""How much of what NEC reads of Pong's actions is noise.

python benchmarks/pong_twins.py outputs/pong/dnd/...      # a run with env=pong agent=nec memory=dnd

Pong has six actions, of which three pairs do the same: NOOP and FIRE, RIGHT and RIGHTFIRE, LEFT
and LEFTFIRE. So a dictionary that knows what actions are worth gives twins the same value. In 500
states of random play (every fifth of a game) this prints, for means over several numbers of
neighbours: the root mean square difference of twins' values, that of values of unlike actions, and
how often both sets of twins (the first three, the last three) have the same best action, where
chance is a third.
"""

from __future__ import annotations

import argparse
from itertools import combinations

import numpy as np
import torch

import rlmem
from rlmem.callbacks.checkpoint_files import find_checkpoint
from rlmem.envs import FrameStack
from rlmem.runs import build
from rlmem.runs.score import load_player, load_run_memory

FIRST, SECOND = [0, 2, 3], [1, 4, 5]  # NOOP, RIGHT, LEFT; FIRE, RIGHTFIRE, LEFTFIRE
NEIGHBOURS, STATES, EVERY = (11, 50, 200, 1000), 500, 5


def game(env, agent) -> np.ndarray:
    """States of a game, uint8 [STATES, *observation_shape]."""
    stack, rng, seen = FrameStack(env.spec), np.random.default_rng(0), []
    stack.reset(env.reset(7))
    for step in range(STATES * EVERY):
        action = agent.act(stack.observation, 1.0, rng)  # random
        came = env.step(action)
        stack.push(came.observation, came.terminated | came.truncated)
        if step % EVERY == 0:
            seen.append(stack.observation[0].copy())
    return np.stack(seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="a run directory")
    run = rlmem.load_run(parser.parse_args().run)
    torch.set_num_threads(1)
    env = build.build_evaluation_env(run.settings, 1, render=False)
    agent = build.build_agent(run.settings, env.spec)
    env_steps, _ = load_player(run.path, "last", run.settings, env.spec, agent)
    keys = agent.eval().keys(game(env, agent))
    folder = find_checkpoint(run.path)
    assert folder is not None, "its networks were loaded"
    print(f"{env_steps:,} env steps")
    print("| neighbours | twins differ by | unlike actions by | same best action |")
    print("|---:|---:|---:|---:|")
    for count in NEIGHBOURS:
        run.settings.memory.neighbours = count
        memory = load_run_memory(run.settings, env.spec, agent, folder)
        values, _ = memory.values.read(keys, touch=False)
        first, second = values[:, FIRST], values[:, SECOND]
        mean = (first + second) / 2
        unlike = np.stack([mean[:, a] - mean[:, b] for a, b in combinations(range(3), 2)])
        twins, others = (np.sqrt(np.square(x).mean()) for x in (first - second, unlike))
        agree = (first.argmax(1) == second.argmax(1)).mean()
        print(f"| {count} | {twins:.3f} | {others:.3f} | {agree:.2f} |")


if __name__ == "__main__":
    main()
