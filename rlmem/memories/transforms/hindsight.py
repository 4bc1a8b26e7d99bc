"""Hindsight experience replay (Andrychowicz et al. 2017, arXiv 1707.01495).

Whatever goal an episode missed, it reached others: a transition is replayed as if one of these had
been its goal. The paper stores each transition 1 + k times; here it is held once, with the goal it
achieved, and the goal is replaced when a batch is drawn: one hindsight goal is as likely as among
stored copies, and it is drawn anew each time.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch
from rlmem.memories.base.blocks import Block
from rlmem.memories.base.build import Needs
from rlmem.memories.base.lazy import lazy_zeros
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import array_of, count_of
from rlmem.memories.base.storage import ReplayStorage
from rlmem.memories.replay import Replay, ReplaySettings
from rlmem.memories.ring.ring import RingStorage
from rlmem.memories.samplers.base import as_index
from rlmem.memories.transforms import hindsight_kernels as kernels
from rlmem.memories.transforms.base import ReplayTransform
from rlmem.registry import part
from rlmem.settings import setting

STRATEGIES = ("future", "final", "episode", "random")
Rule = Callable[[np.ndarray, np.ndarray], np.ndarray]


class HindsightTransform(ReplayTransform):
    """Gives transitions of each batch a goal that was achieved.

    Each transition is taken with probability k / (k + 1). Its new goal is what was achieved by a
    transition of its episode: itself or one behind it (`future`), the last (`final`), any
    (`episode`), or by any transition that is held (`random`). The last goal_size numbers of
    `observation` and `next_observation` become the goal, `reward` and `terminated` what the
    rules give, and a transition at which the data of its episode end is `truncated` unless it is
    `terminated`. Where an episode was terminated although its own goal does not say so, it stays
    terminated under every goal. `index` stays, so a prioritized sampler gives a transition the
    priority of its newest TD error, under whichever goal.

    Blocks bring `("next", "achieved_goal")`, [N, goal_size], the goal achieved after the action.

    Args:
        capacity: slots of the storage.
        goal_size: G; the last G numbers of an observation are the desired goal.
        reward: rewards float32 [N] of achieved and desired goals, float32 [N, G].
        terminated: whether an episode ends there, bool [N], of the same.
        strategy: future, final, episode or random.
        k: hindsight goals for each original one, at least 1.

    Raises:
        ValueError: an argument out of its range.

    Examples:
        >>> import numpy as np
        >>> from rlmem.memories import (
        ...     FrameStorage, HindsightTransform, ReplayMemory, RingWriter, UniformSampler)
        >>> near = lambda achieved, desired: np.abs(achieved - desired).max(1) < 0.05
        >>> hindsight = HindsightTransform(100, 2, lambda a, d: near(a, d) - 1.0, near)
        >>> storage = FrameStorage(100, frame_shape=(6,), dtype=np.float32)
        >>> memory = ReplayMemory(
        ...     storage, UniformSampler(), RingWriter(), seed=0, transforms=[hindsight])
        >>> places = np.random.rand(11, 6).astype(np.float32)  # the first two: where it is
        >>> places[:, 4:] = 2.0  # the goal, out of reach
        >>> never = np.zeros((10, 1), bool)
        >>> _ = memory.extend({"observation": places[:-1], "action": np.zeros(10, np.int64),
        ...     "next": {"observation": places[1:], "achieved_goal": places[1:, :2],
        ...              "reward": -np.ones((10, 1), np.float32), "terminated": never,
        ...              "truncated": never}})
        >>> batch = memory.sample(64)
        >>> bool((batch["next", "reward"] == 0).any()), storage.footprint()["rewards"]
        (True, 40)
    """

    name = "hindsight"

    def __init__(
        self,
        capacity: int,
        goal_size: int,
        reward: Rule,
        terminated: Rule,
        *,
        strategy: str = "future",
        k: int = 4,
    ) -> None:
        if strategy not in STRATEGIES or k < 1 or goal_size < 1:
            raise ValueError(
                f"strategy={strategy}, k={k}, goal_size={goal_size}: a strategy is one of "
                f"{', '.join(STRATEGIES)}, the others are at least 1"
            )
        self.capacity, self.goal_size = capacity, goal_size
        self.reward, self.terminated = reward, terminated
        self.strategy, self.k = strategy, k
        self._achieved = lazy_zeros((capacity, goal_size), np.float32)
        self._back = lazy_zeros((capacity if strategy == "episode" else 0,), np.int32)
        self._newest = np.empty(0, np.int64)  # slot of each environment's newest transition

    def register_storage(self, storage: ReplayStorage) -> None:
        """See `ReplayTransform`.

        Raises:
            ValueError: it is no ring of single steps and vectors, of another capacity, or filled.
        """
        if not isinstance(storage, RingStorage):
            raise ValueError(f"memory=her needs a ring, not a {type(storage).__name__}")
        if storage.n_step != 1 or storage.stack != 1:
            raise ValueError(
                f"n_step={storage.n_step}, stack={storage.stack}: hindsight is of one step and one "
                "frame"
            )
        shape = storage.frame_shape
        if len(shape) != 1 or shape[0] < self.goal_size or storage.dtype != np.float32:
            raise ValueError(
                f"observations are {storage.dtype} {shape}: hindsight needs float32 vectors that "
                f"end in a goal of {self.goal_size}"
            )
        if storage.max_size != self.capacity:
            raise ValueError(f"capacity={self.capacity}: the storage has {storage.max_size} slots")
        if len(storage):
            raise ValueError(
                f"the storage holds {len(storage)} transitions, of whose goals nobody knows: begin "
                "with an empty one, or load a memory"
            )
        self.storage: RingStorage = storage

    def check(self, block: Any) -> None:
        """See `ReplayTransform`.

        Raises:
            ValueError: the block does not say which goals were achieved, one a transition.
        """
        achieved = _achieved_goals(block)
        if achieved is None:
            raise ValueError("a block without (next, achieved_goal): hindsight needs it")
        own = isinstance(block, Block)
        n = len(block) if own else len(self.storage.read_block(block))
        shape = np.shape(achieved)
        if math.prod(shape) != n * self.goal_size:
            raise ValueError(
                f"(next, achieved_goal) of shape {shape} was given with {n} transitions: hindsight "
                f"needs {(n, self.goal_size)}"
            )

    def extend(self, block: Any, index: torch.Tensor) -> None:
        """Keep the goals that a block achieved."""
        slots = as_index(index)
        achieved = _achieved_goals(block)
        assert achieved is not None, "`check` lets no block pass without"
        self._achieved[slots] = achieved.reshape(len(slots), self.goal_size)
        if len(self._back):
            self._back[slots] = 0
            self._link_back(np.concatenate((self._newest, slots)))
            self._newest = self._newest_slots()

    def _newest_slots(self) -> np.ndarray:
        chains = self.storage.arrays.chains
        return chains["slot"][chains["chunks"] > 0]

    def _link_back(self, slots: np.ndarray) -> None:
        """Tell the successors of slots where they come from."""
        link = self.storage.arrays.links(slots)
        slots, link = slots[link > 0], link[link > 0]
        self._back[(slots + link) % int(self.storage.arrays.head["size"])] = link

    def apply(self, batch: Batch) -> Batch:
        """Replace goals in a batch [U, B], in place.

        Raises:
            ValueError: it is of runs of transitions, [U, B, T].
            UserError: a rule does not give one value a pair of goals.
        """
        if batch["index"].ndim > 2:
            raise ValueError("hindsight gives each transition a goal of its own: draw no sequences")
        index = as_index(batch["index"].reshape(-1))
        chance, draw = torch.rand(
            (2, len(index)), generator=self._rng, dtype=torch.float64, device="cpu"
        ).numpy()
        taken = np.flatnonzero(chance < self.k / (self.k + 1))
        if len(taken):
            goal = self._achieved[self._choose(index[taken], draw[taken])]
            self._relabel(batch, taken, self._achieved[index[taken]], goal)
        return batch

    def _choose(self, index: np.ndarray, draw: np.ndarray) -> np.ndarray:
        """Slots of which the transitions `index` take the goals, int64 [n]."""
        storage, arrays = self.storage, self.storage.arrays
        if self.strategy == "random":
            number = (draw * len(storage)).astype(np.int64)
            return storage.locate(torch.from_numpy(number)).numpy()
        if self.strategy == "final":
            return kernels.last_of_episode(index, arrays.memory)
        return kernels.pick_of_episode(index, draw, arrays.memory, self._back)

    def _relabel(
        self, batch: Batch, taken: np.ndarray, achieved: np.ndarray, goal: np.ndarray
    ) -> None:
        """Make `goal` [n, G] that of the rows `taken` [n], which achieved `achieved` [n, G]."""
        size = self.goal_size
        frames, after = (
            batch[key].view(-1, *self.storage.frame_shape).numpy()
            for key in ("observation", "next_observation")
        )
        columns = ("reward", "terminated", "truncated")
        reward, terminated, truncated = (batch[name].view(-1).numpy() for name in columns)
        ended = terminated[taken]
        was_done = ended | truncated[taken]
        ends = self._ruled("terminated", achieved, goal)
        rewards = self._ruled("reward", achieved, goal)
        rows = np.flatnonzero(ended)
        if len(rows):  # not by its goal: then by what no goal changes
            own = self._ruled("terminated", achieved[rows], after[taken[rows], -size:])
            ends[rows] |= ~own
        frames[taken, -size:] = after[taken, -size:] = goal
        reward[taken] = rewards
        terminated[taken], truncated[taken] = ends, was_done & ~ends

    def _ruled(self, name: str, achieved: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """What a rule says of n pairs of goals [n, G]: [n], of its own.

        Raises:
            UserError: it says something else, of other rows.
        """
        found = np.asarray(getattr(self, name)(achieved, goal))
        kinds, wanted = ("b", "bool") if name == "terminated" else ("biuf", "float32")
        if found.shape != (len(goal),) or found.dtype.kind not in kinds:
            raise UserError(
                f"HindsightTransform: {name} gave {found.dtype} of shape {found.shape} for "
                f"{len(goal)} pairs of goals; it gives {wanted} of shape ({len(goal)},)"
            )
        return found.copy()

    def _used(self) -> int:
        return int(self.storage.arrays.head["size"])

    def bytes_a_slot(self) -> int:
        return self._achieved[:1].nbytes + self._back[:1].nbytes

    def footprint(self) -> dict[str, int]:
        return self._bytes(self._used())

    def projected_footprint(self) -> dict[str, int]:
        return self._bytes(self.capacity)

    def _bytes(self, slots: int) -> dict[str, int]:
        return {"achieved_goals": slots * self.bytes_a_slot()}

    def state_views(self) -> State:
        return {"achieved": self._achieved[: self._used()]}

    def check_state(self, state: State) -> None:
        array_of(state, "achieved", np.float32, (-1, self.goal_size))

    def check_beside(self, state: State, storage: State) -> None:
        self._check_slots(state, count_of(storage, "size"))

    def _check_slots(self, state: State, slots: int) -> None:
        if len(state["achieved"]) != slots:
            goals = len(state["achieved"])
            raise ValueError(f"the saved memory holds {goals} goals, its storage {slots} slots")

    def take_over(self, state: State) -> None:
        """Take over a state; the storage's has been taken over before.

        Raises:
            ValueError: it is of another ring.
        """
        self._check_slots(state, self._used())
        achieved = state["achieved"]
        self._achieved[: len(achieved)] = achieved
        if len(self._back):
            self._back[: len(achieved)] = 0
            self._link_back(
                self.storage.locate(torch.arange(len(self.storage), device="cpu")).numpy()
            )
            self._newest = self._newest_slots()

    def check_valid(self) -> None:
        """Assert that links back are the storage's links."""
        if len(self._back) == 0:
            return
        slots = self.storage.locate(torch.arange(len(self.storage), device="cpu")).numpy()
        link = self.storage.arrays.links(slots)
        following = (slots[link > 0] + link[link > 0]) % max(1, self._used())
        assert np.array_equal(self._back[following], link[link > 0]), "a link back is wrong"
        first = np.setdiff1d(slots, following)
        age = (int(self.storage.arrays.head["cursor"]) - 1 - first) % max(1, self._used())
        gone = self._back[first]
        assert ((gone == 0) | (age + gone >= len(self.storage))).all(), "a link to another episode"


