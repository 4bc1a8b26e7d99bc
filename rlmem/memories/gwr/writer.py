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
`links=False`, `joined=True` and the map's `node_terminals` give what the released code does: its
links have next to no effect, as their age of 0 reads as "no link"; a time limit joins an episode's
last observation to the next one's first, by an edge of action 0 and reward 0; contexts go on over
resets; and a node is terminal while each of its visits was.
"""

import math
from typing import Any

import numpy as np
import torch
from torchrl.data.replay_buffers.storages import Storage

from rlmem.errors import UserError
from rlmem.memories.base.serialize import State
from rlmem.memories.base.storage import Block, as_block
from rlmem.memories.base.writer import ReplayWriter
from rlmem.memories.gwr.embedding import Embedding
from rlmem.memories.gwr.map import MapStorage
from rlmem.memories.gwr.records import CHUNK, columns, empty_search
from rlmem.memories.gwr.rule import check_constants, make_rule
from rlmem.memories.gwr.scale import WarmUp, median_distance
from rlmem.memories.gwr.step import walk
from rlmem.memories.gwr.streams import (
    Episodes,
    StreamArrays,
    check_block,
    check_streams,
    empty_streams,
)


class GWRWriter(ReplayWriter):
    """Writes blocks of transitions into a `MapStorage` by GWR-R.

    Args:
        activation_threshold: a_T in (0, 1]; higher makes more nodes.
        habituation_threshold: h_T in (0, 1]; 1 is "activity test only".
        stack: frames an observation is made of.
        num_envs: environments that write; `env_id` is 0 .. num_envs - 1.
        embedding: the space in which distances are measured.
        eps_b, eps_n: learning rates of the best-matching unit and its neighbours.
        tau_b, tau_n, kappa: how fast the two habituate, and how far: to 1 - 1 / kappa.
        max_age: links older than this go [steps of one of their nodes].
        context_beta: how far the contexts look back, in [0, 1].
        phi: share of the newest reward in an edge's reward, in [0, 1].
        metric_scale: distances are divided by it. "auto": for images the median distance of random
            pairs among the first `scale_samples` observations, then frozen; 1 for vectors. Until it
            is known, the observations are kept as they are and their rows get the index -1.
        scale_samples: observations that "auto" looks at.
        n_step: an edge leads this many steps on, with the discounted sum of the rewards; fewer at
            an episode's end. A row gets the index -1 until its edge is made.
        gamma: discount of the n-step sum.
        links: False: nodes are not linked, so that neighbours do not adapt and nothing is pruned.
        joined: True: time limits join two episodes and contexts go on over resets.
        seed: of the rounding of prototypes and of the pairs behind the scale.

    Raises:
        UserError: a value is out of its range.

    Example:
        >>> import numpy as np
        >>> from torchrl.data import ReplayBuffer
        >>> from rlmem.memories import GWRWriter, Identity, MapStorage, VisitSampler
        >>> storage = MapStorage(100, (4,), np.float32, embedding_dims=4, num_actions=2)
        >>> writer = GWRWriter(0.9, 0.8, stack=1, num_envs=1, embedding=Identity((4,)))
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
        stack: int,
        num_envs: int,
        embedding: Embedding,
        eps_b: float = 0.1,
        eps_n: float = 0.001,
        tau_b: float = 0.3,
        tau_n: float = 0.1,
        kappa: float = 1.05,
        max_age: int = 10,
        context_beta: float = 0.7,
        phi: float = 0.7,
        metric_scale: float | str = "auto",
        scale_samples: int = 1000,
        n_step: int = 1,
        gamma: float = 0.99,
        links: bool = True,
        joined: bool = False,
        seed: int = 0,
    ) -> None:
        constants = dict(locals())
        super().__init__()
        check_constants(constants)
        self.embedding = embedding
        self.stack, self.num_envs = stack, num_envs
        self.metric_scale, self.scale_samples, self.seed = metric_scale, scale_samples, seed
        self.scale: float | None = None
        self.joined, self.context_beta = joined, float(context_beta)
        self._rule = make_rule(constants)

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
        leading, *rest = storage.observation_shape
        if leading % self.stack:
            raise UserError(f"env.stack={self.stack} does not divide {storage.observation_shape}")
        by_node = len(storage.arrays.terminal) > 0
        if (self.joined or by_node) and self._rule.n_step > 1:
            raise UserError(
                f"agent.n_step={self._rule.n_step}: with memory.episodes=joined or "
                "memory.terminals=node edges span one step; use agent.n_step=1"
            )
        super().register_storage(storage)
        # With contexts the sweep is for one observation at a time and its lists are not read.
        self._search = empty_search(1, 1) if storage.contexts else empty_search()
        self._frame_shape = (leading // self.stack, *rest)
        alphas = np.exp(-np.arange(storage.contexts + 1.0))
        self._rule = self._rule._replace(
            alphas=alphas / alphas.sum(),
            moving=storage.prototype == "moving",
            node_terminals=by_node,
            evict=len(storage.arrays.stamps) > 0,
        )
        size = math.prod(storage.observation_shape)
        action_dims = storage.arrays.actions.shape[1]
        self._episodes = Episodes(self.num_envs, size, storage.dtype, action_dims, self.joined)
        self._streams = self._empty_streams()
        if self.metric_scale != "auto":
            self.scale = float(self.metric_scale)
        elif len(storage.observation_shape) == 1:
            self.scale = 1.0
        self._make_warmup()

    def _empty_streams(self) -> StreamArrays:
        storage = self._storage
        return empty_streams(
            self.num_envs,
            storage.contexts,
            storage.embedding_dims,
            self._rule.n_step,
            storage.arrays.actions.shape[1],
        )

    def _make_warmup(self) -> None:
        storage, size = self._storage, self.scale_samples if self.scale is None else 0
        frame = math.prod(self._frame_shape)
        self._warm = WarmUp(size, frame, storage.dtype, storage.arrays.actions.shape[1])

    def extend(self, data: Any) -> torch.Tensor:
        """Present a block of transitions; one temporal edge a row.

        Args:
            data: a block (see `rlmem.memories.base.storage`) of single frames.

        Returns:
            int64 [N], the edge of each row; -1 where there is none (yet): the scale or later steps
            are still waited for, a node of the edge was pruned, or the budget has no room for it.

        Raises:
            ValueError: a shape, dtype, action or env_id does not fit.
        """
        block = self._read(data)
        events, vectors = self._episodes.plan(block)
        first, following = (
            np.ascontiguousarray(frames).reshape(len(block), math.prod(self._frame_shape))
            for frames in (block.observation, block.next_observation)
        )
        index = np.full(len(block), -1, np.int64)
        if self.scale is None:
            taken = self._warm_up(events, vectors, first, following)
            events, vectors = events[taken:], vectors[taken:]
        if len(events):
            self._process(events, vectors, first, following, index)
            index[~self._storage.contains(index)] = -1
        return torch.from_numpy(index)

    def add(self, data: Any) -> int:
        """Present one transition, without a batch dimension; returns its edge or -1."""
        return int(self.extend(data)[0])

    def _read(self, data: Any) -> Block:
        storage = self._storage
        dtype = np.dtype(np.float32 if storage.action_shape else np.int64)
        block = as_block(
            data, self._frame_shape, storage.dtype, self.num_envs, storage.action_shape, dtype
        )
        check_block(block, storage.num_actions)
        return block

    def _process(
        self,
        events: np.ndarray,
        vectors: np.ndarray,
        first: np.ndarray,
        following: np.ndarray,
        index: np.ndarray,
    ) -> None:
        storage, streams, search = self._storage, self._streams, self._search
        rule = self._rule._replace(scale=self.scale)
        for start in range(0, len(events), CHUNK):
            chunk = events[start : start + CHUNK]
            stacks = self._episodes.push(chunk, first, following)
            embedded = self._embed(stacks)
            links, edges = 2 * len(chunk), len(chunk) + int(streams.waiting.sum())
            storage.reserve(links, edges)
            storage.limit_growth(len(chunk), links, edges)
            actions = vectors[start : start + CHUNK]
            walk(storage.arrays, streams, rule, search, chunk, actions, stacks, embedded, index)
            storage.keep_exemplars(search.born[: len(chunk)], stacks)
        streams.pending["row"] = -1  # rows of later blocks have other numbers

    def _embed(self, stacks: np.ndarray) -> np.ndarray:
        return self.embedding.embed(stacks.reshape(-1, *self._storage.observation_shape))

    def _warm_up(
        self, events: np.ndarray, vectors: np.ndarray, first: np.ndarray, following: np.ndarray
    ) -> int:
        """Keep observations until the scale can be measured; how many events were taken up."""
        warm = self._warm
        taken = warm.take(events, vectors, first, following)
        if warm.count == warm.size:
            size = math.prod(self._storage.observation_shape)
            stacks = np.zeros((self.num_envs, size), self._storage.dtype)
            rows = warm.embed(stacks, self._embed)
            self.scale = median_distance(rows, self.seed)
            self.embedding.rotate(rows)
            self._make_warmup()
            self._process(warm.events, warm.vectors, warm.frames, warm.frames, np.empty(0, "i8"))
        return taken

    def _empty(self, empty_write_count: bool = True) -> None:
        # A measured scale belongs to the environment, not to the entries: it stays.
        self._episodes.clear()
        moves = self._streams.moves
        self._streams = self._empty_streams()._replace(moves=moves)
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

    def state_dict(self) -> State:
        """Scale, episodes under way, observations kept for the scale, and the embedding's seed."""
        state: State = {"scale": self.scale, **self._arrays(), **self._warm.state_dict()}
        return state | {f"embedding.{k}": v for k, v in self.embedding.state_dict().items()}

    def _arrays(self) -> dict[str, np.ndarray]:
        """What a state holds in arrays that are there for good, as views."""
        streams = self._streams._asdict()
        pending = streams.pop("pending")
        return {
            **{f"streams.{name}": array for name, array in streams.items()},
            **columns("pending", pending),
            **self._episodes.arrays(),
        }

    def load_state_dict(self, state_dict: State) -> None:
        """Take over a state.

        Raises:
            UserError: it was written with another stack, number of envs, contexts or n-step.
        """
        arrays = self._arrays()
        for name, array in arrays.items():
            if state_dict[name].shape != array.shape:
                raise UserError(
                    f"the saved writer's {name} is {state_dict[name].shape}, this one's "
                    f"{array.shape}: give the env.num_envs, contexts and n_step it had"
                )
        for name, array in arrays.items():
            array[:] = state_dict[name]
        prefix = "embedding."
        self.embedding.load_state_dict(
            {k.removeprefix(prefix): v for k, v in state_dict.items() if k.startswith(prefix)}
        )
        scale = state_dict["scale"]
        self.scale = None if scale is None else float(scale)
        self._make_warmup()
        self._warm.load_state_dict(state_dict)

    def check_valid(self) -> None:
        """The streams point at live nodes only, and episodes that ended left nothing behind."""
        if self.scale is None:
            assert self._warm.count < self._warm.size, "the scale is overdue"
            assert self._storage.num_nodes == 0, "a node came before the scale"
        else:
            assert np.isfinite(self.scale), "the scale is not finite"
            assert self.scale > 0.0, "the scale is not above 0"
        assert self._rule.links or self._storage.num_links == 0, "nodes are linked"
        begun = self._episodes.begun & (self.scale is not None)
        check_streams(self._streams, self._storage.live_nodes(), begun)
