"""A rollout: drawn when it is whole, in the order of time, each frame once, then let go."""

from typing import Any

import numpy as np
import pytest
import torch

from rlmem.envs import EnvSpec
from rlmem.memories.ring.frames import FrameStorage
from rlmem.memories.rollout import RolloutMemory
from tests.memories.helpers import RandomEnvs, configured
from tests.memories.states import assert_equal, states_of

ENVS, STEPS, STACK, SHAPE = 3, 20, 4, (6, 6)


def memory(steps: int = STEPS) -> RolloutMemory:
    storage = FrameStorage(
        ENVS * steps,
        (1, *SHAPE),
        np.uint8,
        stack=STACK,
        num_envs=ENVS,
        columns={"value": ((), np.float32)},
    )
    return RolloutMemory(storage, seed=0)


def random_envs(seed: int = 0, end: float = 0.1) -> RandomEnvs:
    return RandomEnvs(np.random.default_rng(seed), (1, *SHAPE), np.uint8, ENVS, end, 0.3)


def turns(envs: RandomEnvs, count: int) -> dict[str, Any]:
    """A block of whole turns, with a value of each transition."""
    block = envs.block(count * ENVS)
    return block | {"value": envs.rng.normal(size=count * ENVS).astype(np.float32)}


def played(made: RolloutMemory, envs: RandomEnvs, *counts: int) -> list[dict[str, Any]]:
    """Blocks that were written."""
    blocks = [turns(envs, count) for count in counts]
    for block in blocks:
        made.extend(block)
    return blocks


