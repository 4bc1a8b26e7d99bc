"""States on disk: one `.npy` a large array, one JSON for the rest. Nothing is pickled."""

import json
from pathlib import Path
from typing import Any

import numpy as np

State = dict[str, Any]


def save_state(folder: Path, state: State) -> None:
    """Write a flat state (name -> array or JSON value) into a folder.

    Arrays are written as they lie in memory, without a second copy.
    """
    folder.mkdir(parents=True, exist_ok=True)
    values: State = {}
    for name, value in state.items():
        if isinstance(value, np.ndarray):
            np.save(folder / f"{name}.npy", value, allow_pickle=False)
        else:
            values[name] = value
    (folder / "state.json").write_text(json.dumps(values))


def load_state(folder: Path) -> State:
    """Read what `save_state` wrote; arrays are memory-mapped, so that a part copies them in place.

    Raises:
        FileNotFoundError: the folder or its `state.json` is missing.
        ValueError: a file is damaged.
    """
    state: State = json.loads((folder / "state.json").read_text())
    for file in sorted(folder.glob("*.npy")):
        state[file.stem] = np.load(file, mmap_mode="r", allow_pickle=False)
    return state
