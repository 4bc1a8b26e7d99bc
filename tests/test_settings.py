"""Settings: what each type takes, ranges, keys that nothing reads, parts that a name chooses."""

import copy
import pickle
from dataclasses import asdict, dataclass
from typing import Any

import pytest

from rlmem import registry
from rlmem.errors import UserError
from rlmem.setting_keys import all_parts, free_keys
from rlmem.settings import (
    Range,
    Settings,
    UnknownKeyError,
    choose,
    fill,
    part_of,
    parts_of,
    setting,
)

BITS = "finite and of 32 bits, at most 3.4028235e+38"


@dataclass(kw_only=True)
class Wheel(Settings):
    size: int = setting(at_least=1, example="26")
    spokes: int | None = setting(None, at_least=3, free=True)


@dataclass(kw_only=True)
class Bell(Settings):
    tone: str = setting("high", choices=("high", "low"))
    wheel: Any = part_of("toy/wheel")


@dataclass(kw_only=True)
class Toy(Settings):
    weight: float = setting(above=0, at_most=10, free=True)
    fast: bool = setting(False)
    sizes: list[float] = setting([1.0], at_least=0)
    pair: list[float] = setting([0.0, 1.0])
    extra: dict[str, Any] = setting({})
    even: int = setting(2, check=lambda value: None if value % 2 == 0 else "even")
    any_number: float = setting(0.0)
    inner: Wheel = setting()
    parts: dict[str, Any] = parts_of("toy")


class Made:
    def __init__(self, settings: Settings, *rest: Any) -> None:
        self.settings, self.rest = settings, rest


class Built(Made):
    @classmethod
    def build(cls, settings: Settings, *rest: Any) -> "Built":
        return cls(settings, "built", *rest)


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of the tests' own: toy, toy/wheel and toy/other/wheel."""
    monkeypatch.setattr(registry, "_parts", {})
    registry.part("toy", "bell", settings=Bell)(Made)
    registry.part("toy/wheel", "round", "oval", settings=Wheel)(Built)
    registry.part("toy/wheel", "plain")(Made)
    registry.part("toy/other/wheel", "square", settings=Wheel)(Made)


def toy(**values: Any) -> Toy:
    return fill(Toy, {"weight": 1, "inner": {"size": 1}, **values}, "toy")


