"""Run directories made by hand, as train.py leaves them."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

COLUMNS = ["env_steps", "frames", "grad_steps", "seconds", "train_return_mean", "memory_bytes"]
COLUMNS += ["insert_us", "sample_us"]
VERSIONS = {"python": "3.11.7", "torch": "2.13.0", "rlmem": "0.1.0"}


def make_run(
    folder: Path,
    memory: str = "uniform",
    seed: int = 0,
    *,
    env_id: str = "CartPole-v1",
    final: float = 100.0,
    size: int = 1000,
    status: str = "finished",
    rows: int = 20,
    evaluated: int = 0,
    config: dict[str, Any] | None = None,
    **summary: Any,
) -> Path:
    """A run whose return climbs to `final` and whose memory fills to `size` bytes; of two episodes
    an evaluation, the last of `evaluated` evaluations has the mean `final`."""
    folder.mkdir(parents=True)
    content = {
        "seed": seed,
        "label": None,
        "agent": {"name": "dqn", "lr": 0.001},
        "memory": {
            "name": memory,
            "capacity": 10_000,
            "budget": None,
            "storage": {"kind": "frames"},
        },
        "threshold": {"activation": 0.9, "habituation": 0.85},
        "env": {"name": env_id},
        "trainer": {"max_env_steps": 1000 * rows},
        "paths": {"output_dir": str(folder)},
    }
    for key, value in (config or {}).items():
        node: Any = content
        *path, last = key.split(".")
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    (folder / "config.yaml").write_text(yaml.safe_dump(content))
    overrides = [f"memory={memory}", f"seed={seed}", "env=cartpole"]
    (folder / "overrides.yaml").write_text(yaml.safe_dump(overrides))
    with (folder / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for k, share in enumerate(np.linspace(0, 1, rows), start=1):
            learned = [final * share, size * share, 5.0, 80.0]
            writer.writerow([1000 * k, 1000 * k, 250 * k, 2.0 * k, *learned])
    if evaluated:
        lines = ["env_steps,episode,return,length"]
        for share in np.linspace(0, 1, evaluated + 1)[1:]:
            at = int(1000 * rows * share)
            lines += [f"{at},{n},{final * share + (-1) ** n},9" for n in (1, 2)]
        (folder / "evaluations.csv").write_text("\n".join(lines) + "\n")
    if status != "no summary":
        content = {
            "status": status,
            "error": "ValueError: no luck" if status == "failed" else None,
            "env_id": env_id,
            "env_steps": 1000 * rows,
            "grad_steps": 250 * rows,
            "eval_return_mean": final,
            "train_return_mean": final,
            "human_normalized_score": None,
            "memory_bytes_peak": size,
            "memory_entries": size // 10,
            "wall_seconds": 2.0 * rows,
            "versions": VERSIONS,
            "git_commit": "abcdef",
            **summary,
        }
        (folder / "summary.json").write_text(json.dumps(content))
    return folder


def unlike(one: Path, other: Path) -> float:
    """Share of the pixels in which two pictures differ by more than print does."""
    first, second = (np.asarray(Image.open(file).convert("RGB"), np.int16) for file in (one, other))
    if first.shape != second.shape:
        return 1.0
    return float((np.abs(first - second).max(axis=2) > 40).mean())
