"""The Lightning data module around the env-stepping stream."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import lightning
import torch
from tensordict import TensorDict

from rlmem.collect.collector import EnvStepStream


class UpdateListener(Protocol):
    """Who wants to know what an agent learned before the next round is played."""

    def learned(self, batch: TensorDict, outputs: dict[str, Any]) -> None:
        """Take a batch [U, B], U >= 0, and what the agent returned of it."""


class Rounds:
    """The batches of one Trainer step; each is played for and drawn when it is asked for.

    Args:
        stream: plays and draws.
        count: rounds; fewer where the run is over before.
        listeners: told of each batch once the agent has learned from it.
    """

    def __init__(
        self, stream: EnvStepStream, count: int, listeners: Sequence[UpdateListener]
    ) -> None:
        self.stream, self.count, self.listeners = stream, count, listeners
        self.device = torch.device("cpu")

    def __iter__(self) -> Iterator[TensorDict]:
        kind = self.device.type
        # Only learning is done in the Trainer's lower precision, not playing and embedding.
        autocast = torch.is_autocast_enabled(kind)
        full = torch.autocast(kind, enabled=False) if autocast else contextlib.nullcontext()
        for _ in range(self.count):
            with full:
                batch = next(self.stream, None)
            if batch is None:
                return
            yield batch if kind == "cpu" else batch.to(self.device, non_blocking=True)

    def learned(self, batch: TensorDict, outputs: dict[str, Any]) -> None:
        """Tell the listeners, in their order."""
        for listener in self.listeners:
            listener.learned(batch, outputs)


class TrainerSteps:
    """Iterable of `Rounds`, one a Trainer step, until the run is over or is to stop.

    It has a length, because Lightning prefetches an item of an iterable without one.
    """

    def __init__(
        self, stream: EnvStepStream, rounds: int, listeners: Sequence[UpdateListener]
    ) -> None:
        self.stream, self.rounds, self.listeners = stream, rounds, listeners

    def __len__(self) -> int:
        """Trainer steps left; with `max_episodes` there may be fewer."""
        return -(-len(self.stream) // self.rounds)

    def __iter__(self) -> "TrainerSteps":
        return self

    def __next__(self) -> Rounds:
        if self.stream.stop_requested or self.stream.over:
            raise StopIteration
        self.stream.begin_step()
        return Rounds(self.stream, self.rounds, self.listeners)


class EnvStepDataModule(lightning.LightningDataModule):
    """Feeds an agent from a memory that an env-stepping stream fills.

    Args:
        stream: see `EnvStepStream`. There are no DataLoader workers: each would copy the memory.
        rounds: rounds of playing and learning a Trainer step, which costs some 0.2 ms by itself;
            what is learned is the same whatever their number.
        listeners: see `Rounds`.
    """

    def __init__(
        self, stream: EnvStepStream, rounds: int = 1, listeners: Sequence[UpdateListener] = ()
    ) -> None:
        super().__init__()
        self.steps = TrainerSteps(stream, rounds, listeners)

    def train_dataloader(self) -> TrainerSteps:
        """The Trainer steps left."""
        return self.steps

    def transfer_batch_to_device(
        self, batch: Rounds, device: torch.device, dataloader_idx: int
    ) -> Rounds:
        """Name the device of batches that are not drawn yet."""
        batch.device = device
        return batch
