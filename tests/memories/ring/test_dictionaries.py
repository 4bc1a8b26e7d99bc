"""Dictionaries of compressed frames: exact, counted, renewed, and gone when they do not pay."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmem.memories.compression import packing
from rlmem.memories.compression.segments import SEGMENT
from tests.memories.helpers import RandomEnvs
from tests.memories.ring.test_ring_state import everything, reloaded
from tests.memories.ring.test_ring_storages import (
    GAMMA,
    DenseReference,
    assert_holds_newest,
    make,
    options_of,
)
from tests.memories.ring.words import FRAME, Words, filled, learned, storage_of, words

pytestmark = pytest.mark.usefixtures("small_dictionaries")


@given(
    blocks=st.lists(st.integers(100, 400), min_size=1, max_size=5),
    languages=st.lists(st.integers(0, 2), min_size=5, max_size=5),
    capacity=st.sampled_from([50, 300, 2000]),
    chunk=st.sampled_from([2, 8, 16]),
    change=st.sampled_from([0.3, 1.0]),
    reload=st.integers(0, 5),
    seed=st.integers(0, 999),
)
@settings(max_examples=40)
def test_every_live_slot_is_exact(
    blocks: list[int],
    languages: list[int],
    capacity: int,
    chunk: int,
    change: float,
    reload: int,
    seed: int,
) -> None:
    envs = Words(np.random.default_rng(seed), FRAME, np.uint8, 2, 0.05, change)
    storage, reference, cursor = (
        storage_of(capacity, chunk=chunk, gamma=GAMMA),
        DenseReference(2, 2),
        0,
    )
    for number, rows in enumerate(blocks):
        if number == reload:
            state = storage.state_dict()
            storage = make("compressed", **options_of(storage))
            storage.load_state_dict(state)
        envs.language = languages[number]
        block = envs.block(rows, in_turn=False)
        storage.set((cursor + np.arange(rows)) % capacity, block)
        cursor += rows
        reference.extend(block)
        storage.check_valid()
        assert_holds_newest(storage, reference)


def test_a_dictionary_saves_more_than_it_takes() -> None:
    storage = learned()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "LARGEST", 0)
        without = filled()
    assert without.footprint()["dictionaries"] == 0
    assert 256 < storage.footprint()["dictionaries"] < 20_000
    assert sum(storage.footprint().values()) < 0.8 * sum(without.footprint().values())


def test_what_is_held_is_packed_again_with_a_new_dictionary() -> None:
    """The strings of before there was one too, and the room that this frees goes back."""
    storage, as_they_were = of_two_languages(), with_older_dictionaries()
    assert len(storage._packer._contents) == 1
    assert storage._packer._strings[packing.PACKED] == 0
    assert as_they_were._packer._strings[packing.PACKED] > 0
    for part in ("frames", "dictionaries"):
        assert storage.footprint()[part] < as_they_were.footprint()[part]
    assert torch.equal(everything(storage)["observation"], everything(as_they_were)["observation"])


def of_two_languages() -> Any:
    storage, envs = storage_of(5000), words()
    for number in range(24):
        envs.language = number // 12
        storage.append(envs.block(100))
    return storage


def with_older_dictionaries() -> Any:
    """The same frames, none of them packed again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing.Packer, "outdated", lambda *_, **__: np.zeros(1, np.bool_))
        storage = of_two_languages()
    assert len(storage._packer._contents) > 1
    return storage


def test_without_room_packing_again_stops_and_nothing_is_lost() -> None:
    storage = with_older_dictionaries()
    held, coded, before = everything(storage)["observation"], storage._coded, storage.nbytes
    full, taken = storage.arrays.full_chunks(), storage._arena.nbytes
    strings = coded.packer._strings.copy()
    coded.renew(full, 0)
    assert np.array_equal(coded.packer._strings, strings)
    storage.check_valid()
    coded.renew(full, taken + SEGMENT)
    storage.check_valid()
    assert storage.nbytes <= before + SEGMENT
    assert torch.equal(everything(storage)["observation"], held)


class NoisyWords(Words):
    """Now and then four frames are noise, which zstandard does not make smaller."""

    frames = 0

    def frame(self) -> np.ndarray:
        self.frames += 1
        if self.frames % 64 > 3:
            return super().frame()
        return self.rng.integers(0, 256, FRAME, np.uint8)


