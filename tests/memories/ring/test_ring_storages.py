"""The ring storages against a store that keeps every stack, and against ale-py's own stacks."""

import tempfile
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict, assert_close

from rlmem.memories import CompressedFrameStorage, DenseStorage, FrameStorage, RingWriter
from rlmem.memories.compression.arena import SEGMENT
from rlmem.memories.ring.ring import RingStorage
from tests.memories.helpers import RandomEnvs, vector_block

GAMMA = 0.9
FRAME = (1, 2, 2)


class DenseReference:
    """All transitions ever, with their whole stacks, in lists."""

    def __init__(self, stack: int, num_envs: int) -> None:
        self.stack, self.rows = stack, []
        self.running: list[np.ndarray | None] = [None] * num_envs

    def extend(self, block: dict[str, Any]) -> None:
        following = block["next"]
        for i, env in enumerate(block["env_id"]):
            if self.running[env] is None:
                padding = [np.zeros_like(block["observation"][i])] * (self.stack - 1)
                self.running[env] = np.concatenate([*padding, block["observation"][i]])
            before, channels = self.running[env], len(block["observation"][i])
            after = np.concatenate([before[channels:], following["observation"][i]])
            flags = bool(following["terminated"][i, 0]), bool(following["truncated"][i, 0])
            reward = float(following["reward"][i, 0])
            self.rows.append((env, before, block["action"][i], after, reward, flags))
            self.running[env] = None if any(flags) else after

    def get(self, seq: int, n_step: int) -> tuple:
        """(observation, action, next observation, reward, flags, steps) from row `seq` on."""
        env, observation, action, after, total, flags = self.rows[seq]
        steps = 1
        for other, _, _, later, reward, ends in self.rows[seq + 1 :]:
            if any(flags) or steps == n_step:
                break
            if other == env:
                after, total, flags = later, total + GAMMA**steps * reward, ends
                steps += 1
        return observation, action, after, total, flags, steps


def assert_holds_newest(storage: RingStorage, reference: DenseReference) -> None:
    """Every live slot of the storage gives what the reference has."""
    written = len(reference.rows)
    live = range(max(0, written - storage.max_size), written)
    assert len(storage) == len(live)
    sample = storage.get(torch.tensor([seq % storage.max_size for seq in live]))
    expected = zip(*(reference.get(seq, storage.n_step) for seq in live), strict=True)
    observation, action, after, reward, flags, steps = (np.array(column) for column in expected)
    np.testing.assert_array_equal(sample["observation"].numpy(), observation)
    np.testing.assert_array_equal(sample["action"].numpy(), action)
    np.testing.assert_array_equal(sample["next", "observation"].numpy(), after)
    np.testing.assert_allclose(sample["next", "reward"].squeeze(-1), reward, 1e-5, 1e-5)
    np.testing.assert_array_equal(sample["next", "terminated"].squeeze(-1), flags[:, 0])
    np.testing.assert_array_equal(sample["next", "truncated"].squeeze(-1), flags[:, 1])
    np.testing.assert_array_equal(sample["next", "done"].squeeze(-1), flags.any(1))
    np.testing.assert_array_equal(sample["steps_to_next"].squeeze(-1), steps)


def make(kind: str, *arguments: Any, **options: Any) -> RingStorage:
    """A storage of a kind; `memmap` lies in the system's temporary folder."""
    if kind == "memmap":
        return FrameStorage(*arguments, directory=tempfile.gettempdir(), **options)
    return {"dense": DenseStorage, "frames": FrameStorage, "compressed": CompressedFrameStorage}[
        kind
    ](*arguments, **options)


def options_of(storage: RingStorage) -> dict[str, Any]:
    """What another storage like this one is made of."""
    names = ("stack", "num_envs", "n_step", "gamma", "chunk")
    sizes = {"capacity": storage.max_size, "frame_shape": storage.frame_shape}
    return {**sizes, "dtype": storage.dtype, **{name: getattr(storage, name) for name in names}}


