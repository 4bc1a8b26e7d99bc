"""The colours of memories."""

from rlmem.analysis.compare.looks import COLOURS, _declared, look, slots


def test_a_memory_has_the_slot_that_its_part_declares_whatever_is_beside_it() -> None:
    assert slots(["per", "uniform"])["uniform"] == slots(["uniform", "dnd", "x"])["uniform"]


def test_memories_of_one_colour_have_other_lines() -> None:
    found = slots(["cer", "rollout"])
    one, other = (look(slot, 0) for slot in found.values())
    assert one.colour == other.colour
    assert one.dash != other.dash


def test_unknown_names_take_colours_that_are_free_and_keep_them() -> None:
    found = slots(["uniform", "per", "a stranger", "another"])
    assert len({slot % len(COLOURS) for slot in found.values()}) == 4
    assert found == slots(["another", "a stranger", "per", "uniform"])


def test_many_unknown_names_all_look_unlike() -> None:
    found = slots(["uniform", *(f"x{k}" for k in range(20))])
    looks = {
        (look(slot, 0).colour, look(slot, 0).dash, look(slot, 0).mark) for slot in found.values()
    }
    assert len(looks) == len(found) == 21


def test_no_replay_and_the_newest_minibatch_have_colours_of_their_own() -> None:
    """Grey is no replay's, and beside it that of what a figure does not name."""
    found = slots(["none", "newest", "uniform", "cer", "per"])
    assert len({look(slot, 0).colour for slot in found.values()}) == 5


def test_no_two_memories_look_the_same() -> None:
    declared = _declared()
    assert len(set(declared.values())) == len(declared)
