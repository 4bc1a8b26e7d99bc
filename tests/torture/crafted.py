"""States with right checksums and wrong contents: refused in one line, or taken and lived with."""

import copy
import random
from pathlib import Path
from typing import Any

import numpy as np

from rlmem.callbacks.records import Recorder
from rlmem.errors import UserError
from rlmem.runs import build
from tests.settings import settings
from tests.torture import crafted_runs
from tests.torture.runner import Told
from tests.torture.runs import BASE, pick

NUMBERS = [-1, 0, 1, 2**31, 2**62, -(2**62), 10**9, 10**15, float("nan"), float("inf"), 0.5]
VALUES = [*NUMBERS, None, "x", [], {}, [1, 2], True, "9" * 400]


class Parts:
    """What of a run has a state."""

    def __init__(self, overrides: list[str], folder: Path) -> None:
        cfg = settings(*BASE, *overrides)
        env = build.build_env(cfg)
        self.agent: Any = build.build_agent(cfg, env.spec)
        self.memory: Any = build.build_memory(cfg, env.spec, self.agent.columns())
        self.agent.join(self.memory)
        self.stream = build.build_stream(cfg, env, self.memory, self.agent)
        self.recorder = Recorder(folder, self.stream, 100, [])

    def play(self, rounds: int) -> None:
        for _ in range(rounds):
            try:
                batch = next(self.stream)
            except StopIteration:
                return
            if batch:
                self.memory.learned(batch, self.agent.update(batch))

    def states(self) -> dict[str, Any]:
        found = {name: part.state_dict() for name, part in self.memory._parts().items()}
        return copy.deepcopy(found)


def trial(rng: random.Random, folder: Path) -> Told:
    """States of a memory's parts, or files of a run directory."""
    return _states(rng, folder) if rng.random() < 0.5 else crafted_runs.trial(rng, folder)


def _states(rng: random.Random, folder: Path) -> Told:
    """One memory, several mutations of its parts' states."""
    name, overrides = pick(rng)
    while "a3c" in name:  # its state is its workers'
        name, overrides = pick(rng)
    parts = Parts(overrides, folder)
    parts.play(120)
    states, tried = parts.states(), []
    for _ in range(12):
        part = rng.choice([n for n, state in states.items() if state] or [""])
        if not part:
            return Told(f"{name}; no state", 0)
        state = copy.deepcopy(states[part])
        what = f"{part}/{_mutate(state, rng)}"
        (folder.parent / "told").write_text(f"{name}: {what}: ")  # of one that ends the process
        taken = _take(parts, part, state, f"{name}: {what}")
        tried.append(f"{what} {'taken' if taken else 'refused'}")
        if taken:  # the next one begins with what was whole
            parts = Parts(overrides, folder)
            parts.play(120)
    return Told(f"{name}; {', '.join(tried)}", len(tried), ("states",) * len(tried))


def _take(parts: Parts, part: str, state: dict[str, Any], what: str) -> bool:
    before, refused = parts.memory._parts()[part].state_dict(), None
    try:
        parts.memory._parts()[part].load_state_dict(state)
    except ValueError as error:
        refused = str(error)
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    if refused is not None:
        assert "\n" not in refused, f"{what}: {refused}"
        after = parts.memory._parts()[part].state_dict()
        assert _same(before, after), f"{what}: refused, and changed"
        return False
    try:
        parts.memory.sampler.synchronise(parts.memory.storage)
        parts.play(30)
        parts.memory.footprint()
        parts.states()
    except (UserError, ValueError, FloatingPointError):
        return True
    except Exception as error:
        raise AssertionError(f"{what}: taken, then {type(error).__name__}: {error}") from error
    return True


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.tobytes() == b.tobytes()
    return repr(a) == repr(b)


def _mutate(state: dict[str, Any], rng: random.Random) -> str:
    name = rng.choice(sorted(state))
    value = state[name]
    if rng.random() < 0.1:
        del state[name]
        return f"{name} gone"
    if not isinstance(value, np.ndarray) or rng.random() < 0.1:
        state[name] = rng.choice(VALUES)
        return f"{name}={state[name]!r:.30}"
    if rng.random() < 0.2 or not value.size:
        state[name] = rng.choice(
            [
                value[:-1],
                value[None],
                value.astype(np.float64) if not value.dtype.names else value[:0],
                np.zeros(0, np.int64),
            ]
        )
        return f"{name} {state[name].dtype} {state[name].shape}"[:60]  # fmt: skip
    flat = np.ascontiguousarray(value)
    column = rng.choice(flat.dtype.names) if flat.dtype.names else None
    target = (flat[column] if column else flat).reshape(-1)
    for _ in range(rng.choice([1, 1, 3, len(target)])):
        with np.errstate(all="ignore"):
            number = np.float64(rng.choice(NUMBERS))
            target[rng.randrange(len(target))] = (
                number.astype(target.dtype) if target.dtype.kind in "iufb" else target[0]
            )
    if column:
        flat[column] = target.reshape(flat[column].shape)
        state[name] = flat
    else:
        state[name] = target.reshape(value.shape)
    return f"{name}{'.' + column if column else ''}[]"
