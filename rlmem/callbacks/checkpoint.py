"""Saving a run so that it can go on: model, optimizer, counters, random generators, memory.

A checkpoint is a folder `checkpoints/last/` of safetensors, npy and JSON files (nothing is
pickled). It is written beside the previous one and put in its place when complete, so that a kill
in the middle leaves the previous one valid.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rlmem import distributed
from rlmem.callbacks.diagnostics import ReplayDiagnostics
from rlmem.callbacks.records import Recorder
from rlmem.collect.stream import Stream
from rlmem.errors import UserError
from rlmem.memories.base.serialize import State, link, load_state, save_state
from rlmem.version import __version__

FORMAT = 2
BEST = "best.ckpt"
README = """A checkpoint of rlmem: `python train.py resume=<run directory>` goes on from here.

manifest.json          counters; written last, so its presence says the checkpoint is complete
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


def _optimizer_tensors(optimizer: torch.optim.Optimizer | None) -> dict[str, torch.Tensor]:
    if optimizer is None:
        return {}
    state = optimizer.state_dict()["state"]
    # Step counts may be views of one tensor, which safetensors refuses.
    return {
        f"{i}.{name}": t.contiguous() if t.dim() else t.clone()
        for i, values in state.items()
        for name, t in values.items()
    }


def _load_optimizer(
    optimizer: torch.optim.Optimizer | None, tensors: dict[str, torch.Tensor]
) -> None:
    if optimizer is None:
        return
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, tensor in tensors.items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    # Adam's own tensors must lie in memory as their parameters do, or sums run in another order.
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            if value.shape == parameter.shape and value.dim() == 4:
                values[name] = torch.empty_like(parameter).copy_(value)


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


def _load_random_state(folder: Path, agent: Any) -> None:
    if not folder.is_dir():  # of a version that did not keep it
        return
    state = load_state(folder)
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
    fresh, old = folder.with_name(folder.name + ".new"), folder.with_name(folder.name + ".old")
    try:
        if distributed.rank == 0:
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
        distributed.wait()
        _save_own(_own(fresh), _own(folder), agent, stream, recorder, with_memory)
        distributed.wait()
        if distributed.rank == 0:
            _save_whole(fresh, folder, agent, stream, recorder, with_memory, summary)
            shutil.rmtree(old, ignore_errors=True)
            if folder.exists():
                os.replace(folder, old)
            os.replace(fresh, folder)
            shutil.rmtree(old, ignore_errors=True)
        distributed.wait()
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        kept = "; the one before it is intact" if find_checkpoint(folder.parents[1]) else ""
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
    """What is of all processes; the manifest last."""
    model = {name: t.contiguous() for name, t in agent.state_dict().items()}
    save_file(model, fresh / "model.safetensors")
    save_file(_optimizer_tensors(agent.optimizer), fresh / "optimizer.safetensors")
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
    (fresh / "manifest.json").write_text(json.dumps(manifest, indent=2))


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed save left beside a complete checkpoint."""
    for suffix in (".new", ".old"):
        other = folder.with_name(f"last{suffix}")
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)


def find_checkpoint(run_dir: Path) -> Path | None:
    """The newest complete checkpoint of a run, or None."""
    # `.old` is all there is when a save was killed between its two renames.
    for name in ("last", "last.old"):
        folder = run_dir / "checkpoints" / name
        if (folder / "manifest.json").exists():
            return folder
    return None


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint.

    Raises:
        UserError: it is of another format or damaged.
    """
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise UserError(f"{folder}: manifest.json cannot be read ({error})") from None
    if manifest.get("format") != FORMAT:
        raise UserError(
            f"{folder}: checkpoint format {manifest.get('format')}, this version reads {FORMAT}"
        )
    return manifest


def load_model(folder: Path, agent: Any) -> None:
    """Load the networks only.

    Raises:
        UserError: the file is damaged or of another network.
    """
    try:
        agent.load_state_dict(load_file(folder / "model.safetensors"))
    except Exception as error:  # safetensors and torch raise several kinds
        reason = str(error).splitlines()[0]
        raise UserError(f"{folder}/model.safetensors cannot be loaded: {reason}") from None


def load_checkpoint(
    folder: Path, agent: Any, stream: Stream, diagnostics: ReplayDiagnostics | None = None
) -> dict[str, Any]:
    """Restore a run in place and return the manifest.

    Args:
        diagnostics: start anew where the saved run had none.

    Raises:
        UserError: the checkpoint is incomplete, damaged, or of another run.
    """
    manifest = read_manifest(folder)
    if not manifest["memory_saved"]:
        raise UserError(
            f"resume={folder.parents[1]}: the run finished and its memory was not kept; to extend "
            "runs later, train with checkpoint.keep_memory_when_finished=true"
        )
    load_model(folder, agent)
    own = _own(folder)
    try:
        _load_optimizer(agent.optimizer, load_file(folder / "optimizer.safetensors"))
        if diagnostics and (own / "diagnostics").is_dir():
            diagnostics.load_state_dict(load_state(own / "diagnostics"))
        stream.memory.load(own / "memory")
        stream.load_state_dict(load_state(own / "stream"))
        _load_random_state(own / "random", agent)
    except (OSError, ValueError, KeyError, EOFError, SafetensorError) as error:
        raise UserError(f"{folder} cannot be loaded: {error}") from None
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
        """Save now; see `save_checkpoint`."""
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
        if evaluation is None or (best is not None and evaluation.mean <= best):
            return
        self.recorder.best_return = evaluation.mean
        path = self.folder.with_name(BEST)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "state_dict": agent.state_dict(),
            "env_steps": self.stream.env_steps,
            "eval_return_mean": evaluation.mean,
        }
        torch.save(content, path.with_suffix(".new"))
        os.replace(path.with_suffix(".new"), path)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save at each multiple of `every`."""
        if self.stream.crossed(self.every):
            self.save(pl_module)