class Stacker:
    """The stacks that an environment gives, row by row."""

    def __init__(self) -> None:
        self.running = np.zeros((ENVS, STACK, *SHAPE), np.uint8)

    def rows(self, block: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Observations and next observations [N, STACK, 6, 6]."""
        before, after = [], []
        following = block["next"]
        for row, env in enumerate(block["env_id"]):
            stack = np.concatenate((self.running[env][1:], block["observation"][row]))
            before.append(stack)
            after.append(np.concatenate((stack[1:], following["observation"][row])))
            done = following["terminated"][row] | following["truncated"][row]
            self.running[env] = 0 if done else stack
        return np.array(before), np.array(after)


def learn(made: RolloutMemory, index: np.ndarray) -> None:
    """Tell it that its rollout was learned from."""
    made.learned({"index": torch.from_numpy(index)}, {})


def test_it_is_drawn_when_it_is_whole_and_once() -> None:
    made, envs = memory(), random_envs()
    for part in (8, 8, 4):
        assert made.available(7, 5) == 0
        with pytest.raises(RuntimeError, match=r"the rollout has \d+ of 60 transitions"):
            made.draw(7, 5)
        played(made, envs, part)
    assert made.available(7, 5) == 1
    index = made.draw(7, 5)["index"].numpy()
    assert index.shape == (1, ENVS, STEPS)
    learn(made, index)
    assert len(made) == 0
    assert made.available(7, 5) == 0


def test_its_rows_are_environments_and_its_columns_time() -> None:
    made, envs = memory(), random_envs()
    for _ in range(3):  # the second and third begin where the ring stands
        (block,) = played(made, envs, STEPS)
        batch = made.draw(1, 1)
        for name in ("reward", "terminated", "truncated"):
            wanted = block["next"][name].reshape(STEPS, ENVS).T
            assert np.array_equal(batch[name][0, ..., 0], wanted), name
        for name in ("action", "value"):
            assert np.array_equal(batch[name][0], block[name].reshape(STEPS, ENVS).T), name
        assert batch["weight"].shape == (1, ENVS, STEPS, 1)
        learn(made, batch["index"].numpy())


def test_minibatches_have_the_stacks_that_the_environments_gave() -> None:
    made, envs, stacker = memory(), random_envs(), Stacker()
    for _ in range(3):  # a stack may begin in the rollout before
        (block,) = played(made, envs, STEPS)
        before, after = stacker.rows(block)
        index = made.draw(1, 1)["index"].numpy()
        order = np.random.default_rng(0).permutation(ENVS * STEPS)
        rows = index[0].T.reshape(-1)[order]  # in the order of the block
        for part in np.split(np.arange(ENVS * STEPS), 4):
            batch = made.minibatch(rows[part])
            assert np.array_equal(batch["observation"][0], before[order[part]])
            assert np.array_equal(batch["action"][0], block["action"][order[part]])
            following = made.next_observations(rows[part])
            assert np.array_equal(following, after[order[part]])
        learn(made, index)


def test_each_frame_is_held_once() -> None:
    made, envs = memory(200), random_envs(end=0.0)
    played(made, envs, 200)
    frame, chunk = int(np.prod(SHAPE)), 16
    # Of each environment what its steps saw and what is seen next, in whole chunks; the padding.
    assert made.footprint()["frames"] == frame * (1 + ENVS * chunk * -(-201 // chunk))
    stacked = made.draw(1, 1)["index"].numel() * STACK * frame
    assert made.footprint()["frames"] < 0.3 * stacked
    assert made.transitions_represented == ENVS * 200


def test_its_bytes_do_not_grow_over_rollouts() -> None:
    made, envs = memory(), random_envs(end=0.0)
    frame, chunk = int(np.prod(SHAPE)), 16
    # Of a rollout and of the stack before it, which may begin and end within a chunk.
    chunks = ENVS * (1 + -(-(STEPS + STACK) // chunk))
    for _ in range(40):
        played(made, envs, STEPS)
        learn(made, made.draw(1, 1)["index"].numpy())
        made.check_valid()
        assert made.footprint()["frames"] <= frame * (1 + chunks * chunk)


def test_a_saved_rollout_goes_on_in_its_middle(tmp_path: Any) -> None:
    made, twin = memory(), memory()
    envs, same = random_envs(), random_envs()
    played(made, envs, STEPS)
    learn(made, made.draw(1, 1)["index"].numpy())
    played(made, envs, 7)
    made.save(tmp_path)
    twin.load(tmp_path)
    played(memory(), same, STEPS, 7)  # the same environments, as far
    assert_equal(states_of(made), states_of(twin))
    rest = turns(envs, STEPS - 7)
    for each in (made, twin):
        each.extend(rest)
    left, right = made.draw(1, 1), twin.draw(1, 1)
    assert_equal(left, right)
    index = left["index"].numpy().reshape(-1)
    assert_equal(made.minibatch(index), twin.minibatch(index))


def test_blocks_are_whole_turns() -> None:
    made, envs = memory(), random_envs()
    half = envs.block(ENVS - 1) | {"value": np.zeros(ENVS - 1, np.float32)}
    block = turns(envs, 2)
    for bad in (half, block | {"env_id": block["env_id"][::-1].copy()}):
        with pytest.raises(ValueError, match="a rollout is written in whole turns"):
            made.extend(bad)
    assert len(made) == 0


def test_a_budget_that_passes_is_never_exceeded() -> None:
    spec = EnvSpec("Random", "test", ENVS, (1, *SHAPE), np.dtype(np.uint8), STACK, 2, 1)
    run = ["agent=pqn", "memory=rollout", f"env.num_envs={ENVS}", "agent.batch_size=60"]
    run += ["memory.capacity=60"]
    with pytest.raises(Exception, match=r"memory.budget=1KiB: a rollout of 60.*use memory.b") as e:
        configured(spec, *run, "memory.budget=1KiB")
    least = int(str(e.value).split("memory.budget=")[2].split()[0])
    made: Any = configured(spec, *run, f"memory.budget={least}")
    envs = random_envs(end=1.0)  # each step is an episode: as many frames as there can be
    for _ in range(3):
        for _ in range(STEPS):
            made.extend(envs.block(ENVS))
            assert sum(made.footprint().values()) <= least
        learn(made, made.draw(1, 1)["index"].numpy())


def test_an_emptied_rollout_tells_no_more_than_it_will() -> None:
    made, envs = memory(), random_envs(end=1.0)  # each step an episode: frames take most room
    played(made, envs, STEPS)
    made.storage.evict(len(made))
    assert not len(made)
    told, most = made.footprint(), made.projected_footprint()
    assert sum(told.values()) <= sum(most.values())
