"""GWR-R: insert each observation as a node of a map or merge it into the nearest one.

Grow-when-required network (Marsland, Shapiro, Nehmzow 2002) with gamma contexts, as a replay
memory (Hafez, Immisch, Weber, Wermter 2023, arXiv 2305.02054). For an observation x with
best-matching unit b and second-best s: the link (b, s) gets age 0; the activity is
a = exp(-D(x, b) / scale), with D = alpha_0 ||x - w|| + sum_k alpha_k ||C_k - c_k|| and
alpha_k = exp(-k) / sum_j exp(-j). If a < activation_threshold and h_b <= habituation_threshold, a
node at x with h = 1 comes between b and s; else b moves by eps_b h_b and its neighbours by
eps_n h_n, and they habituate by h += tau kappa (1 - h) - tau. Links at b age by 1; those past
max_age go, and nodes left without any. A temporal edge joins the node of each observation to the
next one's, never across an episode's end.

An observation is embedded once and compared with the nodes that a bound does not rule out
(docs/gwr.md). What differs from the paper:
- Links really age and nodes are pruned (in the released code ages never pass 0).
- Terminations are kept per edge, and no edge joins two episodes.
- The distance may be scaled and measured in a projected space; without that the thresholds mean
  nothing on pixels.
- The contexts go on from the node that the observation became: b, or the inserted one.
- A uint8 prototype is rounded at random so that its expectation is the exact moving average.
- A full map inserts no more: each observation is merged into its best-matching unit, or, where it
  evicts, the node that has gone longest without a visit goes first. With a budget in bytes, links
  and edges that are new get no room either once it is used up.
`links=False`, `episodes="joined"` and the map's `node_terminals` give what the released code does:
its links have next to no effect, as their age of 0 reads as "no link"; a time limit joins an
episode's last observation to the next one's first, by an edge of action 0 and reward 0; contexts go
on over resets; and a node is terminal while each of its visits was.
"""

import math
from typing import Any

import numpy as np
import torch
from torchrl.data.replay_buffers.storages import Storage

from rlmem.errors import UserError
from rlmem.memories.base.blocks import Block, as_block
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import array_of, below, check_actions, entry, number_of
from rlmem.memories.base.writer import ReplayWriter
from rlmem.memories.gwr.embedding import Embedding
from rlmem.memories.gwr.map import MapStorage
from rlmem.memories.gwr.records import CHUNK, columns, empty_search
from rlmem.memories.gwr.rule import RuleSettings, checked, make_rule
from rlmem.memories.gwr.scale import WarmUp, median_distance
from rlmem.memories.gwr.step import walk
from rlmem.memories.gwr.streams import (
    Arrivals,
    Episodes,
    check_block,
    check_streams,
    empty_streams,
)

_EMBEDDING = "embedding."  # before the names of the embedding's state


