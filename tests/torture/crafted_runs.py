"""Run directories with right checksums and wrong contents: one line, or a run that goes on."""

import json
import random
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml

from rlmem.callbacks.checkpoint_files import write_checksums
from rlmem.checksums import checksum_of
from rlmem.machine import peak_rss_bytes, reset_peak_rss
from tests.torture.runner import Told, forked
from tests.torture.runs import BASE, KINDS, command, made, pick

CASES = 4
MOST_BYTES = 200 * 2**20  # more than what goes on with the run as it was
DEEP: Any = json.loads("[" * 60 + "]" * 60)
VALUES: list[Any] = [
    -1, 0, 1, 2**31, 2**62, -(2**70), 10**400, 1e308, float("nan"), float("inf"), 0.5, None, True,
    "x", "", "../../../etc/passwd", "/etc/passwd", "a\nb", "\x1b[31m", "os:system", "9" * 5000,
    "${oc.env:HOME}", [], {}, [1, 2], DEEP, {"_target_": "os.system"},
]  # fmt: skip
WHOLE = {".json", ".yaml", ".csv", ".safetensors", ".npy"}
OURS = ("hydra.yaml", "log.txt")  # nothing of rlmem's reads these


def trial(rng: random.Random, folder: Path) -> Told:
    """One run, several of its files, each read by one of the commands."""
    name, _ = pick(rng)
    while "a3c" in name:  # it starts processes of its own
        name, _ = pick(rng)
    steps = f"trainer.max_env_steps={100 if 'pong' in name else 150}"

    def stopped(place: Path) -> int:
        return command([*BASE, *KINDS[name], steps, f"hydra.run.dir={place}"])[0]

    run, canary, tried = folder / "run", folder / "canary", []
    shutil.copytree(made(f"stopped {name}", folder, stopped), run)
    files = [p for p in sorted(run.rglob("*")) if p.suffix in WHOLE and p.name not in OURS]
    for _ in range(CASES):
        backup = folder / "backup"
        shutil.copytree(run, backup)
        path = rng.choice(rng.choice([files, [p for p in files if p.suffix != ".npy"]]))
        wrong = f"{path.relative_to(run)}: {_mutated(path, rng)}"
        how = rng.choice(sorted(HOW))
        if (run / "checkpoints/last") in path.parents:
            if path.name != "checksums.json":
                write_checksums(run / "checkpoints/last", {})
            how = rng.choice(["resume", "resume", "evaluate", how])
        what = f"{name}, {how}: {wrong}"
        (folder.parent / "told").write_text(f"{what}: ")
        tried.append(f"{wrong}, {how}: {_looked_at(run, how, what, folder, path)}")
        assert sorted(folder.iterdir()) == sorted({run, backup, folder / "output"}), what
        assert not canary.exists(), what
        shutil.rmtree(run)
        backup.rename(run)
    return Told(f"{name}; {'; '.join(tried)}", CASES, ("files of a run",) * CASES)


HOW: dict[str, Callable[[Path], tuple[int, str]]] = {
    "resume": lambda run: command([f"resume={run}", "trainer.max_env_steps=200"]),
    "evaluate": lambda run: command([f"run={run}", "episodes=1"], "evaluate"),
    "best": lambda run: command([f"run={run}", "episodes=1", "checkpoint=best"], "evaluate"),
    "status": lambda run: command(["mode=status", f"sweep={run}"], "evaluate"),
    "report": lambda run: command(["mode=report", f"sweep={run}", f"out={run}/out"], "evaluate"),
}


def _looked_at(run: Path, how: str, what: str, folder: Path, path: Path) -> str:
    """What a command makes of the run, in another process."""
    output = folder / "output"
    output.unlink(missing_ok=True)

    def look() -> int:
        before = psutil.Process().memory_info().rss
        reset_peak_rss()
        code, said = HOW[how](run)
        print(said)
        more = peak_rss_bytes() - before - ALLOWED
        if more > MOST_BYTES:
            print(f"Traceback: {more / 2**20:.0f} MiB more")
        return code

    code = forked(look, 60, output)
    said = output.read_text(errors="replace")
    asks = path.name in ("overrides.yaml", "config.yaml")  # it may ask for a long run
    if code is None and asks and how == "resume":
        return "goes on for long"
    assert code is not None, f"{what}: it hangs: {said[-300:]}"
    assert "Traceback" not in said, f"{what}: {said[-900:]}"
    assert "\x1b[31m" not in said, f"{what}: an escape sequence reaches the terminal"
    lines = [line for line in said.splitlines() if line.startswith("rlmem: ")]
    assert code in (0, 2), f"{what}: code {code}: {said[-500:]}"
    assert len(lines) == (code == 2), f"{what}: code {code}: {said[-500:]}"
    return "refused" if lines else "taken"


