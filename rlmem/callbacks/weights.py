"""Tensors on disk: safetensors for what a run goes on with, torch's archive for the best model.

`best.ckpt` is what `torch.load(path, weights_only=True)` opens. rlmem itself unpickles nothing: it
reads the archive's bytes by a table of its own, `rlmem.json`, that lies in it.
"""

import io
import json
import math
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from rlmem.checksums import Summed, read_verified, write_summed
from rlmem.errors import UserError, one_line
from rlmem.run_files import Kind, check_kinds, open_regular, parse_json, read_bytes, why_not

Tensors = Mapping[str, torch.Tensor]
MOST_MODEL = 2**36  # bytes of a file of tensors
MOST_TABLE = 2**22  # of rlmem.json
_NAMES = {  # safetensors' of torch's types
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
_TYPES = {name: dtype for dtype, name in _NAMES.items()}
_TABLE = "rlmem.json"
_BEST = {
    "format": Kind(int, low=1, high=1),
    "env_steps": Kind(int, low=0),
    "eval_return_mean": Kind(int, float, low=-math.inf, high=math.inf),
    "tensors": Kind(list, low=0),
}


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data


def save_file(tensors: Tensors, path: Path) -> dict[str, int]:
    """Write safetensors, and bring them to the disk; size and checksum, summed on the way.

    Raises:
        OSError: the disk is full, or the like.
    """
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)

    def write(file: Summed) -> None:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(_bytes_of(tensor))

    return write_summed(path, write)


def load_file(
    path: Path, expected: Mapping[str, int] | None, root: Path | None = None
) -> dict[str, torch.Tensor]:
    """The tensors of a file of safetensors.

    Args:
        expected: size and checksum; None: of an earlier version, which kept none.
        root: see `rlmem.run_files.open_regular`.

    Raises:
        ValueError: it is missing, damaged, or holds something else; names it.
    """
    try:
        content = (
            read_bytes(path, MOST_MODEL, root)
            if expected is None
            else read_verified(path, expected, root)
        )
        tensors = load(content)
    except OSError as error:
        raise ValueError(f"{path} {why_not(error)}") from None
    except (SafetensorError, KeyError, TypeError, OverflowError, RuntimeError) as error:
        raise ValueError(f"{path} is damaged ({one_line(error)})") from None
    return tensors


def check_finite(tensors: Tensors, path: Path) -> None:
    """Refuse what no learning leaves.

    Raises:
        ValueError: names the file and the first tensor that holds NaN or infinity.
    """
    for name, tensor in tensors.items():
        if not _is_finite(tensor):
            what = "NaN" if bool(torch.isnan(tensor).any()) else "infinity"
            raise ValueError(f"{path}: {name} holds {what}: the run diverged, or it is damaged")


