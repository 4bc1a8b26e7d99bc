"""What both variants of prioritized experience replay share (Schaul et al. 2016, arXiv 1511.05952).

Both draw stratified (one draw from each of batch_size equal ranges) and return importance weights
(N P(i))^-beta, divided by the largest of the batch; beta rises linearly over the run. A new
transition gets the largest priority so far, so that each is seen early.

They are subclasses of TorchRL's `PrioritizedSampler` so that `TensorDictReplayBuffer` sends them
the TD errors, but share no code with it: its trees live in a C++ extension that has to match
torch's build.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numba import njit
from torchrl.data.replay_buffers.samplers import PrioritizedSampler as TorchRLPrioritizedSampler
from torchrl.data.replay_buffers.storages import Storage

from rlmem.memories.base.build import Needs
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import number_of
from rlmem.memories.samplers.base import (
    ReplaySampler,
    as_index,
    draw_uniform,
    held_slots,
    require_items,
)
from rlmem.settings import Settings, alike, beside, setting

UNIFORM = beside(alpha=0)  # all are drawn alike then, and all weights are 1


@dataclass(kw_only=True)
class ScheduleSettings(Settings):
    """What both variants set."""

    alpha: float = setting(at_least=0, at_most=1)
    beta_start: float = setting(at_least=0, at_most=1, idle=UNIFORM)
    beta_end: float = setting(at_least=0, at_most=1, idle=UNIFORM)
    beta_steps: int = setting(
        at_least=1, free=True, idle=lambda s: UNIFORM(s) or alike("beta_start", "beta_end")(s)
    )


@njit(cache=True)
def _sizes(index: np.ndarray, td_error: np.ndarray) -> tuple[np.ndarray, float]:
    """|TD error| float64, and the largest of those with an index >= 0; inf if one is not finite."""
    sizes, largest = np.empty(len(td_error)), 0.0
    for i in range(len(index)):
        sizes[i] = abs(td_error[i])
        if index[i] >= 0:
            if not sizes[i] < np.inf:
                return sizes, np.inf
            largest = max(largest, sizes[i])
    return sizes, largest


@njit(cache=True)
def _in_strata(u: np.ndarray, batch_size: int) -> np.ndarray:
    """Draws [n] from [0, 1): the i-th of each `batch_size` in a row, moved into the i-th part."""
    for i in range(len(u)):
        u[i] = (i % batch_size + u[i]) / batch_size
    return u


class Prioritized(ReplaySampler, TorchRLPrioritizedSampler):
    """What both variants share: the schedule of beta, the largest priority so far, the weights."""

    @classmethod
    def build(cls, settings: ScheduleSettings, needs: Needs, capacity: int) -> Any:
        """Make the sampler for a run."""
        return cls(capacity, **asdict(settings))  # pyright: ignore[reportArgumentType]

    reduction = "max"
    # In place of TorchRL's property, which reaches into its trees.
    device: torch.device | str | None = None

    def __init__(
        self,
        capacity: int,
        alpha: float,
        beta_start: float,
        beta_end: float,
        beta_steps: int | None,
        eps: float,
    ) -> None:
        if not (isinstance(capacity, int | np.integer) and capacity >= 1):
            raise ValueError(f"capacity={capacity}: give the storage's, 1 or more")
        if not 0 <= eps < math.inf:
            raise ValueError(f"eps={eps}: what is added to each priority is 0 or more")
        if beta_steps is not None and beta_steps < 1:
            raise ValueError(f"beta_steps={beta_steps}: env steps until beta_end, or None")
        # TorchRL's own constructor would build its C++ trees.
        self._storage = None
        self._rng = None
        self.capacity = int(capacity)
        self._alpha, self.eps = _exponent("alpha", alpha), eps
        self.beta_start, self.beta_steps = _exponent("beta_start", beta_start), beta_steps
        self.beta_end = _exponent("beta_end", beta_end)
        self.beta = beta_start
        self._largest = 1.0
        self._told = False  # of any item

    @property
    def alpha(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Exponent of the priorities. What is set (a number or a tensor of one, 0 or more) holds
        for all items at once, at a cost of O(items). With 0, priorities are forgotten: raised
        again, it counts every item as new.

        Raises:
            ValueError: it is negative or not finite, or so large that a weight is not; nothing is
                changed.
        """
        return self._alpha

    @alpha.setter
    def alpha(self, alpha: Any) -> None:
        before, self._alpha = self._alpha, _exponent("alpha", alpha)
        if self._alpha != before:
            try:
                self._reweigh(before)
            except ValueError:  # weights come to more than a number holds
                self._alpha = before
                raise

    @property
    def beta(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Exponent of the importance weights; a number or a tensor of one, 0 or more.

        Raises:
            ValueError: it is negative or not finite.
        """
        return self._beta

    @beta.setter
    def beta(self, beta: Any) -> None:
        self._beta = _exponent("beta", beta)

    @property
    def default_priority(self) -> float:
        """Priority |delta| of a transition that was never sampled: the largest so far."""
        return self._largest

    def anneal(self, env_steps: int) -> None:
        """Move beta to its value at `env_steps`."""
        if self.beta_steps:
            fraction = min(1.0, env_steps / self.beta_steps)
            self.beta = self.beta_start + fraction * (self.beta_end - self.beta_start)

    def check_storage(self, storage: Any) -> None:
        """See `ReplaySampler`.

        Raises:
            ValueError: the storage has more slots than the sampler.
        """
        if storage.max_size > self.capacity:
            raise ValueError(
                f"{type(self).__name__}(capacity={self.capacity}) beside a storage of "
                f"{storage.max_size} slots: give both the same capacity"
            )

    def extend(self, index: Any) -> None:
        """Give written slots the largest priority so far.

        Args:
            index: int64 [n]; -1 is skipped: TorchRL's mark of a row that was not kept.

        Raises:
            IndexError: a slot is out of range; nothing was changed.
        """
        index = as_index(index)
        self._write(index, np.full(len(index), self._largest))

    add = extend

    def update_priority(self, index: Any, priority: Any, *, storage: Storage | None = None) -> None:
        """Set priorities from TD errors.

        Args:
            index: int64 [n]; -1 is skipped: TorchRL's mark of a row that was not kept.
            priority: |TD error| [n] (its sign is dropped), or one for all.

        Raises:
            IndexError: a slot is out of range; nothing was changed.
            ValueError: a priority is not finite, or there are not as many as indices; nothing was
                changed.
        """
        td_error = torch.as_tensor(priority).detach().cpu()
        if td_error.dtype is not torch.float32:
            td_error = td_error.double()
        td_error, index = td_error.numpy().reshape(-1), as_index(index)
        if storage is not None and not self._told and len(held := held_slots(storage)):
            self._take_in(storage)
            # A buffer that TorchRL makes around a filled storage counts what is held.
            if np.array_equal(index, np.arange(len(held))):
                index = held
        if len(td_error) != len(index):
            if len(td_error) != 1:
                raise ValueError(f"{len(index)} indices and {len(td_error)} TD errors were given")
            td_error = np.repeat(td_error, len(index))
        priority, largest = _sizes(index, td_error)
        if largest == np.inf:
            raise ValueError("a TD error is not finite: the network has diverged")
        self._write(index, priority)
        self._largest = max(self._largest, largest)

    def sample(self, storage: Storage, batch_size: int) -> tuple[torch.Tensor, dict]:
        """Indices int64 [batch_size] and `priority_weight` float32 [batch_size].

        Raises:
            RuntimeError: the memory is empty.
            ValueError: the storage has more slots than the sampler.
        """
        index, weight = self._draw(storage, (batch_size,))
        return torch.from_numpy(index), {"priority_weight": torch.from_numpy(weight)}

    def draw(
        self, storage: Any, batch_size: int, num_batches: int
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The minibatches of a round at once; the same draws as one by one."""
        index, weight = self._draw(storage, (num_batches, batch_size))
        return index, {"weight": weight}

    def _draw(self, storage: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Items int64 [..., B] and their weights float32 [..., B]."""
        require_items(storage)
        self.check_storage(storage)
        self.forget_evicted(storage)
        if not self._told:
            self._take_in(storage)
        size = math.prod(shape)
        while self._has_weight():
            index, probability = self._at(_in_strata(self.uniform(size).numpy(), shape[-1]))
            gone = self.evicted_of(storage, index)
            if not len(gone):
                break
            self.remove(gone)  # their priorities came after they had gone; each goes once
        else:
            index = draw_uniform(storage, size, self._rng)
            return index.view(shape).numpy(), np.ones(shape, np.float32)
        probability = probability.reshape(shape)
        # Dividing by the largest weight is dividing by the smallest probability's.
        weight = (probability / probability.min(-1, keepdims=True)) ** -self.beta
        return index.reshape(shape), weight.astype(np.float32)

    def _take_in(self, storage: Any) -> None:
        """Let all that a storage held before have the largest priority: whoever was told of none
        would draw the first minibatch again and again."""
        self.extend(held_slots(storage))

    def _has_weight(self) -> bool:
        """Whether any item has a positive probability."""
        return True

    def _at(self, fractions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Items int64 [n] at fractions float64 [n] of all probability, and how probable each is,
        but for a common factor."""
        raise NotImplementedError

    def _write(self, index: np.ndarray, priority: np.ndarray) -> None:
        self._told = True
        try:
            self._set(index, priority)
        except IndexError as error:
            hint = f"in this {type(self).__name__}; give it the storage's capacity"
            raise IndexError(f"{error} {hint}") from None

    def _set(self, index: np.ndarray, priority: np.ndarray) -> None:
        raise NotImplementedError

    def _reweigh(self, before: float) -> None:
        """Let a new alpha, `before` until now, hold for all items."""
        raise NotImplementedError

    def state_views(self) -> State:
        return {"max_priority": self._largest, "alpha": self.alpha, "beta": self.beta}

    def check_state(self, state: State) -> None:
        if not 0 <= number_of(state, "max_priority") < np.inf:
            raise ValueError("the saved memory is damaged: its largest priority is none")
        _exponent("beta", number_of(state, "beta"))
        if "alpha" in state:  # if not, its weights are of this sampler's alpha
            _exponent("alpha", number_of(state, "alpha"))

    def take_over(self, state: State) -> None:
        self._largest = float(state["max_priority"])
        self._alpha = float(state.get("alpha", self._alpha))  # the state's weights are of it
        self.beta, self._told = state["beta"], True

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_rng": None}  # as TorchRL's samplers: a memory shares its own

    def __repr__(self) -> str:
        return f"{type(self).__name__}(alpha={self.alpha}, beta={self.beta:.3f}, eps={self.eps})"


def _exponent(name: str, value: Any) -> float:
    """A number or a tensor of one as a float.

    Raises:
        ValueError: it is negative or not finite.
    """
    exponent = float(value)
    if not 0.0 <= exponent < np.inf:
        raise ValueError(f"{name}={exponent}: give 0 or more; 1 is usual at most")
    return exponent