def _achieved_goals(block: Any) -> np.ndarray | None:
    """What each transition of a block achieved, float32; None where it does not say.

    Raises:
        ValueError: these are no numbers.
    """
    given = block.columns if isinstance(block, Block) else block["next"]
    achieved = given.get("achieved_goal", None)
    if isinstance(achieved, torch.Tensor):
        achieved = achieved.detach().cpu()
    return None if achieved is None else np.asarray(achieved, np.float32)


@dataclass(kw_only=True)
class HerSettings(ReplaySettings):
    """Hindsight experience replay (Andrychowicz et al. 2017)."""

    strategy: str = setting(choices=STRATEGIES)
    k: int = setting(at_least=1, at_most=1000)


@part("memory", "her", settings=HerSettings)
class HindsightReplay(Replay):
    """A ring whose batches have goals that were achieved."""

    colours: ClassVar = {"her": 5}  # in figures
    rewards_as_given = True  # none are clipped

    @classmethod
    def check(cls, settings: HerSettings, run: Any) -> None:
        """What can be said without the environment's spaces.

        Raises:
            UserError: rewards cannot be made anew.
        """
        super().check(settings, run)
        memory, env = f"memory={settings.name}", run.env
        sampler = settings.sampler.part
        if sampler.cls.draws_runs:
            raise UserError(
                f"memory/sampler={sampler.name}: {memory} gives each transition a goal of its own, "
                "and those of a run would not be of one goal; use memory/sampler=uniform"
            )
        if not getattr(env.part.cls, "goals", False):
            raise UserError(
                f"{memory}: env={env.name} has no goals; use an env such as env=bit_flip"
            )
        if run.agent.n_step > 1:
            raise UserError(
                f"agent.n_step={run.agent.n_step}: {memory} makes rewards of one step anew; use "
                "agent.n_step=1"
            )
        if env.reward_clip:
            raise UserError(
                f"env.reward_clip=true: {memory} makes rewards anew, as the env gives them; use "
                "env.reward_clip=false"
            )
        if env.terminal_reward is not None:
            raise UserError(
                f"env.terminal_reward={env.terminal_reward}: {memory} makes rewards anew, as the "
                "env gives them; leave the key out"
            )

    @classmethod
    def transforms(
        cls, settings: HerSettings, needs: Needs, storage: RingStorage
    ) -> Sequence[ReplayTransform]:
        """Hindsight goals.

        Raises:
            UserError: the environment has no goals, or does not say what any is worth.
        """
        goal, memory = needs.spec.goal, f"memory={settings.name}"
        env_id = getattr(needs.spec, "env_id", "the environment")
        if goal is None:
            raise UserError(f"{memory}: {env_id} has no goals; use an env such as env=bit_flip")
        if goal.rules is None:
            raise UserError(
                f"{memory}: {env_id} does not say what another goal is worth: "
                f"compute_reward(achieved_goal, desired_goal, {{}}) fails ({goal.lacks}); use "
                "another memory, or an env such as env=bit_flip"
            )
        return (
            HindsightTransform(
                storage.max_size,
                goal.size,
                goal.rules.reward,
                goal.rules.terminated,
                strategy=settings.strategy,
                k=settings.k,
            ),
        )
