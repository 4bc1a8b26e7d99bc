"""What every storage of rlmem shares."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from tensordict import TensorDict
from torchrl.data.replay_buffers.storages import Storage

from rlmem.memories.base.batch import Batch, as_tensordict
from rlmem.memories.base.blocks import Block, as_block, check_single
from rlmem.memories.base.indexing import slots_of
from rlmem.memories.base.serialize import save_state
from rlmem.memories.base.state import Stateful


class ReplayStorage(Stateful, Storage):
    """Base of the storages: counting bytes, saving without pickle."""

    unit = "transitions"  # what the capacity counts
    compresses = False  # whether its projected bytes are a bound that data seldom reach
    single_steps = False  # whether it has no returns over several, as what follows may be gone
    smaller = ""  # overrides that choose storages of fewer bytes
    device = torch.device("cpu")  # of what is sampled
    _made_of: tuple[tuple, dict[str, Any]]  # the constructor's arguments

    _settings: tuple[str, ...] = ("_attached_entities_list",)  # what else a copy takes over

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        storage = super().__new__(cls)
        storage._made_of = arguments, options
        return storage

    def __getstate__(self) -> dict[str, Any]:
        # For pickle and deepcopy. Not the arrays, which have room for the whole capacity.
        state = {name: v() if callable(v) else v for name, v in self.state_views().items()}
        settings = {name: getattr(self, name) for name in self._settings}
        return {"made_of": self._made_of, "settings": settings, "state": state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._made_of = arguments, options = state["made_of"]
        self.__init__(*arguments, **options)
        vars(self).update(state["settings"])
        self.load_state_dict(state["state"])

    def __len__(self) -> int:
        raise NotImplementedError

    def get(self, index: Any) -> TensorDict:
        """A sample of the index's shape."""
        raise NotImplementedError

    def locate(self, index: torch.Tensor) -> torch.Tensor:
        """Slots of the stored items `index` (int64, any shape, in [0, len))."""
        raise NotImplementedError

    def _rand_given_ndim(self, batch_size: int) -> torch.Tensor:
        # By it TorchRL's RandomSampler draws; it knows of no slots that hold nothing.
        return self.locate(
            torch.randint(len(self), (batch_size,), generator=self._rng, device="cpu")
        )

    def _bump_mutation_revision(self) -> None:
        # TorchRL calls it behind set_, set_at_ and update_, which have changed a copy alone.
        raise NotImplementedError(
            f"{type(self).__name__}: what it holds cannot be changed in place, what it gives is a "
            "copy; change the samples, or what is written"
        )

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        """What it holds of each transition beside what every storage holds."""
        return {}

    def buffers(self, shape: tuple[int, ...], *, pinned: bool = False) -> Any:
        """What `read` overwrites for indices of a shape; None where it makes its tensors anew.

        Args:
            pinned: in memory that a GPU copies from by itself.
        """
        return None

    def read(self, index: np.ndarray, buffers: Any = None) -> Batch:
        """The transitions at slots int64 [...], without `index` and `weight`.

        Args:
            buffers: of this storage and shape, overwritten; None: the tensors are the caller's.

        Raises:
            IndexError: a slot holds nothing.
        """
        raise NotImplementedError

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held now (pages of lazily touched arrays count once written)."""
        raise NotImplementedError

    def projected_footprint(self) -> dict[str, int]:
        """Component -> bytes held at `max_size`; `limit_bytes` may end it before."""
        raise NotImplementedError

    @property
    def slots_in_use(self) -> int:
        """Slots for each of which other parts hold bytes."""
        return len(self)

    @property
    def entries(self) -> int:
        """Stored items in the storage's own unit (transitions; nodes of a map)."""
        return len(self)

    @property
    def transitions_represented(self) -> int:
        """Transitions that a sample can stand for (of a map: the counts of its edges)."""
        return len(self)

    def check_valid(self) -> None:
        """Assert the invariants."""

    def set_returns(self, n_step: int, gamma: float) -> None:
        """Give n-step returns over so many steps, of this discount, from here on.

        Args:
            n_step: 2 at least.

        Raises:
            ValueError: it sums returns as transitions are written, or was made for one step.
        """
        raise ValueError("its returns are summed as transitions are written")

    def limit_bytes(self, budget: int, slot_bytes: int) -> None:
        """Hold no more than `budget` bytes, `slot_bytes` for each slot elsewhere among them.

        Raises:
            ValueError: this storage knows a capacity only.
            UserError: the budget is too small for any transitions.
        """
        raise ValueError(f"{type(self).__name__} takes a capacity, not a budget")

    def drain_evicted(self) -> np.ndarray:
        """Slots that were evicted for the budget since the last call, int64 [n]."""
        return np.empty(0, np.int64)

    def changes(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """What a write of slots `index` (int64 [n]) did, before the sampler is told of it.

        Returns:
            Slots whose former items are gone, int64, and of a map the edges that were passed.
        """
        return index, None

    def save(self, folder: Path, previous: Path | None = None) -> None:
        """Save into a folder.

        Args:
            previous: folder of an earlier save, whose files may be linked.
        """
        save_state(folder, self.state_views())

    def dumps(self, path: Any) -> None:
        """Save into a folder (TorchRL's interface)."""
        self.save(Path(path))


class TransitionStorage(ReplayStorage):
    """Base of the storages that are written by blocks, a transition a slot."""

    frame_shape: tuple[int, ...]  # of one observation as the environment gives it
    dtype: np.dtype  # of an observation
    stack: int  # frames in a sampled observation
    num_envs: int  # environments that write in turn
    actions: np.ndarray  # as they are held, [capacity, *action_shape]

    def read_block(self, data: Any) -> Block:
        """A block as arrays, checked: what `set` takes.

        Raises:
            ValueError: it is of other shapes.
        """
        shape, dtype = self.actions.shape[1:], self.actions.dtype
        return as_block(data, self.frame_shape, self.dtype, self.num_envs, shape, dtype)

    def _max_size_along_dim0(self, *, single_data: Any = None, batched_data: Any = None) -> int:
        """Slots. TorchRL's writers ask with the data in hand, just before they move their cursor:
        a block that `set` would refuse is refused here, while nothing has moved, and a sampler
        that cannot draw from this storage."""
        data = batched_data if single_data is None else single_data
        for buffer in self._attached_entities:  # TorchRL's, whose samplers are told of no storage
            check_storage = getattr(getattr(buffer, "_sampler", None), "check_storage", None)
            if check_storage is not None:
                check_storage(self)
        if data is not None:
            block = self.read_block(data)
            if single_data is not None:
                check_single(block)
        return self.max_size

    def get(self, index: Any) -> TensorDict:
        """Read transitions.

        Args:
            index: int64 [B] or [U, B] slots (a number gives one transition without batch
                dimension), or what else indexes a tensor of this length
                (`rlmem.memories.base.indexing`).

        Returns:
            TensorDict of the index's shape: `observation` and `("next", "observation")`
            [B, *observation_shape], `action`, `steps_to_next` and `("next", ...)` reward,
            terminated, truncated, done [B, 1].

        Raises:
            IndexError: a slot holds no transition.
        """
        if isinstance(index, tuple) and len(index) == 1:  # TorchRL's slice samplers ask so
            (index,) = index
        slots = slots_of(self, index)
        if not slots.shape:
            return self.get(slots[None])[0]
        return as_tensordict(self.read(slots), slots.shape)


def check_whole(**sizes: Any) -> None:
    """Refuse sizes that are no whole numbers, such as 1e6.

    Raises:
        ValueError: one is none.
    """
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int | np.integer):
            raise ValueError(f"{name}={size}: a whole number is wanted")