cases = st.fixed_dictionaries(
    {
        "num_envs": st.sampled_from([1, 2, 3, 8]),
        "spare": st.integers(0, 40),  # slots beyond one an env
        "stack": st.sampled_from([1, 2, 4]),
        "chunk": st.sampled_from([2, 3, 8, 16]),
        "n_step": st.integers(1, 5),
        "end": st.sampled_from([0.0, 0.1, 0.5, 1.0]),
        "change": st.sampled_from([0.0, 0.05, 0.3, 1.0]),
        "blocks": st.lists(st.integers(1, 60), min_size=1, max_size=6),
        "reload": st.integers(0, 6),  # before which block the state makes a round trip
        "in_turn": st.booleans(),
        "seed": st.integers(0, 2**16),
    }
)


def run_case(kind: str, case: dict[str, Any], shape: tuple, dtype: Any) -> None:
    num_envs, rng = case["num_envs"], np.random.default_rng(case["seed"])
    envs = RandomEnvs(rng, shape, dtype, num_envs, case["end"], case["change"])
    options = {name: case[name] for name in ("num_envs", "stack", "chunk", "n_step")}
    storage = make(kind, num_envs + case["spare"], shape, dtype, gamma=GAMMA, **options)
    reference, cursor = DenseReference(case["stack"], num_envs), 0
    for number, rows in enumerate(case["blocks"]):
        if number == case["reload"]:
            state = storage.state_dict()
            storage = make(kind, **options_of(storage))
            storage.load_state_dict(state)
            storage.check_valid()
        block = envs.block(rows, in_turn=case["in_turn"])
        storage.set((cursor + np.arange(rows)) % storage.max_size, block)
        cursor += rows
        reference.extend(block)
        storage.check_valid()
        assert_holds_newest(storage, reference)


KINDS = ("dense", "frames", "memmap", "compressed")


@pytest.mark.parametrize("kind", KINDS)
@given(case=cases, shape=st.sampled_from([(1, 2, 2), (1, 5, 9), (3, 8, 8)]))
@settings(max_examples=80)
def test_every_live_slot_of_images_is_exact(kind: str, case: dict[str, Any], shape: tuple) -> None:
    run_case(kind, case, shape, np.uint8)


@pytest.mark.parametrize("kind", KINDS)
@given(case=cases, size=st.sampled_from([1, 3, 70]))
@settings(max_examples=40)
def test_every_live_slot_of_vectors_is_exact(kind: str, case: dict[str, Any], size: int) -> None:
    run_case(kind, case, (size,), np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("game", ["breakout", "road_runner"])
def test_stacks_equal_those_that_ale_py_makes(kind: str, game: str) -> None:
    from ale_py.vector_env import AtariVectorEnv

    env = AtariVectorEnv(
        game,
        2,
        stack_num=4,
        frameskip=4,
        repeat_action_probability=0.25,
        reward_clipping=False,
        noop_max=0,
        max_num_frames_per_episode=400,
        autoreset_mode=AutoresetMode.SAME_STEP,
        num_threads=1,
    )
    rng, storage = np.random.default_rng(0), make(kind, 600, (1, 84, 84), stack=4, num_envs=2)
    stacks, _ = env.reset(seed=np.array([1, 2]))
    seen = {name: [] for name in ("observation", "next", "reward", "done")}
    writer = RingWriter()
    writer.register_storage(storage)
    for _ in range(300):
        action = rng.integers(env.single_action_space.n, size=2)
        after, reward, terminated, truncated, info = env.step(action)
        done = terminated | truncated
        true_after = after.copy()
        if done.any():
            true_after[done] = np.stack(list(info["final_obs"][done]))
        writer.extend(
            {
                "observation": stacks[:, -1:],
                "action": action,
                "env_id": np.arange(2),
                "next": {
                    "observation": true_after[:, -1:],
                    "reward": reward[:, None].astype(np.float32),
                    "terminated": terminated[:, None],
                    "truncated": truncated[:, None],
                },
            }
        )
        for name, value in (("observation", stacks), ("next", true_after)):
            seen[name].append(value.copy())
        seen["reward"].append(reward)
        seen["done"].append(done)
        stacks = after.copy()
    env.close()
    storage.check_valid()
    assert np.concatenate(seen["done"]).sum() >= 4  # episodes began and ended on the way
    sample = storage.get(torch.arange(600))
    np.testing.assert_array_equal(sample["observation"], np.concatenate(seen["observation"]))
    np.testing.assert_array_equal(sample["next", "observation"], np.concatenate(seen["next"]))
    np.testing.assert_array_equal(
        sample["next", "reward"].squeeze(-1), np.concatenate(seen["reward"]).astype(np.float32)
    )


def test_a_single_transition_is_a_block_of_one() -> None:
    storage = FrameStorage(5, (4,), np.float32)
    block = vector_block(1)
    row = TensorDict(
        {
            "observation": block["observation"][0],
            "action": block["action"][0],
            "next": {k: v[0] for k, v in block["next"].items()},
        }
    )
    storage.set(0, row)
    np.testing.assert_array_equal(storage.get(0)["observation"], block["observation"][0])


def test_get_of_many_minibatches_is_get_of_each() -> None:
    storage = FrameStorage(30, FRAME, stack=4, n_step=2)
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8)
    storage.set(torch.arange(30), envs.block(30))
    index = torch.randint(30, (3, 8), generator=torch.Generator().manual_seed(0))
    assert_close(storage.get(index), torch.stack([storage.get(row) for row in index]))


