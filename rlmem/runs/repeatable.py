"""The same numbers from the same seed on a GPU too, so that a stopped run goes on bit for bit."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """Around training on a device.

    Some of a GPU's kernels, such as those of a convolution's gradients, add in whatever order their
    threads come; others give the same each time. These are taken; where there is none, torch warns.
    """
    if device.type != "cuda":  # on a CPU all are, and the mode would cost time
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read at cuBLAS's first product
    fills: Any = torch.utils.deterministic
    mode = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = fills.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    fills.fill_uninitialized_memory = False  # a launch for each new tensor; none is read unwritten
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode, warn_only=warns)
        fills.fill_uninitialized_memory = filled
