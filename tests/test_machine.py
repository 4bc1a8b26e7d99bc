"""What the machine leaves to a process."""

import os
import tempfile
from pathlib import Path

import pytest

from rlmem import machine


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files, and no other that can be written to."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(machine, "_writable", lambda folder: False)
    monkeypatch.setattr("numba.config.CACHE_DIR", "")
    monkeypatch.setenv("NUMBA_CACHE_DIR", "as before")  # put back at the end
    del os.environ["NUMBA_CACHE_DIR"]
    return tmp_path


def test_compiled_loops_find_a_folder_of_the_users_own(temporary: Path) -> None:
    machine.place_for_compiled_loops()
    own = Path(os.environ["NUMBA_CACHE_DIR"])
    assert own.parent == temporary
    assert own.stat().st_mode & 0o777 == 0o700
    del os.environ["NUMBA_CACHE_DIR"]
    machine.place_for_compiled_loops()
    assert os.environ["NUMBA_CACHE_DIR"] == str(own)  # the next run has what this one compiled


@pytest.mark.parametrize("is_link", [False, True])
def test_a_folder_that_others_may_write_to_is_not_taken(temporary: Path, is_link: bool) -> None:
    place = temporary / f"rlmem-numba-{os.getuid()}"
    if is_link:
        (temporary / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(temporary / "elsewhere")
    else:
        place.mkdir()
        place.chmod(0o777)
    machine.place_for_compiled_loops()
    own = Path(os.environ["NUMBA_CACHE_DIR"])
    assert own.parent == temporary
    assert own != place
    assert own.stat().st_mode & 0o777 == 0o700


def test_what_can_be_written_to_stays_as_numba_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "as before")
    del os.environ["NUMBA_CACHE_DIR"]
    assert machine._writable(tmp_path / "new/folder")
    machine.place_for_compiled_loops()
    assert "NUMBA_CACHE_DIR" not in os.environ
