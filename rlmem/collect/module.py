"""The Lightning data module around the env-stepping stream."""

import contextlib
from collections.abc import Iterator, Mapping

import lightning
import torch

from rlmem.collect.stream import Stream
from rlmem.memories.base.batch import Batch

STEP_SECONDS = 0.25  # of a Trainer step whose number of rounds is not given


class Rounds:
    """The batches of one Trainer step; each is played for and drawn when it is asked for.

    The step ends before its last round where the run is over or is to stop, or something is due.

    Args:
        stream: plays and draws.
        count: rounds; None: as many as fit into `STEP_SECONDS`.
    """

    def __init__(self, stream: Stream, count: int | None) -> None:
        self.stream, self.count = stream, count
        self.device = torch.device("cpu")

    def __iter__(self) -> Iterator[Batch]:
        kind = self.device.type
        # Only learning is done in the Trainer's lower precision, not playing and embedding.
        autocast = torch.is_autocast_enabled(kind)
        full = torch.autocast(kind, enabled=False) if autocast else contextlib.nullcontext()
        copied: torch.cuda.Event | None = None
        played = 0
        while not (played and self._enough(played)):
            if copied is not None:  # the next draw overwrites what a GPU may still be copying
                copied.synchronize()
            with full:
                batch = next(self.stream, None)
            if batch is None:
                return
            played += 1
            if kind != "cpu":
                batch = self._moved(batch)
                if kind == "cuda":
                    copied = torch.cuda.Event()
                    copied.record()
            yield batch

    def _enough(self, played: int) -> bool:
        if self.stream.step_over:
            return True
        if self.count is None:
            return self.stream.step_seconds >= STEP_SECONDS
        return played >= self.count

    def _moved(self, batch: Batch) -> Batch:
        """A batch on the device; its indices stay with the memory on the CPU."""
        pinned = self.device.type == "cuda"
        return {
            name: column if name == "index" else column.to(self.device, non_blocking=pinned)
            for name, column in batch.items()
        }

    @property
    def episodes_ended(self) -> int:
        """Episodes that ended in the last round."""
        return self.stream.episodes_ended

    def learned(self, batch: Batch, outputs: Mapping[str, torch.Tensor]) -> None:
        """Tell the memory, before the next round is played."""
        self.stream.memory.learned(batch, outputs)


class TrainerSteps:
    """Iterable of `Rounds`, one a Trainer step, until the run is over or is to stop.

    It has a length, because Lightning prefetches an item of an iterable without one.
    """

    def __init__(self, stream: Stream, rounds: int | None) -> None:
        self.stream, self.rounds = stream, rounds

    def __len__(self) -> int:
        """Trainer steps left, at most: one a round."""
        return len(self.stream)

    def __iter__(self) -> "TrainerSteps":
        return self

    def __next__(self) -> Rounds:
        if self.stream.stopping or self.stream.over:
            self.stream.finish()
            raise StopIteration
        self.stream.begin_step()
        return Rounds(self.stream, self.rounds)


class EnvStepDataModule(lightning.LightningDataModule):
    """Feeds an agent from a memory that an env-stepping stream fills.

    Args:
        stream: see `Stream`. There are no DataLoader workers: each would copy the memory.
        rounds: of playing and learning a Trainer step, which costs some 0.2 ms by itself; what is
            learned and written is the same whatever their number. None: see `Rounds`.
    """

    def __init__(self, stream: Stream, rounds: int | None = None) -> None:
        super().__init__()
        self.steps = TrainerSteps(stream, rounds)

    def train_dataloader(self) -> TrainerSteps:
        """The Trainer steps left."""
        return self.steps

    def transfer_batch_to_device(
        self, batch: Rounds, device: torch.device, dataloader_idx: int
    ) -> Rounds:
        """Name the device of batches that are not drawn yet."""
        batch.device = device
        batch.stream.memory.pinned = device.type == "cuda"
        return batch