@pytest.mark.parametrize(
    ("key", "value", "held"),
    [
        ("weight", 2, 2.0),
        ("weight", "2.5e-3", 0.0025),
        ("fast", True, True),
        ("sizes", [1, 2.5], [1.0, 2.5]),
        ("sizes", [], []),
        ("extra", {"a": [None]}, {"a": [None]}),
        ("even", 4, 4),
    ],
)
def test_a_value_is_held_as_its_type(key: str, value: Any, held: Any) -> None:
    found = getattr(toy(**{key: value}), key)
    assert found == held
    assert type(found) is type(held)


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("weight", "heavy", "toy.weight=heavy: must be a number"),
        ("weight", True, "toy.weight=true: must be a number"),
        ("weight", None, "toy.weight=null: must have a value, null is none"),
        ("weight", [1], "toy.weight=[1]: must be a number"),
        ("weight", 0, "toy.weight=0.0: must be above 0 and at most 10"),
        ("weight", 10.5, "toy.weight=10.5: must be above 0 and at most 10"),
        ("weight", float("nan"), "toy.weight=nan: must be above 0 and at most 10"),
        ("any_number", float("inf"), "toy.any_number=inf: must be finite"),
        ("any_number", 3.5e38, "toy.any_number=3.5e+38: must be " + BITS),
        ("any_number", -(10**60), "toy.any_number=-1e+60: must be " + BITS),
        ("any_number", "1e39", "toy.any_number=1e+39: must be " + BITS),
        ("pair", [0, float("nan")], "toy.pair=[0.0, nan]: must be " + BITS),
        ("sizes", [1, 1e300], "toy.sizes=[1.0, 1e+300]: must be " + BITS),
        ("fast", 1, "toy.fast=1: must be true or false"),
        ("fast", "maybe", "toy.fast=maybe: must be true or false"),
        ("sizes", 3, "toy.sizes=3: must be a list, such as toy.sizes=[3]"),
        ("sizes", [1, -1], "toy.sizes=[1.0, -1.0]: must be at least 0"),
        ("sizes", [1, None], "toy.sizes=[1, None]: null in it must be a number"),
        ("extra", 3, "toy.extra=3: toy.extra is a set of keys; write toy.extra.<key>=..."),
        ("even", 3, "toy.even=3: must be even"),
        ("even", 4.0, "toy.even=4.0: must be a whole number; write 4"),
        ("even", 4.5, "toy.even=4.5: must be a whole number"),
        ("even", True, "toy.even=true: must be a whole number"),
        ("inner", {"size": 0}, "toy.inner.size=0: must be at least 1"),
        ("inner", {}, "toy.inner.size is not set; give it, such as toy.inner.size=26"),
        ("inner", {"size": "???"}, "toy.inner.size is not set; give it, such as toy.inner.size=26"),
        ("inner", 3, "toy.inner=3: toy.inner is a set of keys; write toy.inner.<key>=..."),
        ("wieght", 1, "toy.wieght: no such key, nothing reads it; did you mean toy.weight?"),
        ("zzz", 1, "toy.zzz: no such key, nothing reads it; leave it out"),
        ("part", 1, "toy.part: no such key, nothing reads it; did you mean toy.parts?"),
        ("kind", "x", "toy.kind: no such key, nothing reads it; leave it out"),
    ],
)
def test_a_value_that_cannot_work_is_one_line(key: str, value: Any, line: str) -> None:
    with pytest.raises(UserError) as error:
        toy(**{key: value})
    assert str(error.value) == line


def test_a_missing_key_without_a_default_is_asked_for() -> None:
    with pytest.raises(UserError, match=r"^weight is not set; give it, such as weight=\.\.\.$"):
        fill(Toy, {})


def test_defaults_are_each_settings_own() -> None:
    first, second = toy(), toy()
    first.sizes.append(9.0)
    first.extra["a"] = 1
    assert (second.sizes, second.extra) == ([1.0], {})


def test_values_of_another_version_may_have_keys_that_nothing_reads_today() -> None:
    values = {"weight": 1, "old": 3, "inner": {"size": 2, "older": 4}}
    with pytest.raises(UnknownKeyError) as error:
        fill(Toy, values, "toy")
    assert error.value.key == "toy.old"
    assert fill(Toy, values, "toy", lenient=True).inner == Wheel(size=2)
    with pytest.raises(UserError, match=r"toy\.weight=-1\.0"):
        fill(Toy, {**values, "weight": -1}, "toy", lenient=True)


def test_a_part_is_chosen_by_its_name_and_makes_itself() -> None:
    wheel = choose("toy/wheel", {"kind": "oval", "size": 3}, "toy.wheel")
    assert wheel.part.name == "oval"
    made = wheel.build(1, 2)
    assert (type(made), made.settings, made.rest) == (Built, wheel, ("built", 1, 2))
    plain = choose("toy/wheel", {"kind": "plain"}, "toy.wheel").build(1)
    assert (type(plain), plain.rest) == (Made, (1,))