def test_a_fuller_storage_takes_over_the_state_of_an_emptier_one() -> None:
    storage, other = FrameStorage(20, (4,), np.float32), FrameStorage(20, (4,), np.float32)
    storage.set(torch.arange(5), vector_block(5, seed=1))
    other.set(torch.arange(18), vector_block(18, seed=2))
    other.load_state_dict(storage.state_dict())
    other.check_valid()
    assert_close(other.get(torch.arange(5)), storage.get(torch.arange(5)))


def test_slots_out_of_order_are_refused() -> None:
    storage = FrameStorage(20, (4,), np.float32)
    with pytest.raises(ValueError, match="slot 3 was written, 0 comes next"):
        storage.set(torch.arange(3, 8), vector_block(5))


def test_a_stack_instead_of_a_frame_is_refused() -> None:
    storage = FrameStorage(20, FRAME, stack=4)
    block = RandomEnvs(np.random.default_rng(0), (4, 2, 2), np.uint8).block(3)
    with pytest.raises(ValueError, match="one frame a transition, not a stack"):
        storage.set(torch.arange(3), block)


def test_a_block_that_lacks_something_is_refused_by_name() -> None:
    storage, whole = FrameStorage(20, (4,), np.float32), vector_block(3)
    block = {"observation": whole["observation"], "action": whole["action"]}
    with pytest.raises(ValueError, match="a block without next: each transition needs it"):
        storage.set(torch.arange(3), block)
    block["next"] = {"observation": whole["next"]["observation"]}
    with pytest.raises(ValueError, match=r"a block without next\.reward, next\.terminated:"):
        storage.set(torch.arange(3), block)


def test_another_dtype_is_refused() -> None:
    storage = FrameStorage(20, (4,), np.uint8)
    with pytest.raises(ValueError, match=r"observation float32 .* \(4,\); give it as uint8$"):
        storage.set(torch.arange(3), vector_block(3))


WRONG = [np.zeros((3, 4)), np.zeros((3, 5), np.float32)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", WRONG, ids=["dtype", "shape"])
def test_a_next_observation_of_another_dtype_or_shape_is_refused(
    kind: str, wrong: np.ndarray
) -> None:
    storage, block = make(kind, 20, (4,), np.float32), vector_block(3)
    block["next"]["observation"] = wrong
    with pytest.raises(ValueError, match=f"next observation {wrong.dtype} .* was given"):
        storage.append(block)
    assert len(storage) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [[10], [-11], [3, 10**7], -11, 10])