class GWRWriter(ReplayWriter):
    """Writes blocks of transitions into a `MapStorage` by GWR-R.

    Args:
        activation_threshold: a_T in (0, 1]; higher makes more nodes.
        habituation_threshold: h_T in (0, 1]; 1 is "activity test only".
        embedding: the space in which distances are measured.
        num_envs: environments that write; `env_id` is 0 .. num_envs - 1.
        n_step: an edge leads this many steps on, with the discounted sum of the rewards; fewer at
            an episode's end, told or not. A row gets the index -1 until its edge is made.
        gamma: discount of the n-step sum.
        rule: the other constants, where they are not the paper's.
        seed: of the rounding of prototypes and of the pairs behind the scale.

    Raises:
        UserError: a value is out of its range.

    Examples:
        >>> import numpy as np
        >>> from torchrl.data import ReplayBuffer
        >>> from rlmem.memories import GWRWriter, Identity, MapStorage, VisitSampler
        >>> storage = MapStorage(100, (4,), np.float32, embedding_dims=4, num_actions=2)
        >>> writer = GWRWriter(0.9, 0.8, embedding=Identity((4,)))
        >>> buffer = ReplayBuffer(storage=storage, sampler=VisitSampler(), writer=writer,
        ...     collate_fn=lambda sample: sample, batch_size=8)
        >>> states = np.random.default_rng(0).normal(size=(51, 4)).astype(np.float32)
        >>> never = np.zeros((50, 1), bool)
        >>> index = buffer.extend({"observation": states[:-1], "action": np.zeros(50, np.int64),
        ...     "next": {"observation": states[1:], "reward": np.ones((50, 1), np.float32),
        ...              "terminated": never, "truncated": never}})
        >>> buffer.sample()["next", "observation"].shape
        torch.Size([8, 4])
    """

    _storage: Any  # a MapStorage once it is registered

    def __init__(
        self,
        activation_threshold: float,
        habituation_threshold: float,
        *,
        embedding: Embedding,
        num_envs: int = 1,
        n_step: int = 1,
        gamma: float = 0.99,
        rule: RuleSettings | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        given = {"n_step": n_step, "gamma": gamma, "activation_threshold": activation_threshold}
        given["habituation_threshold"] = habituation_threshold
        self.rule = checked(rule or RuleSettings(), num_envs=num_envs, **given)
        self.embedding, self.num_envs, self.seed = embedding, num_envs, seed
        self.scale: float | None = None
        self._constants = make_rule(self.rule, seed, **given)

    def register_storage(self, storage: Storage) -> None:
        """Take the storage to write to; its `contexts` is the number K of contexts.

        Raises:
            UserError: the storage is no `MapStorage`, or its shapes do not fit.
        """
        if not isinstance(storage, MapStorage):
            raise UserError(f"memory.storage={type(storage).__name__}: GWR writes a MapStorage")
        if self.embedding.dims != storage.embedding_dims:
            raise UserError(
                f"the embedding has {self.embedding.dims} dims, the map {storage.embedding_dims}"
            )
        by_node = len(storage.arrays.terminal) > 0
        if (self._constants.joined or by_node) and self._constants.n_step > 1:
            raise UserError(
                f"agent.n_step={self._constants.n_step}: with memory.episodes=joined or "
                "memory.terminals=node edges span one step; use agent.n_step=1"
            )
        super().register_storage(storage)
        # With contexts the sweep is for one observation at a time and its lists are not read.
        self._search = empty_search(1, 1) if storage.contexts else empty_search()
        alphas = np.exp(-np.arange(storage.contexts + 1.0))
        self._constants = self._constants._replace(
            alphas=alphas / alphas.sum(),
            moving=storage.prototype == "moving",
            node_terminals=by_node,
            evict=len(storage.arrays.stamps) > 0,
        )
        size, dims = math.prod(storage.observation_shape), storage.arrays.actions.shape[1]
        joined = self._constants.joined
        self._episodes = Episodes(self.num_envs, size, storage.dtype, dims, joined)
        self._streams = empty_streams(storage, self.num_envs, self._constants.n_step)
        if self.rule.metric.scale != "auto":
            self.scale = float(self.rule.metric.scale)
        elif len(storage.observation_shape) == 1:
            self.scale = 1.0
        self._warm = self._warm_up_of(self.scale)

    def _warm_up_of(self, scale: float | None) -> WarmUp:
        storage, size = self._storage, self.rule.metric.scale_samples if scale is None else 0
        frame = math.prod(storage.frame_shape)
        return WarmUp(size, frame, storage.dtype, storage.arrays.actions.shape[1])

    def extend(self, data: Any) -> torch.Tensor:
        """Present a block of transitions; one temporal edge a row.

        Args:
            data: a block (see `rlmem.memories.base.blocks`) of single frames.

        Returns:
            int64 [N], the edge of each row; -1 where there is none (yet): the scale or later steps
            are still waited for, a node of the edge was pruned, or the budget has no room for it.

        Raises:
            ValueError: a shape, dtype, action or env_id does not fit.
            UserError: most of the first observations are equal, so that they have no scale; the
                block was not taken.
        """
        block = self._read(data)
        waits = self.scale is None  # then no frame was pushed yet
        newest = self._warm.newest(self.num_envs) if waits else self._episodes.newest
        before = self._warm.count, self._episodes.fresh.copy()
        shown = self._episodes.plan(block, newest)
        index = np.full(len(block), -1, np.int64)
        if waits:
            try:
                shown = self._warm_up(shown)
            except UserError:
                if self.scale is None:
                    self._warm.count, self._episodes.fresh[:] = before
                raise
        self._write_count += len(block)
        if len(shown.events):
            self._process(shown, index)
            index[~self._storage.contains(index)] = -1
        return torch.from_numpy(index)

    def _read(self, data: Any) -> Block:
        storage = self._storage
        dtype = np.dtype(np.float32 if storage.action_shape else np.int64)
        block = as_block(
            data, storage.frame_shape, storage.dtype, self.num_envs, storage.action_shape, dtype
        )
        check_block(block, storage.num_actions)
        return block

    def _process(self, shown: Arrivals, index: np.ndarray) -> None:
        storage, streams, search = self._storage, self._streams, self._search
        rule = self._constants._replace(scale=self.scale)
        start = 0
        while start < len(shown.events):
            size = min(CHUNK, len(shown.events) - start)
            links, edges = 2 * size, size + int(streams.waiting.sum())
            storage.reserve(links, edges)
            storage.limit_growth(size, links, edges)
            if rule.evict:
                # Room for new nodes is known before a chunk alone. More observations than that
                # would evict a node each and insert none; without any room one makes some.
                size = max(1, min(size, int(storage.arrays.limits[3])))
            chunk = shown.part(slice(start, start + size))
            start += size
            stacks = self._episodes.push(chunk)
            seen = stacks, self._embed(stacks)
            arrays = storage.arrays
            walk(arrays, streams, rule, search, chunk.events, chunk.actions, seen, index)
            storage.keep_exemplars(search.born[:size], stacks)
        streams.pending["row"] = -1  # rows of later blocks have other numbers

    def _embed(self, stacks: np.ndarray) -> np.ndarray:
        return self.embedding.embed(stacks.reshape(-1, *self._storage.observation_shape))

    def _warm_up(self, shown: Arrivals) -> Arrivals:
        """Keep observations until the scale can be measured; those that were not taken up."""
        warm = self._warm
        left = warm.take(shown)
        if warm.count == warm.size:
            size = math.prod(self._storage.observation_shape)
            stacks = np.zeros((self.num_envs, size), self._storage.dtype)
            rows = warm.embed(stacks, self._embed)
            self.scale = median_distance(rows, self.seed)
            self.embedding.rotate(rows)
            self._warm = self._warm_up_of(self.scale)
            self._process(warm.kept, np.empty(0, "i8"))
        return left

    def _empty(self, empty_write_count: bool = True) -> None:
        # A measured scale belongs to the environment, not to the entries: it stays.
        self._write_count = 0
        self._episodes.clear()
        empty = empty_streams(self._storage, self.num_envs, self._constants.n_step)
        self._streams = empty._replace(moves=self._streams.moves)
        self._warm.count = 0

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held; observations kept until the scale is known are in env_state."""
        env_state = self._env_bytes() + self._warm.nbytes
        return {"projection": self.embedding.footprint(), "env_state": env_state}

    def projected_footprint(self) -> dict[str, int]:
        """Component -> bytes held once the scale is known."""
        embedding = self.embedding
        known = self.scale is not None
        projection = embedding.footprint() if known else embedding.projected_footprint()
        return {"projection": projection, "env_state": self._env_bytes()}

    @property
    def warmup_footprint(self) -> int:
        """Bytes held at the most until the scale is known."""
        return self.embedding.footprint() + self._env_bytes() + self._warm.longest

    def _env_bytes(self) -> int:
        own = sum(a.nbytes for a in (*self._streams, *self._search))
        return own + self._episodes.nbytes

    def state_views(self) -> State:
        """Scale, episodes under way, observations kept for the scale, and the embedding's seed."""
        embedding = {f"{_EMBEDDING}{k}": v for k, v in self.embedding.state_views().items()}
        arrays = self._arrays()
        return {"scale": self.scale, **arrays, **self._warm.state_views(), **embedding}

    def _arrays(self) -> dict[str, np.ndarray]:
        """What a state holds in arrays that are there for good, as views."""
        streams = self._streams._asdict()
        pending = streams.pop("pending")
        return {
            **{f"streams.{name}": array for name, array in streams.items()},
            **columns("pending", pending),
            **self._episodes.arrays(),
        }

    def check_state(self, state: State) -> None:
        """Refuse a state that was written with another stack, number of envs, contexts or n-step.

        Raises:
            UserError: it does not fit.
        """
        hint = ": give the env.num_envs, contexts and n_step it had"
        for name, own in self._arrays().items():
            array_of(state, name, own.dtype, own.shape, "writer", hint)
        own_streams, capacity = self._streams, self._storage.capacity
        waiting = np.asarray(state["streams.waiting"])
        nodes = [np.asarray(state[name]).ravel() for name in ("streams.last", "pending.node")]
        if not ((waiting >= 0) & (waiting < own_streams.pending.shape[1])).all():
            raise ValueError("the saved writer is damaged: edges are overdue")
        if not all(((part >= -1) & (part < capacity)).all() for part in nodes):
            raise ValueError("the saved writer is damaged: no such nodes")
        check_actions(state["pending.action"], self._storage.num_actions, "writer")
        self.embedding.check_state(below(state, _EMBEDDING))
        self._warm_up_of(_scale_of(state)).check_state(state)

    def take_over(self, state: State) -> None:
        for name, array in self._arrays().items():
            array[:] = state[name]
        self.embedding.take_over(below(state, _EMBEDDING))
        self.scale = _scale_of(state)
        self._warm = self._warm_up_of(self.scale)
        self._warm.take_over(state)

    def check_valid(self) -> None:
        """The streams point at live nodes only, and episodes that ended left nothing behind."""
        if self.scale is None:
            assert self._warm.count < self._warm.size, "the scale is overdue"
            assert self._storage.num_nodes == 0, "a node came before the scale"
        else:
            assert np.isfinite(self.scale), "the scale is not finite"
            assert self.scale > 0.0, "the scale is not above 0"
        assert self._constants.links or self._storage.num_links == 0, "nodes are linked"
        begun = self._episodes.begun & (self.scale is not None)
        check_streams(self._streams, self._storage.live_nodes(), begun)


def _scale_of(state: State) -> float | None:
    scale = entry(state, "scale", "writer")
    return None if scale is None else float(number_of(state, "scale", "writer"))
