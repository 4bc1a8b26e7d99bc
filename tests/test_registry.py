"""Parts declare themselves: found by name, imported as late as can be, never two of one name."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from rlmem import registry
from rlmem.errors import UserError
from rlmem.registry import find, load_entry_points, load_plugins, marked, part, parts

PART = """
from rlmem.registry import part

@part("{group}", "{name}")
class {cls}:
    pass
"""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty registry and an empty current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_parts", {})
    monkeypatch.setattr(registry, "_opened", set())
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


@pytest.fixture
def toys(alone: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in which toys live: a module of its part's name, one of another, a room below."""
    monkeypatch.setitem(registry.ROOMS, "toy", "toys")
    for path, group, name in [
        ("car", "toy", "car"),
        ("vehicles", "toy", "bus"),
        ("inside/doll", "toy", "doll"),
        ("inside/shoe", "toy/map/shoe", "boot"),
        ("sandal", "toy/shoe", "sandal"),
    ]:
        file = alone / "toys" / f"{path}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(PART.format(group=group, name=name, cls=name.title()))
    return alone / "toys"


def loaded() -> set[str]:
    return {name for name in sys.modules if name.startswith("toys.")}


def test_all_parts_of_a_group_are_found(toys: Path) -> None:
    assert list(parts("toy")) == ["bus", "car", "doll"]
    assert list(parts("toy/shoe")) == ["sandal"]
    assert parts("nothing") == {}
    found = parts("toy")["bus"]
    assert (found.group, found.name, found.module) == ("toy", "bus", "toys.vehicles")
    assert found.settings is None


def test_a_part_whose_module_has_its_name_is_found_without_the_others(toys: Path) -> None:
    assert find("toy", "car").cls.__name__ == "Car"
    assert loaded() == {"toys.car"}
    assert find("toy", "bus").cls.__name__ == "Bus"
    assert {"toys.vehicles", "toys.inside.doll"} < loaded()


@pytest.mark.parametrize("name", ["../car", "car.x", "", "None", "os"])
def test_a_name_is_none_of_a_module_elsewhere(toys: Path, name: str) -> None:
    with pytest.raises(UserError, match="no such toy"):
        find("toy", name)


def test_a_package_that_a_part_needs_and_that_is_missing_comes_through(toys: Path) -> None:
    (toys / "robot.py").write_text("import no_such_package")
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        find("toy", "robot")


def test_an_unknown_name_says_which_there_are(toys: Path) -> None:
    with pytest.raises(UserError) as error:
        find("toy", "dol")
    assert str(error.value) == (
        "toy=dol: no such toy; did you mean doll? Available: bus, car, doll"
    )
    with pytest.raises(UserError, match=r"^toy\.shoe\.kind=x: no such shoe; available: sandal$"):
        find("toy/shoe", "x", "toy.shoe.kind")


def test_a_name_of_a_group_of_the_same_kind_is_elsewhere(toys: Path) -> None:
    assert registry.is_elsewhere("toy/shoe", "boot")
    for name in ("sandal", "car", "nothing"):
        assert not registry.is_elsewhere("toy/shoe", name)


def test_a_name_has_one_class() -> None:
    @part("toy", "ball", "marble")
    class Ball:
        pass

    part("toy", "ball")(Ball)  # as where its module is imported anew
    twice = rf"^toy=marble is declared twice, by {__name__} and by {__name__}; give yours another"
    with pytest.raises(UserError, match=twice):

        @part("toy", "marble")
        class Marble:
            pass

    assert {name: p.cls for name, p in parts("toy").items()} == {"ball": Ball, "marble": Ball}


def test_a_name_that_was_taken_before_its_room_was_opened_is_told_then(toys: Path) -> None:
    (toys.parent / "my_toys.py").write_text(PART.format(group="toy", name="bus", cls="MyBus"))
    load_plugins(["my_toys"])
    twice = r"^toy=bus is declared twice, by my_toys and by toys\.vehicles; give yours another"
    with pytest.raises(UserError, match=twice):
        parts("toy")


def test_a_plugin_is_a_module_of_the_current_folder(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(alone))])
    (alone / "my_toys.py").write_text(PART.format(group="toy", name="kite", cls="Kite"))
    load_plugins(["my_toys"])
    load_plugins(["my_toys"])
    (kite,) = registry.from_outside()
    assert (kite.name, kite.module) == ("kite", "my_toys")
    assert find("toy", "kite") == kite


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No module named 'my_toys'"),
        ("import no_such_package", "No module named 'no_such_package'"),
        ("from math import no_such_name", "cannot import name 'no_such_name'"),
    ],
)
def test_a_plugin_that_cannot_be_imported_is_one_line(
    alone: Path, content: str | None, reason: str
) -> None:
    if content is not None:
        (alone / "my_toys.py").write_text(content)
    with pytest.raises(UserError) as error:
        load_plugins(["my_toys"])
    assert str(error.value).startswith(f"plugins=[my_toys]: cannot be imported ({reason}")
    assert "such as plugins=[my_package.my_memory]" in str(error.value)


def test_a_bug_in_a_plugin_says_where_it_is(alone: Path) -> None:
    (alone / "my_toys.py").write_text("one = 1\none / 0")
    with pytest.raises(UserError, match=r"my_toys\.py ends with ZeroDiv.* in line 2") as error:
        load_plugins(["my_toys"])
    assert isinstance(error.value.__cause__, ZeroDivisionError)  # which debug=true shows


def test_installed_packages_declare_parts_by_an_entry_point(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (alone / "my_toys.py").write_text(PART.format(group="toy", name="kite", cls="Kite"))
    points = [EntryPoint("kites", "my_toys", "rlmem.plugins")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    registry._load_installed.cache_clear()
    load_plugins([])  # as each process of a run and each job does
    assert list(parts("toy")) == ["kite"]
    points[0] = EntryPoint("gone", "no_such_module", "rlmem.plugins")
    with pytest.raises(UserError, match=r"^the entry point gone of rlmem\.plugins: no_such_.* be"):
        load_entry_points()


def test_a_message_names_all_options_of_the_parts_that_have_a_mark() -> None:
    @part("toy", "paint")
    class Paint:
        wet, colours = True, {"red": 1, "blue": 2}

    @part("toy", "sand")
    class Sand:
        pass

    assert (marked("toy", "wet"), marked("toy", "dry")) == ("red or blue", "")

    @part("toy", "water")
    class Water:
        wet = True

    assert marked("toy", "wet") == "red, blue or water"
