"""Returns over N steps: what leaves the queue, when, and with what."""

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmem.errors import UserError
from rlmem.memories.base.blocks import Block
from rlmem.memories.values.base import Visits, visit_columns
from rlmem.memories.values.queue import ReturnQueue

KEY, GAMMA = 3, 0.9


def spec_of(num_envs: int, stack: int) -> Any:
    return SimpleNamespace(
        num_envs=num_envs,
        stack=stack,
        frame_shape=(1, 2, 2),
        observation_shape=(stack, 2, 2),
        dtype=np.dtype(np.uint8),
    )


class Envs:
    """Environments of random numbers, stepped in turn; all that was played, by environment."""

    def __init__(self, seed: int, num_envs: int, stack: int, end: float = 0.15) -> None:
        self.rng, self.end, self.stack = np.random.default_rng(seed), end, stack
        self.frame = self.rng.integers(1, 256, (num_envs, 1, 2, 2), np.uint8)
        self.steps: list[list[dict]] = [[] for _ in range(num_envs)]

    def block(self, turns: int) -> Block:
        envs = len(self.steps)
        rows = [self._step(env) for _ in range(turns) for env in range(envs)]
        columns = {name: np.array([r[name] for r in rows]) for name in visit_columns(KEY)}
        named = {f.name: np.array([r[f.name] for r in rows]) for f in fields(Block)[:-1]}
        return Block(**named, columns=columns)

    def _step(self, env: int) -> dict:
        rng = self.rng
        ends = rng.random() < self.end
        terminated = bool(ends and rng.random() < 0.5)
        after = rng.integers(1, 256, (1, 2, 2), np.uint8)
        row = {
            "observation": self.frame[env].copy(),
            "action": int(rng.integers(4)),
            "next_observation": after,
            "reward": np.float32(rng.normal()),
            "terminated": terminated,
            "truncated": bool(ends and not terminated),
            "env_id": env,
            "key": rng.normal(size=KEY).astype(np.float32),
            "value": np.float32(rng.normal()),
            "hash": int(rng.integers(2**40)),
        }
        self.frame[env] = rng.integers(1, 256, (1, 2, 2), np.uint8) if ends else after
        self.steps[env].append(row)
        return row


def look(observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A key and a value that tell which stack was shown."""
    total = observation.reshape(len(observation), -1) @ np.arange(1, observation[0].size + 1)
    return np.repeat(total[:, None], KEY, 1).astype(np.float32), total.astype(np.float32)


def last_stack(episode: list[dict], stack: int) -> np.ndarray:
    frames = [row["observation"] for row in episode] + [episode[-1]["next_observation"]]
    padded = [np.zeros((1, 2, 2), np.uint8)] * stack + frames
    return np.concatenate(padded[-stack:])[None]


def expected(steps: list[dict], n_step: int, stack: int) -> list[dict]:
    """What is to leave the queue of one environment, in order."""
    out, begin = [], 0
    for end, row in enumerate(steps):
        if not (row["terminated"] or row["truncated"]) and end < len(steps) - 1:
            continue
        episode = steps[begin : end + 1]
        over = row["terminated"] or row["truncated"]
        key, value = look(last_stack(episode, stack))
        for t, at in enumerate(episode):
            later = episode[t : t + n_step]
            target = sum(GAMMA**j * r["reward"] for j, r in enumerate(later))
            if t + n_step < len(episode):
                target += GAMMA**n_step * episode[t + n_step]["value"]
            elif not over:
                break  # it still waits
            elif row["truncated"]:
                target += GAMMA ** len(later) * value[0]
            last = t == len(episode) - 1
            following = key[0] if last else episode[t + 1]["key"]
            out.append({**at, "target": target, "next_key": following})
        begin = end + 1
    return out


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_step=st.integers(1, 12),
    num_envs=st.integers(1, 3),
    stack=st.sampled_from([1, 2, 4]),
    turns=st.integers(1, 9),
)
def test_returns_are_those_of_whole_episodes_looked_at_afterwards(
    seed: int, n_step: int, num_envs: int, stack: int, turns: int
) -> None:
    envs = Envs(seed, num_envs, stack)
    queue = ReturnQueue(spec_of(num_envs, stack), n_step, GAMMA, KEY)
    left: list[list[tuple]] = [[] for _ in range(num_envs)]
    for _ in range(8):
        known = queue.push(envs.block(turns), look)
        queue.check_valid()
        if known is None:
            continue
        visits, rows = known
        for n, env in enumerate(visits.env_id):
            left[env].append(
                (
                    {f.name: getattr(visits, f.name)[n] for f in fields(Visits)},
                    {f.name: getattr(rows, f.name)[n] for f in fields(Block)[:-1]},
                )
            )
    assert len(queue) == sum(map(len, envs.steps)) - sum(map(len, left))
    for steps, gone in zip(envs.steps, left, strict=True):
        wanted = expected(steps, n_step, stack)
        assert len(gone) == len(wanted)
        for (visit, row), want in zip(gone, wanted, strict=True):
            np.testing.assert_allclose(visit["target"], want["target"], rtol=1e-5, atol=1e-5)
            assert row["reward"] == visit["target"]
            for name in ("key", "hash", "action", "reward", "next_key", "terminated", "truncated"):
                np.testing.assert_array_equal(visit[name], want[name])
            for name in ("observation", "action", "next_observation", "terminated", "truncated"):
                np.testing.assert_array_equal(row[name], want[name])


def test_a_saved_queue_goes_on_in_the_middle_of_episodes() -> None:
    envs = Envs(0, 2, 4, end=0.02)
    queue, other = (ReturnQueue(spec_of(2, 4), 10, GAMMA, KEY) for _ in range(2))
    queue.push(envs.block(25), look)
    assert len(queue) > 10
    other.push(Envs(1, 2, 4).block(30), look)  # what waited there is gone
    other.load_state_dict(queue.state_dict())
    for _ in range(10):
        block = envs.block(7)
        ours, theirs = queue.push(block, look), other.push(block, look)
        assert ours is not None
        assert theirs is not None
        for a, b in zip(ours, theirs, strict=True):
            for f in fields(a):
                if f.name != "columns":
                    np.testing.assert_array_equal(getattr(a, f.name), getattr(b, f.name))


def test_a_queue_of_other_steps_is_refused() -> None:
    state = ReturnQueue(spec_of(1, 4), 10, GAMMA, KEY).state_dict()
    with pytest.raises(UserError, match=r"give the same agent\.n_step"):
        ReturnQueue(spec_of(1, 4), 11, GAMMA, KEY).load_state_dict(state)


def test_a_damaged_queue_is_refused() -> None:
    queue = ReturnQueue(spec_of(1, 1), 5, GAMMA, KEY)
    with pytest.raises(UserError, match="out of order"):
        queue.load_state_dict(queue.state_dict() | {"next": np.array([9])})
