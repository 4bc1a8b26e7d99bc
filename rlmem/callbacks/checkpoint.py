"""Saving a run so that it can go on: model, optimizer, counters, random generators, memory.

A checkpoint is a folder `checkpoints/last/` of safetensors, npy and JSON files (nothing is
pickled). It is written beside the previous one and put in its place when complete, so that a kill
in the middle leaves the previous one valid.
"""

import math
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch

from rlmem import distributed
from rlmem.callbacks.checkpoint_files import (
    BEST,
    FORMAT,
    MANIFEST,
    MODEL,
    OPTIMIZER,
    CheckpointFiles,
    find_checkpoint,
    put_in_place,
    write_checksums,
    write_json,
)
from rlmem.callbacks.diagnostics import ReplayDiagnostics
from rlmem.callbacks.records import Recorder
from rlmem.callbacks.weights import (
    check_finite,
    load_file,
    optimizer_tensors,
    save_best,
    save_file,
    take_optimizer,
    take_weights,
)
from rlmem.collect.stream import Stream
from rlmem.errors import UserError, one_line
from rlmem.memories.base.serialize import State, link, save_state
from rlmem.run_files import remove
from rlmem.version import __version__

# What a state that no run saved can raise beside what checks say of it.
UNFIT = (OSError, ValueError, LookupError, TypeError, ArithmeticError, RuntimeError, EOFError)
UNFIT += (AttributeError,)
README = """A checkpoint of rlmem: `python train.py resume=<run directory>` goes on from here.

manifest.json          counters
checksums.json         which run it is of; size and CRC-32 of each file but arrays; written last
model.safetensors      online and target network
optimizer.safetensors  optimizer state, by parameter number
random/                state of torch's own generator
stream/                counters, random state, and the actions since the environments were seeded
shards/<number>/       random/, stream/, memory/ and diagnostics/ of the run's other processes
memory/                the memory (large; of a finished run what it plays with, if anything):
                       state.json with the checksums, and .npy arrays; rows-, chunks- and
                       data-<from>-<to> never change once written, and are links to those of the
                       checkpoint before
diagnostics/           what metrics.csv needs to go on with sampled_fraction and the like
best.ckpt              the best model of the evaluations so far (a link)
"""


def _own_extras(agent: Any) -> dict[str, torch.Tensor]:
    """What of an agent is no weight and is each process's own, such as the state of a generator."""
    return {name: t for name, t in agent.state_dict().items() if name.endswith("_extra_state")}


def _random_state(agent: Any) -> State:
    """Of torch's own generators, from which layers such as dropout draw."""
    state = {"cpu": torch.get_rng_state().numpy()}
    if distributed.rank:
        state |= {name: extra.numpy() for name, extra in _own_extras(agent).items()}
    if agent.device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(agent.device).numpy()
    return state


def _load_random_state(state: State, agent: Any) -> None:
    torch.set_rng_state(torch.from_numpy(np.array(state["cpu"])))
    if distributed.rank:
        extras = {name: torch.from_numpy(np.array(state[name])) for name in _own_extras(agent)}
        agent.load_state_dict(extras, strict=False)
    if agent.device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(torch.from_numpy(np.array(state["cuda"])), agent.device)


def save_checkpoint(
    folder: Path,
    agent: Any,
    stream: Stream,
    recorder: Recorder,
    *,
    with_memory: bool,
    summary: dict[str, Any] | None = None,
) -> None:
    """Write a checkpoint to `folder` in place of the one that is there.

    Args:
        summary: of a run that is finished with this.

    Raises:
        UserError: it cannot be written; the one that is there stays.
    """
    fresh = folder.with_name(folder.name + ".new")
    try:
        if distributed.rank == 0:
            remove(fresh)
            fresh.mkdir(parents=True)
        recorder.sync()  # nor be on the disk before their rows are
        distributed.wait()
        _save_own(_own(fresh), _own(folder), agent, stream, recorder, with_memory)
        distributed.wait()
        if distributed.rank == 0:
            _save_whole(fresh, folder, agent, stream, recorder, with_memory, summary)
            put_in_place(fresh, folder)
        distributed.wait()
    except OSError as error:
        remove(fresh)
        run = folder.parents[1]
        again = f"; the one before it is intact: make room there, and resume={run} goes on"
        kept = again if find_checkpoint(run) else "; make room there"
        raise UserError(
            f"{folder}: the checkpoint cannot be written ({error.strerror or error}){kept}"
        ) from None


def _own(folder: Path) -> Path:
    """Where a process saves what is its own."""
    return folder / "shards" / str(distributed.rank) if distributed.rank else folder


def _save_own(
    fresh: Path, before: Path, agent: Any, stream: Stream, recorder: Recorder, with_memory: bool
) -> None:
    """What each process of the run saves, the first beside what is of all."""
    save_state(fresh / "random", _random_state(agent))
    save_state(fresh / "stream", stream.state_dict())
    if with_memory:
        stream.memory.save(fresh / "memory", before / "memory")
        if recorder.diagnostics:
            save_state(fresh / "diagnostics", recorder.diagnostics.state_views())
    elif distributed.rank == 0:
        stream.memory.save_answers(fresh / "memory")


