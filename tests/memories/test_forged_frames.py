"""Coded frames of wrong contents with right checksums: refused, and never followed out of bounds.

What is tried runs in a process of its own: compiled loops that follow such bytes end it.
"""

import os
import subprocess
import sys

import numpy as np
import pytest

from rlmem.errors import UserError
from rlmem.memories.compression.codec import apply, is_whole, parts
from tests.memories.states import CASES, assert_equal, grow

LOADED = "stored runs"  # what only a walk through full chunks tells is refused as it is read
RING, MAP = "compressed, uniform", "map of exemplars, visits"


def forge(case: str, forgery: str) -> None:
    """Load a forged state into a memory that holds something."""
    make, blocks = CASES[case]
    memory = grow(make(), blocks, range(3))
    state = memory.storage.state_dict()
    memory.storage.load_state_dict(state)  # it is whole before it is forged
    FORGERIES[case][forgery](state)
    before = memory.storage.state_dict()
    if forgery == LOADED:
        memory.storage.load_state_dict(state)
        memory.sampler.synchronise(memory.storage)
        with pytest.raises(UserError, match=r"^the saved memory is damaged: [^\n]*$"):
            [memory.sample(8) for _ in range(50)]
        return
    with pytest.raises(ValueError, match=r"^the saved (memory|map) is damaged: [^\n]*$"):
        memory.storage.load_state_dict(state)
    assert_equal(before, memory.storage.state_dict())
    memory.check_valid()
    memory.sample(8)


def strings(state: dict, first: int, rest: int) -> None:
    """Full chunks become strings of these bytes."""
    for name in [name for name in state if name.startswith(("data-", "exemplars.data"))]:
        records = state[
            name.replace("exemplars.data", "exemplars.blobs").replace("data-", "chunks-")
        ]
        sizes = records["size"].astype(np.int64)
        state[name][:] = rest
        state[name][(np.cumsum(sizes) - sizes)[sizes > 0]] = first


def one_run(state: dict) -> None:
    state["open_streams"][:] = 255
    state["open_streams"][:2] = 1, 0


def noise(state: dict) -> None:
    streams = state["open_streams"]
    streams[:] = np.random.default_rng(0).integers(0, 256, len(streams))


def longer_heads(state: dict) -> None:
    """Frames of empty runs, so long that the next ones would be written behind their array."""
    ends, frames = state["open_ends"], state["chains"]["position"] + 1
    assert (frames < state["chunk"]).all()
    runs = 500
    one = np.zeros(2 + 2 * runs, np.uint8)
    one[:2] = runs & 255, runs >> 8
    state["open_streams"] = np.concatenate([np.tile(one, count) for count in frames])
    ends["head"], ends["values"] = len(one) * frames, 0


def free_in_use(state: dict) -> None:
    state["arena.free"] = np.arange(1, dtype=np.int32)
    state["arena.state"][1] = 1


def at_one_place(state: dict) -> None:
    blobs = state.get("blobs", state.get("exemplars.blobs"))
    blobs["segment"], blobs["offset"] = 0, 0


def in_a_ring(state: dict) -> None:
    """A long string whose links lead back to where it begins."""
    state["arena.following"][:] = 0
    state["blobs"]["offset"][-1] = 2**14 - 1


def no_exemplar(state: dict) -> None:
    state["alive"][np.flatnonzero(state["alive"])[0]] = 0


BOTH = {
    LOADED: lambda state: strings(state, 0, 255),
    "nothing zstandard wrote": lambda state: strings(state, 1, 7),
    "no such dictionary": lambda state: strings(state, 9, 9),
    "free and in use": free_in_use,
    "at one place": at_one_place,
}
FORGERIES = {
    RING: {
        **BOTH,
        "endless numbers": lambda state: state["open_streams"].fill(255),
        "one huge skip": one_run,
        "noise": noise,
        "longer heads": longer_heads,
        "in a ring": in_a_ring,
    },
    MAP: {**BOTH, "no exemplar": no_exemplar},
}


@pytest.mark.parametrize("case", [RING, MAP])
def test_forged_frames_are_refused_and_nothing_is_taken_over(case: str) -> None:
    script = f"from tests.memories.test_forged_frames import *\nfor name in FORGERIES[{case!r}]:\n"
    script += f"    print(name, flush=True)\n    forge({case!r}, name)\n"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout.splitlines()[-1:]}: {done.stderr[-2000:]}"
    assert done.stdout.split("\n")[:-1] == list(FORGERIES[case])


def test_what_became_wrong_in_a_memory_is_refused_as_it_is_read() -> None:
    make, blocks = CASES[RING]
    memory = grow(make(), blocks, range(3))
    memory.storage._open.heads[:] = 255
    memory.storage._arena.segments.data[:, ::7] = 255
    with pytest.raises(UserError, match="the bytes of a chunk are no frames"):
        memory.storage[np.arange(len(memory))]


def test_no_bytes_lead_out_of_a_frame() -> None:
    rng, size = np.random.default_rng(0), 16
    around = np.zeros(3 * size, np.uint8)  # the frame stands in its middle
    frame, taken = around[size : 2 * size], 0
    for _ in range(3000):
        bytes_of = rng.choice([0, 1, 2, 3, 9, 254, 255], rng.integers(0, 24)).astype(np.uint8)
        reference, head, values = parts(bytes_of)
        assert (reference < 0) == (len(bytes_of) < 4)
        fits, h, v = apply(frame, head, np.uint64(0), values, np.uint64(0))
        assert not fits or (h <= len(head) and v <= len(values))
        assert is_whole(head, values, 1, frame) == (fits and h == len(head) and v == len(values))
        taken += fits
    assert taken > 10
    assert not around[:size].any()
    assert not around[2 * size :].any()