def test_a_slot_that_holds_nothing_is_refused(kind: str, index: Any) -> None:
    storage, block = make(kind, 20, (4,), np.float32), vector_block(10)
    storage.append(block)
    with pytest.raises(IndexError, match="holds no transition"):
        storage.get(np.array(index) if isinstance(index, list) else index)
    np.testing.assert_array_equal(storage.get(-1)["observation"], block["observation"][-1])


def test_frames_of_many_changes_are_exact_up_to_the_longest_chunk() -> None:
    """Each sixth byte changes: the most runs, in a chunk whose heads just fit in their number."""
    size = 194_000
    frames = np.zeros((257, size), np.uint8)
    frames[1::2, ::6] = 1
    no = np.zeros(256, bool)
    block = {"observation": frames[:-1], "action": np.zeros(256, np.int64)}
    block["next"] = {"observation": frames[1:], "reward": no, "terminated": no}
    storage = CompressedFrameStorage(300, (size,), chunk=255)
    storage.append(block)
    for slot in (1, 100, 254, 255):
        np.testing.assert_array_equal(storage.get(slot)["observation"], frames[slot])
    with pytest.raises(ValueError, match=r"chunk=255: .* use chunk=248 or less"):
        CompressedFrameStorage(300, (200_000,), chunk=255)


@pytest.mark.parametrize("env_id", [-1, 2])
def test_an_env_id_out_of_range_is_refused(env_id: int) -> None:
    storage = FrameStorage(20, (4,), np.float32, num_envs=2)
    block = {**vector_block(3), "env_id": np.array([0, 1, env_id])}
    with pytest.raises(ValueError, match="num_envs=2"):
        storage.set(torch.arange(3), block)


@pytest.mark.parametrize(
    "changes", [{"capacity": 1, "num_envs": 2}, {"capacity": 0}, {"stack": 0}, {"n_step": 0}]
)
def test_impossible_sizes_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        FrameStorage(**{"capacity": 10, "frame_shape": FRAME, **changes})


@pytest.mark.parametrize(
    "other", [{"capacity": 5}, {"frame_shape": (5,)}, {"num_envs": 2}], ids=lambda d: next(iter(d))
)
def test_a_state_of_another_shape_is_refused(other: dict[str, Any]) -> None:
    storage = FrameStorage(20, (4,), np.float32)
    storage.set(torch.arange(10), vector_block(10))
    with pytest.raises(ValueError, match="the saved memory"):
        FrameStorage(
            **{"capacity": 20, "frame_shape": (4,), "dtype": np.float32, **other}
        ).load_state_dict(storage.state_dict())


def test_a_full_ring_of_one_endless_episode_holds_what_was_projected() -> None:
    storage = FrameStorage(50, FRAME, stack=4)
    projected = storage.projected_footprint()
    storage.set(
        torch.arange(100) % 50,
        RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, end=0).block(100),
    )
    chunk = 16 * (4 + 20)  # frames and index of one
    assert 0 <= sum(projected.values()) - sum(storage.footprint().values()) <= 2 * chunk


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_are_freed_and_used_again_when_every_episode_has_one_step(kind: str) -> None:
    storage = make(kind, 40, FRAME, stack=4)
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, end=1.0)
    sizes = []
    for _ in range(50):
        storage.append(envs.block(40))
        storage.check_valid()
        sizes.append(sum(storage.footprint().values()))
    assert max(sizes) <= sizes[2] + 2 * SEGMENT  # an arena takes whole segments


@pytest.mark.parametrize("kind", KINDS)
def test_an_observation_that_does_not_follow_begins_a_stack_of_its_own(kind: str) -> None:
    """As after a reset of which no flag tells: its stack holds nothing of the frames before."""
    storage = make(kind, 20, FRAME, stack=4, n_step=3)
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, end=0)
    storage.append(envs.block(5))
    envs.block(1)  # lost
    later = envs.block(5)
    storage.append(later)
    storage.check_valid()
    sample = storage.get(torch.arange(10))
    assert not sample["observation"][5, :3].any()
    np.testing.assert_array_equal(sample["observation"][5, 3:], later["observation"][0])
    assert sample["steps_to_next"].flatten().tolist() == [3, 3, 3, 2, 1, 3, 3, 3, 2, 1]
