"""A run directory is data, a stranger's too: nothing in it is imported or written through."""

import ast
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import rlmem
from rlmem.analysis.read.runs import read_run
from rlmem.analysis.show.report import _check_own
from rlmem.analysis.show.status import read_status, render_status
from rlmem.callbacks.checkpoint_files import check_manifest
from rlmem.callbacks.csv_file import CsvFile
from rlmem.collect.rollout import Video
from rlmem.config.run_directory import check_taken, run_settings
from rlmem.errors import UserError, one_line, printable
from rlmem.memories.base.serialize import load_state, save_state
from rlmem.run_files import (
    check_links,
    is_number,
    new_text,
    parse_json,
    parse_yaml,
    plain_cell,
    read_json,
    read_small,
    write_small,
)
from rlmem.runs.evaluate import say
from rlmem.runs.resume import finished_summary, lock_run, resolve_run_dir
from tests.settings import settings

# Where something is read or written without `run_files`, and why that is no run directory.
ELSEWHERE = {
    "run_files.py": "the one place",
    "api.py": "a table whose text `run_files` has read",
    "analysis/read/curves.py": "likewise",
    "analysis/read/external.py": "results of another program, which the user names",
    "distributed.py": "JSON of the run's own processes",
    "config/groups.py": "conf/",
    "config/plugins.py": "the command line, and conf/",
    "envs/scores.py": "a table of the package",
    "runs/preflight.py": "what the system says of its memory",
    "runs/run.py": "the recorder is opened",
    "machine.py": "what the system says of this process",
    "runs/study_file.py": "study.yaml, which the user wrote",
    "analysis/show/page.py": "writes the page",
    "integrations/wandb_dashboard.py": "writes a file that the user names",
    "drawing.py": "writes pictures",
    "callbacks/checkpoint.py": "writes a README into a new folder",
    "memories/base/serialize.py": "maps arrays whose files were verified; copies a file",
    "memories/values/pictures_data.py": "an array of its own, without pickle",
}
CALLS = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "read_csv"}
PARSERS = {"load", "loads", "safe_load"}
LIBRARIES = {"json", "yaml", "np", "numpy", "torch", "pickle", "OmegaConf"}


