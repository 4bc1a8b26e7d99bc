"""A3C's workers against a bare loop, and two of them against one.

    python benchmarks/a3c.py [--networks lstm42,nature,gru160,mlp] [--steps 3000] [--repeats 3]

Each contender runs in processes of its own, one after the other, in turn. Steps a CPU second of the
processes that play and learn hardly depend on what else the machine does; steps a second do.
The bare loop has the same environment, network, T, loss and Adam, and neither shared memory nor
reports nor anything that a checkpoint needs.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

T, WARM_UP = 20, 400


def settings_of(network: str, workers: int) -> Any:
    """Of a run: Pong, or CartPole for the network of vectors."""
    from rlmem.config import check, compose

    env = ["env=cartpole"] if network == "mlp" else ["env=pong", f"agent.network.kind={network}"]
    long = ["trainer.max_env_steps=100000000", "checkpoint.every=50000000", "log.every=50000000"]
    own = ["agent=a3c", f"agent.workers={workers}", f"agent.n_step={T}", "log.progress=false"]
    return check(compose("train", [*own, *env, *long]))


def run_workers(network: str, workers: int, steps: int) -> dict[str, float]:
    """Steps a second, and a CPU second of the workers."""
    from rlmem.runs import build

    run = settings_of(network, workers)
    env = build.build_env(run)
    agent: Any = build.build_agent(run, env.spec)
    memory = build.build_memory(run, env.spec)
    agent.join(memory)
    stream = build.build_stream(run, env, memory, agent)
    stream.due_every(50_000_000)
    stream.begin_step()
    while stream.env_steps < workers * WARM_UP:
        next(stream)
    first, cpu, main = stream.env_steps, stream.cpu_seconds, time.process_time()
    began = time.perf_counter()
    while stream.env_steps < first + workers * steps:
        next(stream)
    done, seconds = stream.env_steps - first, time.perf_counter() - began
    cpu, main = stream.cpu_seconds - cpu, time.process_time() - main
    stream.rest()
    stream.close()
    return {"steps/s": done / seconds, "steps/CPU s": done / cpu, "main's CPU": main / seconds}


def run_bare(network: str, steps: int) -> dict[str, float]:
    """The same without any of rlmem's processes, streams and counters."""
    from rlmem.envs import FrameStack, make_env
    from rlmem.networks.policies import make_policy

    run = settings_of(network, 1)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    env = make_env(run.env, 1)
    spec, net = env.spec, run.agent.network
    shape = spec.observation_shape
    policy = make_policy(net.kind, shape, spec.num_actions, net.hidden, spec.input_scale)
    adam = torch.optim.Adam(policy.parameters(), lr=run.agent.lr, fused=True)
    loop = SimpleNamespace(stack=FrameStack(spec), rng=np.random.default_rng(0), done=False)
    loop.stack.reset(env.reset(0))
    loop.state = policy.first_state(1)
    played, began, cpu = 0, 0.0, 0.0
    while played < WARM_UP + steps:
        if not began and played >= WARM_UP:
            began, cpu, first = time.perf_counter(), time.process_time(), played
        played += bare_update(env, policy, adam, loop)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    env.close()
    return {"steps/s": (played - first) / seconds, "steps/CPU s": (played - first) / cpu}


def bare_update(env: Any, policy: Any, adam: Any, loop: Any) -> int:
    """A rollout and its gradient step; its steps."""
    before, seen, actions, rewards = loop.state, [], [], []
    with torch.no_grad():
        while len(seen) < T:
            seen.append(loop.stack.observation.copy())
            logits, _, loop.state = policy(torch.from_numpy(seen[-1])[None], loop.state)
            cumulative = torch.softmax(logits[0, 0].double(), -1).cumsum(-1).numpy()
            action = min(int(cumulative.searchsorted(loop.rng.random())), len(cumulative) - 1)
            step = env.step(np.array([action]))
            actions.append(action)
            rewards.append(float(np.clip(step.reward[0], -1, 1)))
            done = step.terminated | step.truncated
            loop.stack.push(step.observation, done)
            if done[0]:
                loop.state = policy.first_state(1)
                break
    count = len(seen)
    seen.append(loop.stack.observation.copy())
    logits, values, _ = policy(torch.from_numpy(np.stack(seen)), before)
    following = 0.0 if step.terminated[0] else float(values[count, 0].detach())
    returns = np.empty(count, np.float32)
    for n in range(count - 1, -1, -1):
        returns[n] = following = rewards[n] + 0.99 * following
    log_policy = torch.log_softmax(logits[:count, 0], -1)
    error = torch.from_numpy(returns) - values[:count, 0]
    taken = log_policy.gather(1, torch.tensor(actions)[:, None])[:, 0]
    entropy = -(log_policy.exp() * log_policy).sum()
    loss = -(taken * error.detach()).sum() + 0.5 * error.square().sum() - 0.01 * entropy
    adam.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 40.0)
    adam.step()
    policy.observe(torch.from_numpy(np.concatenate(seen[:count])))
    return count


def main() -> None:
    """Run all in turn and print a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default="lstm42,nature,gru160,mlp")
    parser.add_argument("--steps", type=int, default=3000, help="a worker")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=2, help="a contender: NETWORK and bare, or workers")
    args = parser.parse_args()
    if args.one:
        network, who = args.one
        steps = args.steps * (5 if network == "mlp" else 1)
        found = run_bare(network, steps) if who == "bare" else run_workers(network, int(who), steps)
        print(json.dumps(found))
        return
    print(f"{'network':8} {'contender':10} steps/s  steps/CPU s  main's CPU")
    for network in args.networks.split(","):
        rows: dict[str, list[dict[str, float]]] = {"bare": [], "1": [], "2": []}
        for _ in range(args.repeats):
            for who, found in rows.items():
                command = [sys.executable, __file__, "--one", network, who]
                command += ["--steps", str(args.steps)]
                out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
                found.append(json.loads(out.splitlines()[-1]))
        for who, found in rows.items():
            speed, cpu, own = (
                statistics.median(f.get(name, 0.0) for f in found)
                for name in ("steps/s", "steps/CPU s", "main's CPU")
            )
            name = who if who == "bare" else f"{who} worker{'s' * (who != '1')}"
            print(f"{network:8} {name:10} {speed:7,.0f}  {cpu:11,.0f}  {own:10.1%}", flush=True)


if __name__ == "__main__":
    main()
