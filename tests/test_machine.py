"""What the machine leaves to a process."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from rlmem import machine


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a peak cannot begin anew")
def test_the_peak_of_a_process_is_not_that_of_the_one_that_started_it() -> None:
    held = np.ones(2**27)  # 1 GiB, as of a notebook that starts a run
    code = "from rlmem import machine; print(machine.peak_rss_bytes())"
    told = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
    before = machine.peak_rss_bytes()
    assert told < held.nbytes < before
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError as error:
        pytest.skip(f"here a peak cannot begin anew: {error}")
    del held
    machine.reset_peak_rss()
    assert machine.peak_rss_bytes() < before - 2**29


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