def _reads(node: ast.AST) -> bool:
    """Whether this opens or parses something."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id == "open"
    if not isinstance(node.func, ast.Attribute):
        return False
    owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
    parsed = node.func.attr in PARSERS and owner in LIBRARIES
    return parsed or (node.func.attr in CALLS and owner != "os")


def test_only_one_module_reads_and_writes_files_of_a_run() -> None:
    root = Path(rlmem.__file__).parent
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if any(map(_reads, ast.walk(ast.parse(path.read_text()))))
    }
    assert found - set(ELSEWHERE) == set(), "read and write them by rlmem.run_files"
    assert set(ELSEWHERE) - found == set()


def run_dir(folder: Path, *overrides: str, **changes: object) -> Path:
    values = settings("env=gym", "env.id=CartPole-v1", *overrides).values
    values["env"] |= changes
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    return folder


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module on the path that touches a canary when it is imported."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil_env.py").write_text("open('canary', 'w')")
    return tmp_path


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "evil_env:Mine-v0"},
        {"id": "GymV26Environment-v0", "kwargs": {"env_id": "evil_env:Mine-v0"}},
        {"kwargs": {"a": [{"b": "evil_env:Mine-v0"}]}},
        {"id": "evil_env:\x1b[2J"},
    ],
    ids=str,
)
def test_a_module_that_a_run_directory_names_is_not_imported(
    evil: Path, changes: dict[str, object]
) -> None:
    with pytest.raises(UserError, match=r"give plugins=\[evil_env\] if you trust it") as error:
        run_settings(run_dir(evil / "run", **changes), "run=x")
    assert str(error.value).isprintable()
    assert not (evil / "canary").exists()


@pytest.mark.parametrize("module", ["odd. name", "odd.\tname", " odd"])
def test_nor_is_a_module_with_a_space_in_its_name(evil: Path, module: str) -> None:
    for changes in ({"id": f"{module}:Mine-v0"}, {"kwargs": {"env_id": f"{module}:Mine-v0"}}):
        with pytest.raises(UserError, match="which is code"):
            run_settings(run_dir(evil / "run", **changes), "run=x")


def test_a_resumed_run_is_looked_at_as_well(evil: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = settings("env=gym", "env.id=evil_env:Mine-v0")
    with pytest.raises(UserError, match="which is code"):
        check_taken(asked)
    check_taken(settings("env=gym", "env.id=json:Mine-v0"))  # imported already: no new code
    monkeypatch.delitem(sys.modules, "gymnasium_robotics", raising=False)
    check_taken(settings("env=point_maze"))  # conf/ names it, and no stranger
    with pytest.raises(UserError, match="the module gymnasium_robotics, which is code"):
        check_taken(settings("env=point_maze", "env.id=gymnasium_robotics:FetchReach-v4"))
    assert not (evil / "canary").exists()


def test_a_folder_that_a_run_directory_names_is_not_made(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    asked = settings("memory/storage=memmap", f"memory.storage.directory={elsewhere}")
    with pytest.raises(UserError, match=r"memory\.storage\.directory=.*not there"):
        check_taken(asked)
    elsewhere.mkdir()
    check_taken(asked)


@pytest.mark.parametrize("name", ["evaluation", "checkpoints/last", "metrics.csv", "a/b/c"])
def test_a_link_out_of_a_run_is_refused(tmp_path: Path, name: str) -> None:
    run = run_dir(tmp_path / "run")
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).symlink_to(tmp_path)
    with pytest.raises(UserError, match=r"is a link that leads out of the run directory; remove"):
        run_settings(run, "run=x")
    (run / name).unlink()
    (run / name).symlink_to(run / "config.yaml")
    logs = run / "wandb/offline-run-1/logs"
    logs.mkdir(parents=True)
    (logs / "debug-core.log").symlink_to("/etc/hostname")  # W&B's own
    check_links(run)


@pytest.mark.parametrize("name", ["artifacts", "debug.log", "offline-run-1/files"])
def test_a_link_that_wandb_would_write_through_is_refused(tmp_path: Path, name: str) -> None:
    run = run_dir(tmp_path / "run")
    (run / "wandb" / name).parent.mkdir(parents=True)
    (run / "wandb" / name).symlink_to(tmp_path)
    with pytest.raises(OSError, match="is a link that leads out of the run directory; remove it"):
        check_links(run)


def test_pictures_and_videos_are_files_of_their_own(tmp_path: Path) -> None:
    """What a run would write may be a link to another file, which stays as it is."""
    pytest.importorskip("imageio")
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "last.mp4").hardlink_to(precious)
    video = Video(tmp_path / "last.mp4", 30)
    video.append(np.zeros((32, 32, 3), np.uint8), np.zeros(1))
    video.close()
    assert precious.read_text() == "mine"
    assert (tmp_path / "last.mp4").stat().st_size > 4


def test_what_is_written_goes_through_no_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for name in ("summary.new", "metrics.csv", "metrics.new"):
        (tmp_path / name).symlink_to(precious)
    write_small(tmp_path / "summary.json", "{}")
    with new_text(tmp_path / "metrics.csv") as file:
        file.write("x")
    CsvFile(tmp_path / "metrics.csv", ["env_steps"], 0).close()
    (tmp_path / ".lock").symlink_to(precious)
    with pytest.raises(UserError, match=r"\.lock cannot be read"):
        lock_run(tmp_path)
    assert precious.read_text() == "mine"


@pytest.mark.parametrize("cell", ["=1+1", "@x", "=cmd|' /C calc'!A0", "x", "\x1b[2J"])
def test_a_cell_that_no_run_writes_is_refused(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "metrics.csv"
    for text in (
        f'env_steps,a\n1,"{cell}"\n',
        f'env_steps,"{cell if cell != "x" else "=x"}"\n1,2\n',
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=r"metrics\.csv: .* is no (number|column)") as error:
            CsvFile(path, None, 10)
        assert str(error.value).isprintable()
        assert path.read_text() == text


def test_half_a_row_of_a_killed_run_is_no_reason_to_refuse_it(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("env_steps,a\n1,2e-05\n2,2e-")
    CsvFile(tmp_path / "metrics.csv", None, 10, keep=1).close()
    assert (tmp_path / "metrics.csv").read_text() == "env_steps,a\n1,2e-05\n"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_a_table_that_is_no_file_is_refused(tmp_path: Path, make: object) -> None:
    make(tmp_path / "metrics.csv")  # type: ignore[operator]
    with pytest.raises(UserError, match=r"metrics\.csv cannot be read"):
        CsvFile(tmp_path / "metrics.csv", None, 10)


def test_a_report_reads_no_fifo(tmp_path: Path) -> None:
    run = run_dir(tmp_path / "run")
    os.mkfifo(run / "metrics.csv")
    assert len(read_run(run).curves["env_steps"]) == 0
    os.mkfifo(run / "summary.json")
    with pytest.raises(ValueError, match=r"summary\.json cannot be read"):
        read_run(run)


def test_a_report_is_not_written_over_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "index.html")
    with pytest.raises(UserError, match=r"holds an index\.html that is no report"):
        _check_own(tmp_path)


def test_tables_of_a_run_are_not_read_from_a_fifo(tmp_path: Path) -> None:
    run = run_dir(tmp_path / "run")
    os.mkfifo(run / "metrics.csv")
    with pytest.raises(UserError, match=r"metrics\.csv: cannot be read"):
        _ = rlmem.load_run(run).metrics


def test_a_terminal_sees_no_escapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "seed=\x1b]0;x\x07"
    job.mkdir()
    error = {"error": "a\x1b[2Jb\u202ec", "exit_code": 2}
    (job / "error.json").write_text(json.dumps(error))
    say(render_status(read_status(tmp_path)))
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    assert "a\\x1b[2Jb\\u202ec" in out
    assert one_line("\x1b[2J") == "\\x1b[2J"
    assert printable("größer 5 µs") == "größer 5 µs"


def test_a_spreadsheet_computes_nothing() -> None:
    cells = ["=1", "+x", "-x", "@x", "\t=1", "-1.5", "+2", "a=b", 3, None]
    assert [plain_cell(cell) for cell in cells] == [
        "'=1", "'+x", "'-x", "'@x", "'\t=1", "-1.5", "+2", "a=b", 3, None,
    ]  # fmt: skip
    assert is_number("")


def test_half_a_character_is_refused() -> None:
    for text in ('{"a": "\\ud800"}', '["\\udfff"]', '{"\\ud800": 1}'):
        with pytest.raises(ValueError, match="surrogates"):
            parse_json(text)
    assert parse_json('"\\ud83d\\ude00"') == "\U0001f600"


@pytest.mark.parametrize("text", ["[" * 40 + "]" * 40, '{"a":' * 2000 + "1" + "}" * 2000])
def test_deep_json_and_yaml_are_refused(text: str, tmp_path: Path) -> None:
    for parse in (parse_json, parse_yaml):
        with pytest.raises((ValueError, RecursionError)):
            parse(text)
    (tmp_path / "x.json").write_text(text)
    assert read_json(tmp_path / "x.json") is None


def test_reading_is_bounded_by_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x" * 100)
    assert len(read_small(tmp_path / "a", 2**62)) == 100
    with pytest.raises(ValueError, match="larger than 99 bytes"):
        read_small(tmp_path / "a", 99)


def test_a_summary_that_says_finished_and_no_more_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"status": "finished"}')
    with pytest.raises(UserError, match=r"summary\.json: is damaged"):
        finished_summary(tmp_path)


@pytest.mark.parametrize("summary", [{"env_steps": 300, "episodes": "x"}, {"env_steps": 1e9}, {}])
def test_a_finished_summary_of_other_values_is_one_line(
    tmp_path: Path, summary: dict[str, object]
) -> None:
    (tmp_path / "summary.json").write_text(json.dumps({"status": "finished", **summary}))
    with pytest.raises(UserError, match=r"summary\.json: is damaged, as it"):
        finished_summary(tmp_path)


@pytest.mark.parametrize(
    "scored",
    [
        {"returns": [10**400], "lengths": [3]},
        {"returns": [1.0], "lengths": [3], "more": 1},
        {"returns": [1.0], "lengths": [3], "unended": "x"},
    ],
)
def test_a_manifest_whose_scores_no_run_saves_is_refused(scored: dict[str, object]) -> None:
    manifest = {
        "env_steps": 1,
        "grad_steps": 1,
        "memory_saved": True,
        "best_return": None,
        "last_evaluation": {"returns": [1.0], "lengths": [3]},
        "seconds": 1.0,
        "memory_bytes_peak": 1,
    }
    check_manifest(manifest)
    with pytest.raises(ValueError, match=r"its (last_evaluation|unended)"):
        check_manifest({**manifest, "last_evaluation": scored})


@pytest.mark.parametrize("header", ["{'descr': (\n", "-" * 9000 + "1"])
def test_an_array_whose_header_python_cannot_read_is_refused(tmp_path: Path, header: str) -> None:
    save_state(tmp_path, {"count": np.arange(3)})
    text = header.encode("latin-1")
    content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    (tmp_path / "count.npy").write_bytes(content)
    state = load_state(tmp_path)
    state._verified.add("count")  # whoever gives a run away writes its checksums too
    with pytest.raises(ValueError, match="is no array"):
        state["count"]


@pytest.mark.parametrize("resume", ["null", "auto"])
@pytest.mark.parametrize("multirun", [True, False])
def test_a_link_in_the_folder_of_a_sweep_is_refused(
    tmp_path: Path, resume: str, multirun: bool
) -> None:
    job = tmp_path / "sweep/seed=1"
    job.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (job / "checkpoints").symlink_to(tmp_path / "elsewhere")
    asked = settings(f"resume={resume}")
    with pytest.raises(UserError, match="is a link that leads out of the run directory"):
        resolve_run_dir(asked, job, multirun)
    mine = tmp_path / "mine"  # a folder of the user's own, with a link of his own
    mine.mkdir()
    (mine / "python").symlink_to(sys.executable)
    if not multirun:
        assert resolve_run_dir(asked, mine, multirun) == (mine, False)
    linked = tmp_path / "sweep/seed=2"
    linked.symlink_to(tmp_path / "elsewhere")
    if multirun:
        with pytest.raises(UserError, match="is a link, and jobs write below their sweep"):
            resolve_run_dir(asked, linked, multirun)
