"""summary.json: what a run was, how it ended, what it scored and what its memory cost."""

import importlib.metadata
import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from rlmem.run_files import read_json, write_small
from rlmem.version import __version__

PACKAGES = ("torch", "torchrl", "lightning", "gymnasium", "ale_py")


def nothing_learned(summary: dict[str, Any]) -> str | None:
    """The warning of a run that finished without an update, None of any other."""
    if summary["grad_steps"] or summary["status"] != "finished":
        return None
    return (
        f"WARNING: nothing was learned: in {summary['env_steps']:,} env steps memory="
        f"{summary['memory']} had no minibatch to draw, with {summary['memory_entries']:,} entries "
        "at the end; train for longer"
    )


def no_episode_ended(summary: dict[str, Any], reseed_every: int, num_envs: int) -> str | None:
    """The warning of a run in which every episode was cut before its end, None of any other."""
    whole = summary["status"] == "finished" and summary["env_steps"] >= reseed_every
    if summary["episodes"] or not whole:
        return None
    return (
        f"WARNING: no training episode ended: checkpoint.reseed_every={reseed_every} cuts those of "
        f"env.num_envs={num_envs} after {reseed_every // num_envs:,} steps each; give more"
    )


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that make a run what it is."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return {**found, "rlmem": __version__}  # its own: it may run from a clone alone


def device_name(device: torch.device) -> str:
    """What a run learns on: the GPU's name, or `cpu`."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def git_commit() -> str | None:
    """The commit of rlmem's checkout, with `-dirty` if files changed; None outside git, and where
    rlmem is installed within the repository of somebody else."""
    here = Path(__file__).resolve()

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments],
            cwd=here.parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", here.name)
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*") or None
    except (OSError, subprocess.SubprocessError):
        return None


def write_summary(run_dir: Path, summary: dict[str, Any]) -> None:
    """Write summary.json."""
    write_small(run_dir / "summary.json", json.dumps(summary, indent=2) + "\n")


def why_no_checkpoint(run_dir: Path, otherwise: str) -> str:
    """What is said of a run without a checkpoint: that those of a finished one are gone, else
    `otherwise`."""
    finished = (read_summary(run_dir) or {}).get("status") == "finished"
    return "it finished, and its checkpoints are not there any more" if finished else otherwise


def read_summary(run_dir: Path) -> dict[str, Any] | None:
    """The summary of a run, or None if there is none or it is damaged."""
    return read_json(run_dir / "summary.json")