ALLOWED = 150 * 2**20  # of a run, a report or a picture that nothing is wrong with


def _mutated(path: Path, rng: random.Random) -> str:
    """Write a file anew with something wrong in it; what that is."""
    how = {
        ".json": _json, ".yaml": _yaml, ".csv": _csv, ".safetensors": _safetensors, ".npy": _npy
    }[path.suffix]  # fmt: skip
    content, said = how(path, rng)
    path.unlink()  # another checkpoint may hold the same file
    path.write_bytes(content)
    if path.suffix == ".npy":
        state = path.parent / "state.json"
        values = json.loads(state.read_text())
        values["files"][path.stem] |= checksum_of(path)
        state.write_bytes(_state(values))
    together = path.parent.parent / "memory" / "state.json"
    if path.parent.parent.name == "memory" and together.exists() and together != path:
        values = json.loads(together.read_text())
        del values["parts"]  # which would refuse any change, before what is wrong with this one
        together.write_bytes(_state(values))
    return f"{said:.100}"


def _state(values: Any) -> bytes:
    """A state.json with its own checksum."""
    if not isinstance(values, dict):
        return json.dumps(values).encode()
    values.pop("crc32", None)
    text = json.dumps(values)[:-1].encode()
    return text + f', "crc32": {zlib.crc32(text)}}}'.encode()


def _changed(content: Any, rng: random.Random) -> tuple[Any, str]:
    """A tree of mappings and lists in which one node is another."""
    holder: Any = None
    key: Any = None
    node, way = content, ""
    while isinstance(node, dict | list) and node and (holder is None or rng.random() < 0.8):
        holder = node
        key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        node, way = holder[key], f"{way}/{key}"
    value = rng.choice(VALUES)
    if holder is None:
        return value, f"all of it {value!r}"
    if rng.random() < 0.15:
        del holder[key]
        return content, f"{way} gone"
    if isinstance(holder, dict) and rng.random() < 0.1:
        holder[str(rng.choice(VALUES))[:100]] = value
        return content, f"{way} has another beside it"
    holder[key] = value
    return content, f"{way}={value!r:.40}"


def _json(path: Path, rng: random.Random) -> tuple[bytes, str]:
    content, said = _changed(json.loads(path.read_text()), rng)
    return _state(content) if path.name == "state.json" else json.dumps(content).encode(), said


def _yaml(path: Path, rng: random.Random) -> tuple[bytes, str]:
    content = yaml.safe_load(path.read_text())
    if path.name == "overrides.yaml" and rng.random() < 0.7:
        at = rng.randrange(len(content))
        key = content[at].partition("=")[0]
        content[at] = f"{rng.choice([key, key, 'plugins', 'hydra.x', '+a'])}={rng.choice(VALUES)}"
        return yaml.safe_dump(content).encode(), content[at]
    content, said = _changed(content, rng)
    return yaml.safe_dump(content, allow_unicode=True).encode(), said


def _csv(path: Path, rng: random.Random) -> tuple[bytes, str]:
    lines = path.read_text().splitlines()
    at = rng.randrange(len(lines))
    cells = lines[at].split(",")
    cells[rng.randrange(len(cells))] = str(rng.choice([*VALUES, "=1+1", "@x", "\0", '"']))
    if rng.random() < 0.2:
        cells = cells[:-1]
    lines[at] = ",".join(cells)
    return "\n".join([*lines, ""]).encode(), f"line {at}: {lines[at]}"


def _safetensors(path: Path, rng: random.Random) -> tuple[bytes, str]:
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    if rng.random() < 0.1:
        size = rng.choice([0, 2**31, 2**63, len(content)])
        return struct.pack("<Q", size) + content[8:], f"a header of {size} bytes"
    head, said = _changed(json.loads(content[8 : 8 + size]), rng)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + content[8 + size :], said


def _npy(path: Path, rng: random.Random) -> tuple[bytes, str]:
    array = np.load(path)
    head = np.lib.format.header_data_from_array_1_0(array)
    head[rng.choice(["shape", "shape", "descr", "fortran_order"])] = rng.choice(
        [(10**12,), (2**62, 2**62), (-1,), (), (3, 1), "<f8", "|O", "<U900000", "<i2", True, 7]
    )
    text = f"{head}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    data = array.tobytes()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data, str(head)
