"""What a replay memory's minibatches are like: their errors and weights, how alike and how old.

All is of the newest minibatch since the row before, as the agent was given it. Beside the memory
stand 12 bytes a slot: which transition was written there last, and which minibatch drew the item
last. They are no part of the memory and do not count as its bytes.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch

from rlmem.memories.base.batch import Batch
from rlmem.memories.base.observer import Observer
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import Stateful, array_of, count_of, entry
from rlmem.memories.memory import ReplayMemory

DIAGNOSTICS = (
    "loss",
    "td_error_mean",
    "td_error_median",
    "td_error_max",
    "td_error_std",
    "correlation_count",
    "weight_min",
    "effective_sample_size",
    "sample_age_mean",
    "sample_age_max",
    "sampled_fraction",
    "batch_overlap",
)


PAIRED = 512  # states of a batch that are compared with the others at once


def correlation_count(states: torch.Tensor, threshold: float = 0.8) -> int:
    """Pairs i < j of a batch's states whose correlation over state dimensions exceeds a threshold.

    Args:
        states: [B, ...].
        threshold: on the absolute correlation coefficient. A constant state correlates with none.
    """
    flat = states.detach().flatten(1).to(torch.float32)
    centred = flat - flat.mean(1, keepdim=True)
    constant = flat.amin(1, keepdim=True) == flat.amax(1, keepdim=True)
    centred.masked_fill_(constant, 0.0)  # what is left of it was rounded
    norm = centred.norm(dim=1, keepdim=True)
    unit = centred / norm.clamp(min=1e-12)
    found = 0
    for first in range(0, len(unit), PAIRED):  # all at once would be B x B numbers
        above = (unit[first : first + PAIRED] @ unit[first:].T).abs() > threshold
        found += int(torch.triu(above, diagonal=1).sum())
    return found


def summarize_td_errors(td_error: torch.Tensor) -> tuple[float, float, float, float]:
    """Mean, median, largest and standard deviation of |TD error| over a batch."""
    size = td_error.detach().abs().float().flatten()
    values = size.mean(), size.quantile(0.5), size.max(), size.std(correction=0)
    return tuple(float(value) for value in values)  # type: ignore[return-value]


def effective_sample_size(weight: torch.Tensor) -> float:
    """(sum w)^2 / sum w^2 of importance weights of any shape: as many equal ones say as much."""
    weight = weight.double()
    return float(weight.sum().square() / weight.square().sum())


class _Draw(NamedTuple):
    """A minibatch as it was drawn."""

    number: int  # from 1
    seen: int  # transitions that the memory had been given
    drawn: np.ndarray  # int32 [B], the minibatch that drew each item before
    written: np.ndarray  # int64 [B], number of each item's transition, -1: unknown

    def columns(self) -> dict[str, float]:
        """Ages and overlap, as far as they are known."""
        known = self.written[self.written >= 0]
        values: dict[str, float] = {}
        if len(known):
            ages = self.seen - 1 - known
            values |= {"sample_age_mean": float(ages.mean()), "sample_age_max": int(ages.max())}
        if self.number > 1:
            values["batch_overlap"] = float(np.mean(self.drawn == self.number - 1))
        return values


class ReplayDiagnostics(Stateful, Observer):
    """Follows what a memory holds and draws, and describes it when asked for a row.

    Args:
        memory: whose observer it becomes; of items that were written before, no age is known.
    """

    def __init__(self, memory: ReplayMemory) -> None:
        self.memory = memory
        memory.observers.append(self)
        # Of each slot: the number of its last transition, -1: unknown; the minibatch that drew its
        # item last, from 1, 0: none did.
        self._written, self._drawn = np.empty(0, np.int64), np.empty(0, np.int32)
        self._used = 0  # slots
        self._minibatches = 0
        # Overwritten by the next draw, of which `learned` is told before any row is made.
        self._newest: tuple[Mapping[str, torch.Tensor], Batch] | None = None
        self._draw: _Draw | None = None  # the newest
        self._values: dict[str, float] = {}  # of the newest minibatch, once described

    def _reserve(self, slots: np.ndarray) -> None:
        needed = int(slots.max(initial=-1)) + 1
        if needed <= self._used:
            return
        if needed > len(self._drawn):
            more = max(needed - len(self._drawn), len(self._drawn), 1024)
            self._written = np.concatenate((self._written, np.full(more, -1)))
            self._drawn = np.concatenate((self._drawn, np.zeros(more, np.int32)))
        self._used = needed

    def forgotten(self, slots: np.ndarray) -> None:
        """Nobody drew what comes to these slots."""
        self._reserve(slots)
        self._drawn[slots] = 0

    def written(self, slots: np.ndarray, numbers: np.ndarray) -> None:
        """Their age starts anew."""
        self._reserve(slots)
        self._written[slots] = numbers

    def drawn(self, index: np.ndarray) -> None:
        """Mark the items of minibatches [U, B] or, of runs, [U, B, T], and note what is to say of
        the last one."""
        self._reserve(index)
        first, self._minibatches = self._minibatches + 1, self._minibatches + len(index)
        if len(index) > 1:
            numbers = np.arange(first, self._minibatches)
            self._drawn[index[:-1]] = numbers.reshape(-1, *[1] * (index.ndim - 1))
        newest = index[-1]
        self._draw = _Draw(
            self._minibatches,
            self.memory.transitions_seen,
            self._drawn[newest],
            self._written[newest],
        )
        self._drawn[newest] = self._minibatches

    def learned(self, batch: Batch, outputs: Mapping[str, torch.Tensor]) -> None:
        """Keep what the agent learned from."""
        self._newest = outputs, batch

    def columns(self) -> dict[str, float | None]:
        """A row: the newest minibatch since the last row, and the share of the items held that was
        ever drawn; cells without a value are None."""
        self._describe()
        held = len(self.memory)
        share = np.count_nonzero(self._drawn[: self._used]) / held if held else None
        values, self._values = self._values, {}
        return {**dict.fromkeys(DIAGNOSTICS), **values, "sampled_fraction": share}

    def _describe(self) -> None:
        if self._newest is None:
            return
        (outputs, batch), self._newest = self._newest, None
        weight, told = batch["weight"][-1], {}
        states = batch["observation"][-1].flatten(0, weight.ndim - 2)  # of runs each step's
        if "td_error" in outputs:  # an agent of somebody else may tell none
            td_errors = summarize_td_errors(outputs["td_error"][-1])
            told |= zip(DIAGNOSTICS[1:5], td_errors, strict=True)
        self._values = {
            "loss": float(outputs["loss"].reshape(-1)[-1]),
            **told,
            "correlation_count": correlation_count(states),
            "weight_min": float(weight.min()),
            "effective_sample_size": effective_sample_size(weight),
            **(self._draw.columns() if self._draw else {}),
        }

    def state_views(self) -> State:
        """Flat state, for a checkpoint of the run: what was drawn and written, and the values that
        the next row will have."""
        self._describe()
        return {
            "written": self._written[: self._used],
            "drawn": self._drawn[: self._used],
            "minibatches": self._minibatches,
            "values": self._values,
        }

    def check_state(self, state: State) -> None:
        written = array_of(state, "written", np.int64, (-1,), "run")
        array_of(state, "drawn", np.int32, written.shape, "run")
        count_of(state, "minibatches", "run")
        entry(state, "values", "run")

    def take_over(self, state: State) -> None:
        self._written, self._drawn = np.array(state["written"]), np.array(state["drawn"])
        self._used = len(self._drawn)
        self._minibatches = int(state["minibatches"])
        self._values = dict(state["values"])
