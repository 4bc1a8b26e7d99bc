"""States of ring storages that no storage saved: refused, and nothing is changed."""

import numpy as np
import pytest
from tensordict import assert_close

from tests.memories.helpers import RandomEnvs
from tests.memories.ring.test_ring_state import FRAME, everything
from tests.memories.ring.test_ring_storages import KINDS, make


@pytest.mark.parametrize("kind", KINDS)
def test_newest_frames_that_do_not_follow_each_other_are_refused(kind: str) -> None:
    """What evicts all would walk from them through chunks that are not there."""
    storage = make(kind, 60, FRAME, stack=3, num_envs=2, chunk=4)
    storage.append(RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02, 0.1).block(120))
    state = storage.state_dict()
    recent = np.array(state["recent"])
    before = everything(storage)
    for wrong in (recent * 0, recent * 0 - 1, recent + 10**6, recent[::-1]):
        with pytest.raises(ValueError, match="no such frames"):
            storage.load_state_dict({**state, "recent": wrong})
        assert_close(everything(storage), before)


@pytest.mark.parametrize(
    ("name", "value"), [("touched_chunks", 0), ("closed", 2**31), ("closed", 0)]
)
def test_counts_that_what_is_held_contradicts_are_refused(name: str, value: int) -> None:
    storage = make("frames", 60, FRAME, stack=3, num_envs=2, chunk=4)
    storage.append(RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02, 0.1).block(120))
    state, before = storage.state_dict(), everything(storage)
    with pytest.raises(ValueError, match="its counts disagree"):
        storage.load_state_dict({**state, name: value})
    assert_close(everything(storage), before)
