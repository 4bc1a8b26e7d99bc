"""The space in which a map measures distances: the observation, or a random projection of it.

A random projection keeps Euclidean distances in expectation (Johnson & Lindenstrauss 1984), so a
128-dimensional search stands in for one over the 28,224 dimensions of an Atari stack. It costs
4 * dims bytes a dimension of the observation, once. Both embeddings are linear: the embedding of a
moving average is the moving average of the embeddings.
"""

import math
from typing import Protocol

import numpy as np
import torch

from rlmem.errors import UserError
from rlmem.memories.serialize import State


class Embedding(Protocol):
    """What `GWRWriter` asks of an embedding."""

    dims: int

    def embed(self, x: np.ndarray) -> np.ndarray:
        """Observations [n, *observation_shape] as float32 [n, dims]."""
        ...

    def footprint(self) -> int:
        """Bytes held."""
        ...

    def state_dict(self) -> State:
        """What makes the same embedding again."""
        ...

    def load_state_dict(self, state_dict: State) -> None:
        """Become the embedding of a state."""
        ...


class Identity:
    """The observation, flattened and scaled.

    Args:
        observation_shape: shape of one observation.
        scale_input: factor that brings an observation to [0, 1]: 1/255 for pixels, else 1.
    """

    def __init__(self, observation_shape: tuple[int, ...], scale_input: float = 1.0) -> None:
        self.dims = math.prod(observation_shape)
        self.scale_input = float(scale_input)

    def embed(self, x: np.ndarray) -> np.ndarray:
        """Observations [n, *observation_shape] as float32 [n, dims], a copy."""
        return x.reshape(len(x), self.dims) * np.float32(self.scale_input)

    def footprint(self) -> int:
        """Bytes held."""
        return 0

    def state_dict(self) -> State:
        """The embedding's constants."""
        return {"dims": self.dims, "scale_input": self.scale_input}

    def load_state_dict(self, state_dict: State) -> None:
        """Take over the scale.

        Raises:
            UserError: the state is of another number of dimensions.
        """
        _check_dims(self.dims, state_dict)
        self.scale_input = float(state_dict["scale_input"])


class RandomProjection:
    """A seeded Gaussian projection, entries ~ N(0, 1 / dims).

    Args:
        observation_shape: shape of one observation.
        dims: dimensions of the embedding.
        seed: of the matrix; the matrix is not saved, but made again from it.
        scale_input: factor that brings an observation to [0, 1]: 1/255 for pixels, else 1.

    Raises:
        UserError: `dims` is below 1.
    """

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        dims: int = 128,
        seed: int = 0,
        scale_input: float = 1.0,
    ) -> None:
        if dims < 1:
            raise UserError(f"memory.embedding.dims={dims}: give at least 1, 128 is usual")
        self.dims = dims
        self.seed = seed
        self.scale_input = float(scale_input)
        self._inputs = math.prod(observation_shape)
        self._matrix = self._make_matrix()

    def _make_matrix(self) -> torch.Tensor:
        rng = np.random.default_rng(self.seed)
        matrix = rng.standard_normal((self._inputs, self.dims), dtype=np.float32)
        matrix *= self.scale_input / math.sqrt(self.dims)
        return torch.from_numpy(matrix)

    def embed(self, x: np.ndarray) -> np.ndarray:
        """Observations [n, *observation_shape] as float32 [n, dims]: one matrix product."""
        rows = torch.from_numpy(x.reshape(len(x), self._inputs))
        return torch.mm(rows.to(torch.float32), self._matrix).numpy()

    def footprint(self) -> int:
        """Bytes of the matrix."""
        return self._matrix.numel() * 4

    def state_dict(self) -> State:
        """The seed and the constants that make the matrix."""
        return {"dims": self.dims, "scale_input": self.scale_input, "seed": self.seed}

    def load_state_dict(self, state_dict: State) -> None:
        """Make the matrix of a state's seed.

        Raises:
            UserError: the state is of another number of dimensions.
        """
        _check_dims(self.dims, state_dict)
        wanted = int(state_dict["seed"]), float(state_dict["scale_input"])
        if wanted != (self.seed, self.scale_input):
            self.seed, self.scale_input = wanted
            self._matrix = self._make_matrix()


def _check_dims(dims: int, state: State) -> None:
    if int(state["dims"]) != dims:
        raise UserError(
            f"memory.embedding.dims={dims}: the saved map has {state['dims']}; give the same"
        )