def _is_finite(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def take_weights(agent: Any, tensors: Tensors, path: Path) -> None:
    """Give an agent the weights of a file.

    Raises:
        ValueError: they are of another network, or hold what no learning leaves; names the first
            that does not fit.
    """
    own = agent.state_dict()
    for name, tensor in own.items():
        if name not in tensors:
            raise ValueError(f"{path} lacks {name}: it is of another network")
        found = tensors[name]
        if found.shape != tensor.shape or found.dtype != tensor.dtype:
            raise ValueError(
                f"{path}: {name} is {_shown(found)}, this network's {_shown(tensor)}: it is of "
                "another network"
            )
    if unknown := sorted(set(tensors) - set(own)):
        raise ValueError(f"{path} has {one_line(unknown[0])}, which this network has not")
    # A buffer may be infinite from the start, such as a mask or the least that was met so far.
    check_finite({name: tensors[name] for name, tensor in own.items() if _is_finite(tensor)}, path)
    agent.load_state_dict(dict(tensors))


def _shown(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


# The optimizer.


def begins_anew(agent: Any) -> list[str]:
    """What of an agent's attributes, or in a list or dict of them, a checkpoint does not keep:
    optimizers beside its `optimizer`, schedules of step sizes and scales of gradients."""
    kinds = torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler
    lost = []
    for name, held in vars(agent).items():
        items = held.values() if isinstance(held, dict) else held
        items = items if isinstance(held, list | tuple | dict) else [held]
        if any(isinstance(it, kinds) and it is not agent.optimizer for it in items):
            lost.append(name)
    return sorted(lost)


def optimizer_tensors(optimizer: torch.optim.Optimizer | None) -> dict[str, torch.Tensor]:
    """An optimizer's state, by parameter number."""
    if optimizer is None:
        return {}
    found = {}
    for number, values in optimizer.state_dict()["state"].items():
        for name, value in values.items():
            if value is None:  # as a momentum that is off
                continue
            if not isinstance(value, torch.Tensor):
                raise UserError(
                    f"the agent's {type(optimizer).__name__} keeps {name}, which is no tensor, so "
                    "that a checkpoint cannot hold it; use another optimizer"
                )
            found[f"{number}.{name}"] = value
    return found


def take_optimizer(optimizer: torch.optim.Optimizer | None, tensors: Tensors, path: Path) -> None:
    """Give an optimizer the state of a file.

    Raises:
        ValueError: it does not fit; names the first that does not.
    """
    if optimizer is None:
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    names = _state_names(optimizer)
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition(".")
        if not number.isdecimal() or int(number) >= len(parameters):
            raise ValueError(f"{path}: {one_line(key)} is of no parameter of this network")
        _check_moment(parameters[int(number)], name, tensor, names, f"{path}: {key}")
        state.setdefault(int(number), {})[name] = tensor
    for number, values in state.items():
        if names and set(values) != names:
            raise ValueError(
                f"{path}: parameter {number} has {one_line(sorted(values))}, this optimizer has "
                f"{', '.join(sorted(names))} ({min(set(values) ^ names)})"
            )
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    # Adam's own tensors must lie in memory as their parameters do: its step goes through memory.
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            if value.shape == parameter.shape and value.stride() != parameter.stride():
                values[name] = torch.empty_like(parameter).copy_(value)


def _check_moment(
    parameter: torch.Tensor, name: str, tensor: torch.Tensor, names: set[str] | None, where: str
) -> None:
    """Refuse what an optimizer cannot have kept of a parameter.

    Args:
        names: what it keeps, each of the parameter's shape but numbers; None: not known, as of one
            that keeps sums over rows (Adafactor) or numbers (ASGD).
    """
    smaller = (tensor.dim(), tensor.numel()) < (parameter.dim(), parameter.numel())
    if names is None and smaller and tensor.numel() <= parameter.numel():
        return
    if name in ("step", "mu_product"):  # the second is NAdam's
        if tensor.numel() != 1 or not tensor.is_floating_point() or float(tensor) < 0:
            raise ValueError(f"{where} is {_shown(tensor)}: a number from 0 is wanted")
    elif tensor.shape != parameter.shape or tensor.dtype != parameter.dtype:
        raise ValueError(f"{where} is {_shown(tensor)}, its parameter {_shown(parameter)}")
    elif name in ("exp_avg_sq", "max_exp_avg_sq", "square_avg") and bool((tensor < 0).any()):
        raise ValueError(f"{where} is a mean of squares and holds a number below 0")


def _state_names(optimizer: torch.optim.Optimizer) -> set[str] | None:
    """What an optimizer keeps of a parameter; None of one that is not torch's."""
    if isinstance(optimizer, torch.optim.Adam | torch.optim.RAdam):
        more = {"max_exp_avg_sq"} if optimizer.param_groups[0].get("amsgrad") else set()
        return {"step", "exp_avg", "exp_avg_sq", *more}
    if isinstance(optimizer, torch.optim.RMSprop):
        options = optimizer.param_groups[0]
        more = {"centered": "grad_avg", "momentum": "momentum_buffer"}
        return {"step", "square_avg", *(name for key, name in more.items() if options[key])}
    return None


# The best model.


def save_best(path: Path, agent: Any, env_steps: int, eval_return_mean: float) -> None:
    """Write best.ckpt in one step.

    Raises:
        OSError: the disk is full, or the like.
    """
    weights = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in agent.state_dict().items()
    }
    about = {"env_steps": env_steps, "eval_return_mean": eval_return_mean}
    buffer = io.BytesIO()
    torch.save({"state_dict": weights, **about}, buffer)
    table = [[name, _NAMES[tensor.dtype], list(tensor.shape)] for name, tensor in weights.items()]
    with zipfile.ZipFile(buffer, "a") as archive:
        root = archive.namelist()[0].split("/")[0]
        member = zipfile.ZipInfo(f"{root}/{_TABLE}")  # without the time, which would differ
        archive.writestr(member, json.dumps({"format": 1, **about, "tensors": table}))
    fresh = path.with_suffix(".new")
    write_summed(fresh, lambda file: file.write(buffer.getbuffer()))
    fresh.replace(path)


def load_best(path: Path, agent: Any, root: Path | None = None) -> int:
    """Give an agent the weights of best.ckpt; the env steps that they were saved at.

    Raises:
        UserError: the file is missing, damaged, or of another network.
    """
    try:
        with open_regular(path, root) as file, zipfile.ZipFile(file) as archive:
            folder = archive.namelist()[0].split("/")[0]
            if f"{folder}/{_TABLE}" not in archive.namelist():
                raise ValueError(
                    "an earlier version saved it as a pickle, which is not read; use "
                    "checkpoint=last"
                )
            about = parse_json(_member(archive, f"{folder}/{_TABLE}", MOST_TABLE))
            check_kinds(about, _BEST)
            tensors = {}
            for number, (name, dtype, shape) in enumerate(about["tensors"]):
                count = math.prod(shape)
                size = count * torch.empty(0, dtype=_TYPES[dtype]).element_size()
                content = _member(archive, f"{folder}/data/{number}", size)
                if len(content) != size:
                    raise ValueError(f"{name} is not whole")
                flat = torch.frombuffer(bytearray(content), dtype=_TYPES[dtype], count=count)
                tensors[str(name)] = flat.reshape(shape)
        take_weights(agent, tensors, path)
    except OSError as error:
        raise UserError(f"{path} {why_not(error)}") from None
    except Exception as error:  # an archive's reader raises a dozen kinds
        reason = one_line(error, 300)
        named = reason if str(path) in reason else f"{path} cannot be loaded: {reason}"
        raise UserError(named) from None
    return about["env_steps"]


def _member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """What an archive has under a name; its checksum is compared."""
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > most:
        raise ValueError(f"{name} is packed, or larger than {most:,} bytes")
    return archive.read(info)