def test_strings_that_stay_as_they_are_do_not_keep_the_room_of_others() -> None:

    capacity = 20_000
    storage = make("compressed", capacity, FRAME, num_envs=1, chunk=2)
    envs = NoisyWords(np.random.default_rng(0), FRAME, np.uint8, 1, 0.02)
    for _ in range(capacity // 500):
        storage.append(envs.block(500))
    storage.check_valid()
    assert storage._packer._strings[2:].any()
    assert storage._packer._strings[packing.STORED] > 100
    held = int(storage._blobs["size"][storage.arrays.full_chunks()].sum())
    assert storage._arena.nbytes < held + 3 * SEGMENT


def test_packing_again_that_is_interrupted_loses_nothing(tmp_path: Path) -> None:
    storage, envs, held = storage_of(5000), words(), 0
    put, calls = storage._arena.put, []

    def interrupted(string: np.ndarray) -> np.ndarray:
        calls.append(len(string))
        if storage._packer._contents and len(calls) > held + 10:
            raise KeyboardInterrupt
        return put(string)

    storage._arena.put = interrupted

    def play() -> None:
        nonlocal held
        for number in range(40):
            storage.append(envs.block(20))
            held = len(calls)
            storage.save(tmp_path / str(number), tmp_path / str(number - 1) if number else None)

    with pytest.raises(KeyboardInterrupt):
        play()
    storage._arena.put = put
    storage.check_valid()
    seen, newest = everything(storage)["observation"], max(map(int, os.listdir(tmp_path)))
    storage.save(tmp_path / "after", tmp_path / str(newest))
    fresh = reloaded(storage, "compressed", tmp_path / "after")
    assert torch.equal(everything(fresh)["observation"], seen)
    again = filled(len(storage) // 50 * 50 + 50)
    assert torch.equal(everything(again)["observation"][: len(seen)], seen)


def test_noise_has_no_dictionary() -> None:
    storage = storage_of()
    storage.append(RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2).block(2000))
    assert storage.footprint()["dictionaries"] == 0


def test_dictionaries_are_renewed_and_those_that_nothing_needs_go() -> None:
    storage, envs, held = storage_of(600), words(), []
    for number in range(24):
        envs.language = number // 8
        storage.append(envs.block(200))
        storage.check_valid()
        held.append({content.as_bytes() for content in storage._packer._contents.values()})
    assert held[7]
    assert held[15]
    assert held[23]
    assert not held[7] & held[23]
    assert max(map(len, held)) <= 5
    storage.clear()
    assert storage.footprint()["dictionaries"] == 0


class FewWords(Words):
    """Frames of which a share is still: they have little left that a dictionary could tell."""

    still = 0.0

    def frame(self) -> np.ndarray:
        return np.ones(FRAME, np.uint8) if self.rng.random() < self.still else super().frame()


@pytest.mark.parametrize("budget", [None, 120_000])
def test_a_dictionary_that_saves_less_than_half_of_what_it_takes_goes(
    budget: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "CONTEXT", 2000)
    storage = storage_of(2000, budget=budget)
    envs = FewWords(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02)
    for _ in range(20):
        storage.append(envs.block(80))
    assert storage.footprint()["dictionaries"] > 0
    envs.still = 1.0
    for _ in range(60):
        storage.append(envs.block(80))
    storage.check_valid()
    assert storage.footprint()["dictionaries"] == 0
    assert storage._packer._current == packing.PACKED
    assert (everything(storage)["observation"][:, -1] == 1).all()


def test_a_dictionary_stays_that_older_frames_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "CONTEXT", 2000)
    storage = storage_of(10_000)
    envs = FewWords(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02)
    for number in range(80):  # looks at 204 and 408 chunks, of which 125 have words
        if number == 20:
            envs.still = 1.0
            monkeypatch.setattr(packing, "LARGEST", 0)  # no other is learned
        storage.append(envs.block(100))
    storage.check_valid()
    current = storage._packer._current
    assert current != packing.PACKED
    assert storage._packer._strings[current] > 450


def test_a_budget_counts_dictionaries_and_holds_more_by_them() -> None:
    budget, held = 120_000, []
    for largest in (2**16, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(packing, "LARGEST", largest)
            storage, envs = storage_of(5000, budget=budget), words()
            for _ in range(200):
                storage.append(envs.block(20))
                assert storage.nbytes <= budget
            storage.check_valid()
            held.append(len(storage))
    assert held[0] > 1.2 * held[1]


def test_dictionaries_make_room_for_frames_that_share_nothing() -> None:
    storage = learned(2000, capacity=5000, budget=120_000)
    noise = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2)
    for _ in range(100):
        storage.append(noise.block(20))
        assert storage.nbytes <= 120_000
    storage.check_valid()
    assert storage.footprint()["dictionaries"] == 0
    assert len(storage) > 200


def test_a_small_memory_has_no_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take more than it saves."""
    monkeypatch.setattr(packing, "CONTEXT", 2**17)
    storage = filled()
    assert storage.footprint()["dictionaries"] == 0


@pytest.mark.parametrize("level", [8, 19])
def test_a_stream_finds_what_it_shares_with_half_of_the_largest_dictionary(level: int):
    streams = np.random.default_rng(0).integers(0, 256, (100, 2**13), np.uint8)
    trained = zstandard.train_dictionary(2**18, [*map(bytes, streams)], k=128, d=8)
    content = trained.as_bytes()
    assert len(content) == 2**18
    encoder = packing.encoder_of(content, level)
    packer = packing.Packer(level)
    packer._add(2, content)
    for first in (2**17, len(content) - 4000):  # the tables have room for the second half
        stream = content[first : first + 4000]
        packed = encoder.compress(stream)
        assert len(packed) < 100
        assert packer._decoders[2].decompress(packed) == stream
