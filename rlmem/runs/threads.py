"""How many threads torch computes with, so that runs side by side share the cores.

Two threads of one computation wait for each other many times in an update. OpenMP lets them wait by
spinning, which is fastest on an idle machine; beside other runs they spin away the time in which
the thread that they wait for could run, and two runs on two cores fell to a twentieth. So a run
takes only cores that are free when it starts, and `rlmem.cli.spin_briefly` bounds the spinning.
"""

from pathlib import Path
from typing import Any

import psutil
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from rlmem.callbacks.checkpoint import read_manifest
from rlmem.callbacks.checkpoint_files import find_checkpoint
from rlmem.config.sweep import on_this_machine
from rlmem.machine import usable_cores

TORCH_THREADS = torch.get_num_threads()  # of the process, before a job of a sweep changes it
LOOK_SECONDS = 0.5
MOST_JOBS = 10**6


def choose_threads(
    asked: int | None, agent: torch.nn.Module, run_dir: Path, processes: int = 1
) -> int:
    """Threads for a run.

    Args:
        asked: `trainer.threads`; None chooses: what the run had before, as sums depend on it to
            the last bit; one for networks that gain nothing from more; else the free cores, or
            where jobs of a sweep start together on this machine its cores divided among them.
        processes: of the run on this machine, which share the free cores.
    """
    if asked is not None:
        return asked
    folder = find_checkpoint(run_dir)
    before = read_manifest(folder).get("threads") if folder else None
    if isinstance(before, int) and 1 <= before <= 1024:
        return before
    if not any(getattr(module, "many_threads", False) for module in agent.modules()):
        return 1
    if HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN:
        hydra: Any = HydraConfig.get()
        if (together := on_this_machine(hydra, MOST_JOBS)) > 1:  # none is seen by the others yet
            return max(1, min(TORCH_THREADS, usable_cores() // together))
    return max(1, min(TORCH_THREADS, free_cores()) // processes)


def free_cores() -> int:
    """Cores that nobody used in the last moment, at least 1."""
    cores = psutil.cpu_count() or 1
    busy = psutil.cpu_percent(interval=LOOK_SECONDS) / 100 * cores
    # Where the busy ones are nobody says; of a part of the machine all may be free.
    return max(1, min(usable_cores(), round(cores - busy)))
