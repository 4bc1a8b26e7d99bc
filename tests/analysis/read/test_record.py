"""runs.npz: runs come back as they were, and a file of a stranger does no harm."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmem.analysis.read.curves import CURVES, EVALUATED
from rlmem.analysis.read.record import read_record, write_record
from rlmem.analysis.read.runs import Run, read_run
from tests.analysis.helpers import make_run


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    config = {"agent.lr": 1, "env.kwargs.bits": 5}
    return [
        read_run(make_run(tmp_path / "runs/a", rows=300, config=config)),
        read_run(
            make_run(tmp_path / "runs/b", "gwr", 1, config={"agent.double": True}, evaluated=4)
        ),
        read_run(make_run(tmp_path / "runs/c", seed=2, rows=3, eval_return_mean=None)),
    ]


@pytest.fixture
def path(tmp_path: Path, runs: list[Run]) -> Path:
    write_record(tmp_path / "runs.npz", runs)
    return tmp_path / "runs.npz"


def test_runs_come_back_as_they_were(path: Path, runs: list[Run]) -> None:
    found = read_record(path)
    assert len(found) == 3
    for ours, theirs in zip(runs, found, strict=True):
        ours.config.pop("paths.output_dir")
        assert json.dumps(ours.config, sort_keys=True) == json.dumps(theirs.config, sort_keys=True)
        for name in ("folder", "summary", "means", "overrides", "env_id", "label", "memory"):
            assert getattr(ours, name) == getattr(theirs, name)
        for name in (*CURVES, *EVALUATED):
            np.testing.assert_array_equal(ours.curves[name], theirs.curves[name])
            assert theirs.curves[name].dtype == np.float32


def test_a_file_of_before_has_no_evaluations(path: Path) -> None:
    old = json.loads(np.load(path)["header"].tobytes())
    for run in old["runs"]:
        del run["evaluations"]
    text = np.frombuffer(json.dumps(old).encode(), np.uint8)
    rewrite(path, {"header.npy": array_bytes(text), **{f"{n}.npy": None for n in EVALUATED}})
    found = read_record(path)
    assert [len(run.curves["evaluated_at"]) for run in found] == [0, 0, 0]
    assert [len(run.curves["env_steps"]) for run in found] == [100, 20, 3]


def test_a_run_takes_few_bytes(path: Path) -> None:
    assert path.stat().st_size < 6000


def test_numpy_opens_it_without_pickle(path: Path) -> None:
    with np.load(path, allow_pickle=False) as file:
        assert len(file["env_steps"]) == 100 + 20 + 3


def test_no_file_is_no_run(tmp_path: Path) -> None:
    assert read_record(tmp_path / "runs.npz") == []


def test_every_flipped_byte_of_its_columns_is_noticed(path: Path) -> None:
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        starts = [info.header_offset + 30 + len(info.filename) + 20 for info in archive.infolist()]
        places = [
            start + k * info.compress_size // 8
            for start, info in zip(starts, archive.infolist(), strict=True)
            for k in range(8)
        ]
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=r"."):
            read_record(path)


def array_bytes(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


def rewrite(path: Path, changes: dict[str, bytes | None]) -> None:
    """The same archive with other members."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()} | changes
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            if content is not None:
                archive.writestr(name, content)


HUGE = array_bytes(np.zeros(1, np.float32)).replace(
    b"(1,), }" + b" " * 14, b"(1000000000000000,), }"
)
assert b"(10000" in HUGE
LEFT = np.zeros(123, np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seconds.npy": None}, "lacks .*seconds"),
        ({"header.npy": None}, "lacks .*header"),
        ({"seconds.npy": b""}, "."),
        ({"seconds.npy": b"PK"}, "."),
        ({"seconds.npy": HUGE}, "seconds is no row of float32, or not whole"),
        ({"seconds.npy": array_bytes(LEFT.astype(np.float64))}, "seconds is no row of float32"),
        ({"seconds.npy": array_bytes(LEFT.reshape(3, 41))}, "seconds is no row of float32"),
        ({"seconds.npy": array_bytes(LEFT[1:])}, "other lengths than its header says"),
        ({"evaluated_at.npy": array_bytes(LEFT)}, "other lengths than its header says"),
        ({"evaluated_at.npy": None}, "other lengths than its header says"),
        ({"eval_return_mean.npy": None}, "lacks .*eval_return_mean"),
        ({"seconds.npy": array_bytes(LEFT)[:-4]}, "not whole"),
        ({"seconds.npy": array_bytes(LEFT, version=(2, 0))}, "no array of version 1.0"),
        ({"seconds.npy": array_bytes(np.array([{}]), allow_pickle=True)}, "no row of float32"),
        ({"bomb.npy": bytes(65 * 2**20)}, "more than 67,108,864 bytes"),
    ],
    # Not by content: as a name, sent between processes, the last would take 340 MB each time.
    ids=lambda part: part if isinstance(part, str) else next(iter(part)),
)
def test_columns_of_something_else_are_refused(
    path: Path, change: dict[str, bytes | None], message: str
) -> None:
    rewrite(path, change)
    with pytest.raises(ValueError, match=message):
        read_record(path)


def edit(path: Path, keys: tuple[Any, ...], value: Any) -> None:
    """Set what the header has at a place."""
    with np.load(path) as file:
        header: Any = json.loads(file["header"].tobytes())
    node = header
    for key in keys[:-1]:
        node = node[key]
    node[keys[-1]] = value
    text = json.dumps(header).encode()
    rewrite(path, {"header.npy": array_bytes(np.frombuffer(text, np.uint8))})


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("format",), 2, "its format is not 1"),
        (("config",), [], "holds something else"),
        (("config", "x"), {}, "holds something else"),
        (("runs",), {}, "holds something else"),
        (("runs", 0), 3, "a run has no folder"),
        (("runs", 0, "folder"), "../../etc", "no folder below its own"),
        (("runs", 0, "folder"), "/etc", "no folder below its own"),
        (("runs", 0, "folder"), "a\0b", "no folder below its own"),
        (("runs", 0, "config"), {"seed": "x"}, "has no seed"),
        (("runs", 0, "means"), [1], "is something else"),
        (("runs", 0, "summary"), None, "is something else"),
        (("runs", 0, "overrides"), [1], "is something else"),
        (("runs", 0, "points"), -1, "is something else"),
        (("runs", 0, "points"), 10**9, "is something else"),
        (("runs", 0, "points"), 99, "other lengths than its header says"),
    ],
    ids=str,
)
def test_a_header_of_something_else_is_refused(
    path: Path, keys: tuple[Any, ...], value: Any, message: str
) -> None:
    edit(path, keys, value)
    with pytest.raises(ValueError, match=message):
        read_record(path)


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 100_000, b"\xff", b"{}", b"[]", b"null"])
def test_a_header_that_is_no_record_is_refused(path: Path, text: bytes) -> None:
    rewrite(path, {"header.npy": array_bytes(np.frombuffer(text, np.uint8))})
    with pytest.raises(ValueError, match=r"."):
        read_record(path)


@settings(max_examples=200)
@given(content=st.binary(max_size=200))
def test_any_other_file_is_refused(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "other.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"."):
        read_record(path)
