"""What every sampler of rlmem shares: it is a TorchRL sampler that can count its bytes."""

from typing import Any

import numpy as np
import torch
from torchrl.data.replay_buffers.samplers import Sampler

from rlmem.errors import UserError
from rlmem.memories.base.build import Needs
from rlmem.memories.base.state import Stateful
from rlmem.settings import Settings


class ReplaySampler(Stateful, Sampler):
    """Base of the samplers: drawing from `self._rng`, saving without pickle, counting bytes.

    Attributes:
        in_order: that it needs a storage that knows which transitions are the newest.
        takes_newest: that each minibatch is to hold the newest transition.
        draws_runs: that a minibatch is of runs of transitions, [B, T].
    """

    in_order = takes_newest = draws_runs = False

    @classmethod
    def build(cls, settings: Settings, needs: Needs, capacity: int) -> "ReplaySampler":
        """Make the sampler for a run: its keys are the constructor's arguments.

        Args:
            capacity: slots of the storage (edges of a map).
        """
        return cls(**settings.as_arguments())

    @classmethod
    def rows_of_a_round(cls, needs: Needs) -> int:
        """Transitions beside a minibatch that the storage must hold to draw a round's."""
        return 0

    def uniform(self, n: int) -> torch.Tensor:
        """n draws from [0, 1), float64 [n], from the generator that the buffer passed in."""
        return torch.rand(n, generator=self._rng, dtype=torch.float64, device="cpu")

    def check_storage(self, storage: Any) -> None:
        """Asked whether this sampler can draw from a storage.

        Raises:
            ValueError: it cannot (a UserError where a run's configuration chose both).
        """
        if self.in_order and not hasattr(storage, "newest"):
            raise UserError(
                f"memory/sampler: {type(self).__name__} draws by the order of time, which "
                f"{type(storage).__name__} does not hold; use memory/sampler=uniform"
            )

    def draw(
        self, storage: Any, batch_size: int, num_batches: int
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Draw the minibatches of a round, each as `sample` does unless a sampler says otherwise.

        Args:
            batch_size: items a minibatch, B.
            num_batches: minibatches, U.

        Returns:
            Slots int64 [U, B], and what else is to stand in the batch: of a weighting sampler
            `weight` float32 [U, B].

        Raises:
            RuntimeError: the memory is empty.
        """
        draws = [self.sample(storage, batch_size) for _ in range(num_batches)]
        index = torch.stack([index for index, _ in draws]).cpu().numpy()
        weights = [info["priority_weight"] for _, info in draws if "priority_weight" in info]
        return index, {"weight": torch.stack(weights).float().cpu().numpy()} if weights else {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A sampler that says anew how a minibatch is drawn, and not how a round's are, draws
        them one by one."""
        super().__init_subclass__(**kwargs)
        if "sample" in cls.__dict__ and "draw" not in cls.__dict__:
            cls.draw = ReplaySampler.draw

    def available(self, storage: Any, batch_size: int, num_batches: int) -> int:
        """Minibatches that a round draws if it asks for `num_batches`: so many, unless nothing is
        stored or the sampler says otherwise."""
        return num_batches if len(storage) > 0 else 0

    def can_sample(self, storage: Any, batch_size: int) -> bool:
        """Whether a minibatch can be drawn (TorchRL's interface)."""
        return self.available(storage, batch_size, 1) > 0

    def remove(self, index: np.ndarray) -> None:
        """Never draw the slots `index` (int64 [n]) until they are written again."""

    def forget_evicted(self, storage: Any) -> None:
        """Learn from a storage what it evicted for its budget. A `ReplayMemory` tells that at each
        block; in a buffer of TorchRL nobody does, so samplers that remember slots ask as they
        draw."""
        evicted = storage.drain_evicted() if hasattr(storage, "drain_evicted") else ()
        if len(evicted):
            slots = torch.from_numpy(np.unique(evicted))
            self.remove(slots[~storage.contains(slots)].numpy())

    def evicted_of(self, storage: Any, index: np.ndarray) -> np.ndarray:
        """Those of some slots that a storage holds no more, each once: it evicted them for its
        budget, or was emptied."""
        # A ring that was saved under a budget has unused slots without one as well.
        gone = ~storage.held(index) if hasattr(storage, "held") else np.zeros(len(index), np.bool_)
        return np.unique(index[gone]) if gone.any() else index[:0]

    def synchronise(self, storage: Any) -> None:
        """Take over what changed in a storage that keeps a log of it; others keep none."""

    def bytes_a_slot(self) -> int:
        """Bytes that the sampler holds for each slot in use."""
        return 0

    def anneal(self, env_steps: int) -> None:
        """Tell the sampler how far the run is; samplers with a schedule follow it."""

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held."""
        return {}

    def projected_footprint(self) -> dict[str, int]:
        """Component -> bytes held when the memory is full."""
        return self.footprint()

    def check_valid(self) -> None:
        """Assert the invariants."""

    def _empty(self) -> None:
        pass


class NothingDrawn(ReplaySampler):
    """Of a memory from which no minibatch is drawn."""

    def sample(self, storage: Any, batch_size: int) -> Any:
        """Raises a RuntimeError."""
        raise RuntimeError("no minibatch is drawn from this memory")

    def available(self, storage: Any, batch_size: int, num_batches: int) -> int:
        """None."""
        return 0


def as_index(index: Any) -> np.ndarray:
    """Any index (int, list, array, tensor) as int64 [n]."""
    if isinstance(index, torch.Tensor):
        index = index.cpu().numpy()
    return np.array(index, np.int64, copy=None, ndmin=1)


def kept_slots(index: Any) -> np.ndarray:
    """The slots int64 [n] of an index without -1, TorchRL's mark of a row that was not kept."""
    slots = as_index(index)
    return slots[slots >= 0]


def held_slots(storage: Any) -> np.ndarray:
    """Slots of all that a storage holds, int64 [n]."""
    index = torch.arange(len(storage), device="cpu")
    locate = getattr(storage, "locate", None)  # rlmem's storages: some slots may be unused
    return as_index(index if locate is None else locate(index))


def draw_uniform(storage: Any, batch_size: int, rng: torch.Generator | None) -> torch.Tensor:
    """Slots int64 [batch_size], each stored item with the same probability, with replacement."""
    index = torch.randint(require_items(storage), (batch_size,), generator=rng, device="cpu")
    locate = getattr(storage, "locate", None)  # rlmem's storages: some slots may be unused
    return index if locate is None else locate(index)


def seen_in_turn(rows: int, num_batches: int) -> np.ndarray:
    """Of a round's `rows` transitions, how many had come when each of its minibatches would be
    drawn if updates and env steps took turns: int64 [num_batches]."""
    return np.arange(1, num_batches + 1) * rows // num_batches


def require_items(storage: Any) -> int:
    """Number of stored items.

    Raises:
        RuntimeError: the storage is empty.
    """
    size = len(storage)
    if size == 0:
        raise RuntimeError("the memory is empty: extend it before sampling")
    return size
