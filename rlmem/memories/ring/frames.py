"""Each frame once, as it is: in memory, or in a file of a directory that the user names."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlmem.memories.base.blocks import Block
from rlmem.memories.base.lazy import give_back_all, lazy_zeros
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import array_of
from rlmem.memories.ring.checkpoint import has_open, places_of
from rlmem.memories.ring.frame_file import FrameFile
from rlmem.memories.ring.plan_kernels import chunks_needed, frames_added
from rlmem.memories.ring.read_kernels import gather
from rlmem.memories.ring.ring import RingStorage, as_bytes
from rlmem.memories.ring.write_kernels import write
from rlmem.registry import part
from rlmem.settings import Settings, setting

SMALLER = "memory/storage=compressed, or memory/storage=memmap memory.storage.directory=FOLDER"


@part("memory/storage", "frames")
class FrameStorage(RingStorage):
    """A ring storage (see `RingStorage`) that holds each observation once, uncompressed.

    A transition costs one frame and 13 to 20 bytes.

    Args:
        directory: holds the frames in a file there instead of in memory. The file is removed from
            the directory as soon as it is open, so that nothing is left after a crash; its room is
            taken in steps, so that a full disk is an error and not a killed process.

    Raises:
        UserError: the directory has no room for the frames when full.

    Examples:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from torchrl.data import TensorDictReplayBuffer
        >>> storage = FrameStorage(1000, frame_shape=(1, 84, 84), stack=4)
        >>> buffer = TensorDictReplayBuffer(storage=storage, batch_size=32, collate_fn=lambda x: x)
        >>> done = torch.zeros(64, 1, dtype=torch.bool)
        >>> frames = torch.randint(255, (65, 1, 84, 84), dtype=torch.uint8)
        >>> _ = buffer.extend(TensorDict({
        ...     "observation": frames[:-1],
        ...     "action": torch.zeros(64, dtype=torch.int64),
        ...     "next": {"observation": frames[1:], "reward": torch.ones(64, 1),
        ...              "terminated": done, "truncated": done}}, batch_size=[64]))
        >>> buffer.sample()["observation"].shape
        torch.Size([32, 4, 84, 84])
        >>> storage.footprint()["frames"] // 7056  # of 65 frames, in chunks of 16
        81
    """

    def __init__(self, *sizes: Any, directory: str | Path | None = None, **options: Any) -> None:
        super().__init__(*sizes, **options)
        # Row 0 is zeros: the padding before an episode.
        shape = 1 + len(self.arrays.chunks) * self.chunk, int(np.prod(self.frame_shape))
        self._file: FrameFile | None = None
        if directory is None:
            self._frames = lazy_zeros(shape, self.dtype, huge=True)
        else:
            needed = sum(self._projected_frame_bytes(self._projected_chunks()).values())
            key = "memory.capacity" if self.budget is None else "memory.budget"
            self._file = FrameFile(Path(directory), shape, self.dtype, needed, key)
            self._file.reserve(1)
            self._frames = self._file.array
        self._bytes_of_frames = self._frames.view(np.uint8)
        self._held = self._flat_actions, self._bytes_of_frames

    kind = "frames"
    smaller = SMALLER

    def _write(self, block: Block) -> tuple[int, int]:
        if self._file is not None or self.budget is not None:
            return super()._write(block)
        action = block.action.reshape(len(block), -1)
        if action.shape[1] != self._flat_actions.shape[1]:
            raise ValueError(f"actions {block.action.shape[1:]}, not {self.actions.shape[1:]}")
        first, count = write(
            self.arrays.memory,
            self._held,
            block.env_id,
            as_bytes(block.observation),
            as_bytes(block.next_observation),
            action,
            block.reward,
            (block.terminated, block.truncated),
        )
        self._write_columns(block, slice(first, first + count))
        return first, count

    def clear(self) -> None:
        super().clear()
        if self._file is None:
            give_back_all(self._frames)
        else:
            self._file.clear()
            self._file.reserve(1)

    def _tails(self) -> np.ndarray:
        return self._frames[1 + self.arrays.recent[:, -1]].view(np.uint8)

    def _put(self, block: Block, first: np.ndarray, ahead: np.ndarray, slot: int) -> None:
        n = len(block)
        own = first >= 0
        if own.any():
            self._frames[1 + first[own]] = block.observation.reshape(n, -1)[own]
        self._frames[1 + ahead] = block.next_observation.reshape(n, -1)

    @property
    def may_be_full(self) -> bool:
        """Whether frames need room on a disk."""
        return self._file is not None

    def _reserve(self, env_id: np.ndarray, follows: np.ndarray) -> None:
        if self._file is not None:
            frames = frames_added(env_id, follows, self.num_envs)
            begun = chunks_needed(frames, self.arrays.chains, self.chunk)
            head = self.arrays.head
            self._reserve_chunks(int(head["chunks"]) + max(0, begun - int(head["free"])))

    def _reserve_chunks(self, chunks: int) -> None:
        if self._file is not None:
            self._file.reserve(1 + min(chunks, len(self.arrays.chunks)) * self.chunk)

    def _take(
        self, index: np.ndarray, last: np.ndarray, places: np.ndarray, out: np.ndarray
    ) -> None:
        gather(self._bytes_of_frames, places, out.view(np.uint8))

    @property
    def chunk_bytes(self) -> int:
        return super().chunk_bytes + self.chunk * self._frame_size

    @property
    def _frame_size(self) -> int:
        return self._frames[0].nbytes

    def _frame_bytes(self) -> dict[str, int]:
        return self._projected_frame_bytes(int(self.arrays.head["chunks"]))

    def _projected_frame_bytes(self, chunks: int) -> dict[str, int]:
        on_disk = self._file is not None and not self._file.in_memory
        name = "frames_on_disk" if on_disk else "frames"
        size = int(np.prod(self.frame_shape)) * self.dtype.itemsize
        return {name: (1 + chunks * self.chunk) * size}

    def _rows_of(self, chunks: np.ndarray) -> np.ndarray:
        return (1 + chunks[:, None] * self.chunk + np.arange(self.chunk)).reshape(-1)

    def chunk_sizes(self, chunks: np.ndarray) -> np.ndarray:
        return np.full(len(chunks), self.chunk * self._frame_size, np.int64)

    def chunk_data(self, chunks: np.ndarray) -> np.ndarray:
        return self._frames[self._rows_of(chunks)].view(np.uint8).reshape(-1)

    def load_chunk_data(self, chunks: np.ndarray, sizes: np.ndarray, data: np.ndarray) -> None:
        rows = self._rows_of(chunks)
        self._frames[rows] = data.view(self.dtype).reshape(len(rows), self._frames.shape[1])

    def _open_rows(self) -> np.ndarray:
        chains = self.arrays.chains
        chains = chains[chains["chunks"] > 0]
        chains = chains[chains["position"] < self.chunk - 1]
        first = 1 + chains["chunk"].astype(np.int64) * self.chunk
        rows = [r + np.arange(n + 1) for r, n in zip(first, chains["position"], strict=True)]
        return np.concatenate([np.empty(0, np.int64), *rows])

    def export_open(self) -> dict[str, np.ndarray]:
        return {"open_frames": self._frames[self._open_rows()]}

    def import_open(self, state: State) -> None:
        self._frames[self._open_rows()] = state["open_frames"]

    def check_frames(self, state: State, chains: np.ndarray, chunks: np.ndarray) -> None:
        count = int((chains["position"] + 1)[has_open(chains, self.chunk)].sum())
        array_of(state, "open_frames", self.dtype, (count, self._frames.shape[1]))
        if not np.array_equal(chunks["size"], self.chunk_sizes(chunks)):
            raise ValueError("the saved memory is damaged: chunks of another size")

    def make_room(self, state: State, chunks: int) -> None:
        self._reserve_chunks(chunks)

    def least_loaded(self, state: State, chains: np.ndarray, chunks: np.ndarray) -> int:
        return sum(self._projected_frame_bytes(places_of(chains)).values())


@dataclass(kw_only=True)
class MemmapSettings(Settings):
    """Where the file of the frames goes."""

    directory: str = setting(example="/scratch", free=True)


@part("memory/storage", "memmap", settings=MemmapSettings)
class MemmapFrameStorage(FrameStorage):
    """`FrameStorage` with its frames in a file."""

    smaller = ""
