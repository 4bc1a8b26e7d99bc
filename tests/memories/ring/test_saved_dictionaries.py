"""Saved dictionaries of compressed frames: whole, checked, and with room under a budget."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlmem.memories.base.serialize import load_state
from tests.memories.ring.test_ring_state import everything, reloaded
from tests.memories.ring.words import learned, storage_of, words
from tests.memories.states import assert_equal

pytestmark = pytest.mark.usefixtures("small_dictionaries")


@pytest.mark.parametrize("cut", [300, 700, 1100])
def test_a_loaded_storage_goes_on_like_the_saved_one(cut: int, tmp_path: Path) -> None:
    """The next look comes at the same time, learns the same, and a budget evicts the same."""
    storages = [storage_of(2000, budget=90_000) for _ in range(2)]
    envs, sizes = words(), set()
    for done in range(0, 3000, 20):
        envs.language = done // 1000
        block = envs.block(20)
        for storage in storages:
            storage.append(block)
        assert storages[0].footprint() == storages[1].footprint()
        assert storages[0].nbytes <= 90_000
        sizes.add(storages[0].footprint()["dictionaries"])
        if done + 20 == cut:
            storages[1].save(tmp_path)
            storages[1] = storage_of(2000, budget=90_000)
            storages[1].loads(tmp_path)
            storages[1].check_valid()
    assert len(sizes) > 2
    for a, b in zip(everything(storages[0]), everything(storages[1]), strict=True):
        assert torch.equal(a["observation"], b["observation"])


def test_saves_that_build_on_one_another_have_their_dictionaries(tmp_path: Path) -> None:
    storage, envs, previous = storage_of(600), words(), None
    for number in range(12):
        envs.language = number // 4
        storage.append(envs.block(150))
        storage.save(tmp_path / str(number), previous)
        previous = tmp_path / str(number)
        fresh = reloaded(storage, "compressed", previous)
        assert torch.equal(everything(fresh)["observation"], everything(storage)["observation"])
        assert fresh.footprint()["dictionaries"] == storage.footprint()["dictionaries"]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("dictionaries", lambda a: a[:-1]),
        ("dictionaries", np.zeros_like),
        ("dictionary_sizes", lambda a: a * [1, 0]),
        ("dictionary_sizes", lambda a: np.add(a, [1, 0])),
        ("dictionary_sizes", lambda a: a * [0, 1]),
        ("dictionary", lambda n: n + 1),
        ("strings_since", lambda _: -1),
    ],
)
def test_damaged_dictionaries_are_refused_and_change_nothing(name: str, damage: Any) -> None:
    storage, other = learned(), learned(rows=900)
    state, before = storage.state_dict(), other.state_dict()
    with pytest.raises(ValueError, match="the saved memory"):
        other.load_state_dict({**state, name: damage(state[name])})
    assert_equal(other.state_dict(), before)
    other.check_valid()


def test_files_of_dictionaries_are_checked(tmp_path: Path) -> None:
    storage = learned()
    storage.save(tmp_path)
    file = tmp_path / "dictionaries.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 4
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"dictionaries\.npy is damaged"):
        storage_of().loads(tmp_path)


def test_a_state_of_before_there_were_dictionaries_is_loaded(tmp_path: Path) -> None:
    storage = storage_of()
    storage.append(words().block(100))
    assert storage.footprint()["dictionaries"] == 0
    new = ("dictionaries", "dictionary_sizes", "dictionary", "strings_since")
    old = {k: v for k, v in storage.state_dict().items() if k not in new}
    later = storage_of()
    later.load_state_dict({**old, "format": 2})
    later.check_valid()
    assert torch.equal(everything(later)["observation"], everything(storage)["observation"])
    later.append(words().block(1200))
    later.save(tmp_path)
    assert load_state(tmp_path)["format"] == 3
    assert later.footprint()["dictionaries"] > 0
    reloaded(later, "compressed", tmp_path)


@pytest.mark.parametrize("rows", [700, 1000, 1500])
def test_the_smallest_budget_for_a_state_with_dictionaries_holds_it(rows: int) -> None:
    state, own = learned(rows=rows, budget=400_000).state_dict(), storage_of().least
    with pytest.raises(ValueError, match="cannot shrink") as refused:
        storage_of(budget=own + 1).check_state(state)
    least = int(str(refused.value).split("takes ")[1].split()[0])
    smallest = storage_of(budget=least)
    smallest.load_state_dict(state)
    smallest.check_valid()
    assert smallest.nbytes <= least
    with pytest.raises(ValueError, match="cannot shrink"):
        storage_of(budget=least - 1).check_state(state)