def _save_whole(
    fresh: Path,
    folder: Path,
    agent: Any,
    stream: Stream,
    recorder: Recorder,
    with_memory: bool,
    summary: dict[str, Any] | None,
) -> None:
    """What is of all processes; the checksums last."""
    known = {
        MODEL: save_file(agent.state_dict(), fresh / MODEL),
        OPTIMIZER: save_file(optimizer_tensors(agent.optimizer), fresh / OPTIMIZER),
    }
    if recorder.best_return is not None and (best := folder.with_name(BEST)).exists():
        link(best, fresh / BEST)
    (fresh / "README.txt").write_text(README)
    manifest = {
        "format": FORMAT,
        "rlmem": __version__,
        "env_steps": stream.env_steps,
        "grad_steps": agent.grad_steps,
        "processes": distributed.size,
        "threads": torch.get_num_threads(),
        "memory_saved": with_memory,
        **recorder.state_dict(),
        "summary": summary,
    }
    known[MANIFEST] = write_json(fresh / MANIFEST, manifest)
    write_checksums(fresh, known)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint.

    Raises:
        UserError: it is of another format, damaged, or another run's.
    """
    return CheckpointFiles(folder).manifest


def load_model(folder: Path, agent: Any) -> None:
    """Load the networks only.

    Raises:
        UserError: the file is damaged or of another network.
    """
    _load_model(CheckpointFiles(folder), agent)


def _load_model(files: CheckpointFiles, agent: Any) -> None:
    path = files.folder / MODEL
    try:
        take_weights(agent, load_file(path, files.expected(MODEL), files.root), path)
    except (ValueError, RuntimeError) as error:
        raise UserError(one_line(error, 400)) from None


def load_memory(folder: Path, memory: Any) -> None:
    """Give a memory what a checkpoint saved of it: the whole, or what an agent needs to play.

    Raises:
        UserError: it is damaged, or of another memory.
    """
    files = CheckpointFiles(folder)
    load = memory.load if files.manifest["memory_saved"] else memory.load_answers
    try:
        files.verify_states("memory")
        load(folder / "memory")
    except UNFIT as error:
        raise UserError(f"{folder}/memory cannot be loaded: {one_line(error, 400)}") from None


def load_checkpoint(
    folder: Path, agent: Any, stream: Stream, diagnostics: ReplayDiagnostics | None = None
) -> dict[str, Any]:
    """Restore a run in place and return the manifest.

    Args:
        diagnostics: start anew where the saved run had none.

    Raises:
        UserError: the checkpoint is incomplete, damaged, or of another run.
    """
    files = CheckpointFiles(folder)
    manifest = files.manifest
    if not manifest["memory_saved"]:
        raise UserError(
            f"resume={folder.parents[1]}: the run finished and its memory was not kept; to extend "
            "runs later, train with checkpoint.keep_memory_when_finished=true"
        )
    _load_model(files, agent)
    own = _own(folder).relative_to(folder).as_posix()
    prefix = "" if own == "." else f"{own}/"
    path = folder / OPTIMIZER
    try:
        tensors = load_file(path, files.expected(OPTIMIZER), files.root)
        check_finite(tensors, path)
        take_optimizer(agent.optimizer, tensors, path)
        if diagnostics and files.has(f"{prefix}diagnostics/state.json"):
            diagnostics.load_state_dict(files.state(f"{prefix}diagnostics"))
        files.verify_states(f"{prefix}memory")
        stream.memory.load(_own(folder) / "memory")
        stream.load_state_dict(files.state(f"{prefix}stream"))
        if files.has(f"{prefix}random/state.json"):  # not of a version that did not keep it
            _load_random_state(files.state(f"{prefix}random"), agent)
        if distributed.rank == 0 and files.has(BEST):
            files.verify(BEST)
    except UNFIT as error:
        raise UserError(f"{folder} cannot be loaded: {one_line(error, 400)}") from None
    agent.grad_steps = manifest["grad_steps"]
    if distributed.rank == 0:
        _restore_best(folder, manifest["best_return"])
    return manifest


def _restore_best(folder: Path, best_return: float | None) -> None:
    """Put back the best model that a checkpoint knows: a later one belongs to what is forgotten."""
    best = folder.with_name(BEST)
    if best_return is None:
        best.unlink(missing_ok=True)
    elif (folder / BEST).exists():  # not in older checkpoints
        link(folder / BEST, best)


class Checkpointing(lightning.Callback):
    """Saves at intervals, and the best model of the evaluations.

    Args:
        run_dir: of the run.
        recorder: whose counters go into the checkpoint.
        every: env steps between checkpoints.
    """

    def __init__(self, run_dir: Path, stream: Stream, recorder: Recorder, every: int) -> None:
        self.every = every
        self.folder = run_dir / "checkpoints" / "last"
        self.stream, self.recorder = stream, recorder
        stream.due_every(every)

    def save(
        self, agent: Any, *, with_memory: bool = True, summary: dict[str, Any] | None = None
    ) -> None:
        """Save now; see `save_checkpoint`. A model that is lost is not put in the place of the one
        before."""
        agent.check_weights()
        self.recorder.write_episodes()  # a checkpoint must not be ahead of the files
        self.stream.gather()
        save_checkpoint(
            self.folder,
            agent,
            self.stream,
            self.recorder,
            with_memory=with_memory,
            summary=summary,
        )

    def save_if_best(self, agent: Any) -> None:
        """Keep the model of the best evaluation as checkpoints/best.ckpt (weights only)."""
        evaluation, best = self.recorder.last_evaluation, self.recorder.best_return
        if evaluation is None or not evaluation.mean > (-math.inf if best is None else best):
            return  # a mean that is no number is never the best
        self.recorder.best_return = evaluation.mean
        path = self.folder.with_name(BEST)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_best(path, agent, self.stream.env_steps, evaluation.mean)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save at each multiple of `every`."""
        if self.stream.crossed(self.every):
            self.save(pl_module)