def test_the_first_of_several_keys_that_is_there_names_the_part() -> None:
    by = ("kind", "name")
    given = {"kind": "round", "size": 1}
    assert choose("toy/wheel", given, "wheel", by).part.name == "round"
    with pytest.raises(UserError, match=r"^wheel\.name=None: no such wheel; available: oval"):
        choose("toy/wheel", {}, "wheel", by)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ("round", "toy.wheel=round: toy.wheel is a group; write toy/wheel=round"),
        (
            {"kind": "rond"},
            "toy.wheel.kind=rond: no such wheel; did you mean round? Available: oval, plain, round",
        ),
        (
            {"kind": "square"},
            "toy/wheel=square: does not go with bike=red; use toy/wheel=oval or plain or round",
        ),
        (
            {"kind": "round"},
            "toy.wheel.kind=round: it needs size too; choose the group, toy/wheel=round",
        ),
        ({"kind": "plain", "size": 1}, "toy.wheel.size: no such key, nothing reads it; leave it"),
    ],
)
def test_a_part_that_is_none_is_one_line(values: Any, line: str) -> None:
    with pytest.raises(UserError) as error:
        choose("toy/wheel", values, "toy.wheel", owner="bike=red")
    assert str(error.value).startswith(line)


def test_parts_are_chosen_by_the_names_of_their_keys() -> None:
    found = toy(parts={"bell": {"wheel": {"kind": "round", "size": 1}}})
    assert list(found.parts) == ["bell"]
    assert [s.part.name for s in all_parts(found)] == ["bell", "round"]
    assert toy(parts=None).parts == {}
    with pytest.raises(UserError, match=r"^toy\.parts=bel: no such parts; did you mean bell\?"):
        toy(parts={"bel": {}})
    line = r"^toy\.parts\.bell\.tone=loud: no such tone; available: high, low$"
    with pytest.raises(UserError, match=line):
        toy(parts={"bell": {"tone": "loud", "wheel": {"kind": "plain"}}})


def test_free_keys_are_found_in_parts_too() -> None:
    found = toy(parts={"bell": {"wheel": {"kind": "round", "size": 1}}})
    keys = ["toy.weight", "toy.inner.spokes", "toy.parts.bell.wheel.spokes"]
    assert free_keys(found, "toy") == keys


def test_settings_are_values_and_their_copies_make_the_same_part() -> None:
    first, again, other = (choose("toy/wheel", {"kind": "oval", "size": n}, "") for n in (1, 1, 2))
    assert first == again != other
    assert asdict(first) == {"size": 1, "spokes": None}
    for copied in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert copied == first
        assert isinstance(copied.build(), Built)


@dataclass(kw_only=True)
class Tandem(Wheel):
    riders: int = setting(at_least=2)


def test_of_several_mistakes_a_classs_own_key_is_named_before_what_it_inherits() -> None:
    with pytest.raises(UserError, match=r"^riders=1: must be at least 2$"):
        fill(Tandem, {"size": 0, "riders": 1})


@pytest.mark.parametrize(
    ("taken", "text", "inside", "outside"),
    [
        (Range(), "finite", [-1e9, 0], [float("inf"), float("nan")]),
        (Range(0), "at least 0", [0, 1], [-1, float("inf")]),
        (Range(0, above=True), "above 0", [1e-9], [0]),
        (Range(0, 1), "at least 0 and at most 1", [0, 1], [-0.1, 1.1]),
        (Range(high=5), "at most 5", [-7, 5], [6]),
        (Range(1, 2**32 - 1), "at least 1 and at most 4294967295", [1], [0]),
    ],
)
def test_a_range_says_what_it_takes(
    taken: Range, text: str, inside: list[float], outside: list[float]
) -> None:
    assert str(taken) == text
    assert all(number in taken for number in inside)
    assert not any(number in taken for number in outside)


@pytest.mark.parametrize("key", ["weight", "size", "tone"])
def test_a_number_that_is_too_long_to_show_is_one_line(key: str) -> None:
    kind = {"weight": Toy, "size": Wheel, "tone": Bell}[key]
    with pytest.raises(UserError, match=rf"{key}: must be a number of at most 300 digits"):
        fill(kind, {key: 16**5000})


def test_a_type_that_no_setting_has_is_told_to_its_writer() -> None:
    @dataclass(kw_only=True)
    class Odd(Settings):
        x: int | str = setting()

    with pytest.raises(TypeError, match=r"x: a setting is of one type, or null, .*: int \| str"):
        fill(Odd, {"x": 1})
