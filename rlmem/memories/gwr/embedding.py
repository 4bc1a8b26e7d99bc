"""The space in which a map measures distances: the observation, or a random projection of it.

A random projection keeps Euclidean distances in expectation (Johnson & Lindenstrauss 1984), so a
128-dimensional search stands in for one over the 28,224 dimensions of an Atari stack. Its entries
may as well be signs as Gaussian (Achlioptas 2003), and a sign is held in a byte. Each frame of a
stack has its own part of the dimensions: a quarter of the multiplications and of the bytes that a
matrix over whole stacks would take. A rotation to the principal axes of some observations changes
no distance and lets a search see most of it in the first coordinates. Both embeddings are linear:
the embedding of a moving average is the moving average of the embeddings.
"""

import math
from typing import Any, ClassVar

import numpy as np
import torch

from rlmem.errors import UserError
from rlmem.memories.base.build import Needs
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import Stateful, array_of, number_of
from rlmem.registry import part


class Embedding(Stateful):
    """Base of the spaces; `GWRWriter` asks for what is here.

    Attributes:
        dims: of the space.
        scale_input: factor that brings an observation to [0, 1].
        is_observation: the key is the observation, scaled.
    """

    dims: int
    scale_input: float
    is_observation: ClassVar[bool] = False

    def embed(self, x: np.ndarray) -> np.ndarray:
        """Observations [n, *observation_shape] as float32 [n, dims]."""
        raise NotImplementedError

    def rotate(self, embedded: np.ndarray) -> None:
        """Turn the space to the principal axes of embedded observations [n, dims]; or not."""

    def footprint(self) -> int:
        """Bytes held."""
        return 0

    def projected_footprint(self) -> int:
        """Bytes held once the space was turned."""
        return self.footprint()

    def state_views(self) -> State:
        return {"dims": self.dims, "scale_input": self.scale_input}

    def check_state(self, state: State) -> None:
        number_of(state, "scale_input", "map")
        if number_of(state, "dims", "map") != self.dims:
            raise UserError(
                f"memory.embedding.dims={self.dims}: the saved map has {state['dims']}; give the "
                "same"
            )

    def take_over(self, state: State) -> None:
        self.scale_input = float(state["scale_input"])


@part("memory/map/embedding", "identity")
class Identity(Embedding):
    """The observation, flattened and scaled.

    Args:
        observation_shape: shape of one observation.
        scale_input: factor that brings an observation to [0, 1]: 1/255 for pixels, else 1.
    """

    is_observation: ClassVar[bool] = True

    @classmethod
    def suits(cls, spec: Any) -> bool:
        """Whether `auto` takes it for such observations: vectors."""
        return not RandomProjection.suits(spec)

    @classmethod
    def build(cls, settings: Any, needs: Needs) -> "Identity":
        """Make the embedding for a run."""
        return cls(needs.spec.observation_shape, needs.spec.input_scale)

    def __init__(self, observation_shape: tuple[int, ...], scale_input: float = 1.0) -> None:
        self.dims = int(math.prod(observation_shape))
        self.scale_input = float(scale_input)

    def embed(self, x: np.ndarray) -> np.ndarray:
        """Observations [n, *observation_shape] as float32 [n, dims], a copy."""
        return x.reshape(len(x), self.dims) * np.float32(self.scale_input)


@part("memory/map/embedding", "random_projection")
class RandomProjection(Embedding):
    """A seeded projection of each frame to its part of the dimensions.

    Entries are +-sqrt(stack / dims), either with probability 1/2 (Achlioptas 2003,
    doi:10.1016/S0022-0000(03)00025-4).

    Args:
        observation_shape: shape of one observation, `stack` frames along the first axis.
        dims: dimensions of the embedding, a multiple of `stack`.
        seed: of the signs; they are not saved, but made again from it.
        scale_input: factor that brings an observation to [0, 1]: 1/255 for pixels, else 1.
        stack: frames of an observation.

    Raises:
        UserError: `dims` is no positive multiple of `stack`.
    """

    @classmethod
    def suits(cls, spec: Any) -> bool:
        """Whether `auto` takes it for such observations: pixels."""
        return len(spec.observation_shape) == 3

    @classmethod
    def build(cls, settings: Any, needs: Needs) -> "RandomProjection":
        """Make the embedding for a run: `settings.dims`, its signs from the memory's seed."""
        spec = needs.spec
        stack = spec.stack if len(spec.observation_shape) == 3 else 1
        return cls(spec.observation_shape, settings.dims, needs.seed, spec.input_scale, stack)

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        dims: int = 128,
        seed: int = 0,
        scale_input: float = 1.0,
        stack: int = 1,
    ) -> None:
        if dims < 1 or dims % stack:
            raise UserError(
                f"memory.embedding.dims={dims}: give a multiple of the {stack} frames of an "
                "observation, 128 is usual"
            )
        self.dims, self.stack = dims, stack
        self.seed = seed
        self.scale_input = float(scale_input)
        self._inputs = math.prod(observation_shape) // stack
        self._signs = self._make_signs()
        self._rotation: torch.Tensor | None = None

    def _make_signs(self) -> torch.Tensor:
        shape = self.stack, self._inputs, self.dims // self.stack
        signs = np.random.default_rng(self.seed).integers(0, 2, shape, np.int8)
        return torch.from_numpy(signs * np.int8(2) - np.int8(1))

    def embed(self, x: np.ndarray) -> np.ndarray:
        """Observations [n, *observation_shape] as float32 [n, dims]."""
        frames = torch.from_numpy(x.reshape(len(x), self.stack, self._inputs)).to(torch.float32)
        parts = torch.bmm(frames.transpose(0, 1), self._signs.to(torch.float32))
        rows = parts.transpose(0, 1).reshape(len(x), self.dims)
        rows *= self.scale_input * math.sqrt(self.stack / self.dims)
        return (rows if self._rotation is None else rows @ self._rotation).numpy()

    def rotate(self, embedded: np.ndarray) -> None:
        """Turn the space to the principal axes of embedded observations [n, dims]."""
        rows = embedded.astype(np.float64)
        axes = np.linalg.eigh(np.atleast_2d(np.cov(rows.T)))[1][:, ::-1].astype(np.float32)
        self._rotation = torch.from_numpy(np.ascontiguousarray(axes))

    def footprint(self) -> int:
        rotation = 0 if self._rotation is None else self._rotation.numel()
        return self._signs.numel() + 4 * rotation

    def projected_footprint(self) -> int:
        return self._signs.numel() + 4 * self.dims**2

    def state_views(self) -> State:
        """The rotation, and the seed and the constants that make the signs."""
        state = {**super().state_views(), "seed": self.seed, "stack": self.stack}
        if self._rotation is not None:
            state["rotation"] = self._rotation.numpy()
        return state

    def check_state(self, state: State) -> None:
        super().check_state(state)
        number_of(state, "seed", "map")
        if number_of(state, "stack", "map") != self.stack:
            raise UserError(f"env.stack={self.stack}: the saved map has {state['stack']}")
        if "rotation" in state:
            array_of(state, "rotation", np.float32, (self.dims, self.dims), "map")

    def take_over(self, state: State) -> None:
        # The signs are made again where the seed is another.
        wanted = int(state["seed"]), float(state["scale_input"])
        if wanted != (self.seed, self.scale_input):
            self.seed, self.scale_input = wanted
            self._signs = self._make_signs()
        rotation = state.get("rotation")
        self._rotation = None if rotation is None else torch.from_numpy(np.array(rotation))
