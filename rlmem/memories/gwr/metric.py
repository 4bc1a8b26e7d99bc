"""How far observations are from a GWR map, measured as its writer does, without changing the map.

D(x, i) = (alpha_0 ||x - w_i|| + sum_k alpha_k ||C_k - c_ik||) / scale, with x and w embedded, the
writer's scale, and alpha_k = exp(-k) / sum_j exp(-j); without contexts alpha_0 is 1. The activity
is exp(-D). An episode's contexts C follow the writer's recursion: zero at its start, then, with b
the best-matching unit of the step, C_k = beta c_bk + (1 - beta) c_b(k-1), where c_b0 = w_b.

Differs from the writer in one point: it inserts a node for some observations and goes on from that
one's contexts; here nothing is inserted, so that they always go on from b.
"""

from collections.abc import Sequence

import numpy as np
import torch

from rlmem.errors import UserError
from rlmem.memories.gwr.map import MapStorage
from rlmem.memories.gwr.writer import GWRWriter

_ROWS = 1024  # observations at once
_BLOCK_BYTES = 2**25  # of nodes at once, as float64


class MapMetric:
    """The nodes of a map, to be asked for the nearest ones; a copy, so that the map may go on.

    Args:
        storage: the map.
        writer: that wrote it; its embedding and scale are used.

    Raises:
        UserError: the map has no nodes.

    Examples:
        >>> import numpy as np
        >>> from rlmem.memories import GWRWriter, Identity, MapStorage, ReplayMemory, VisitSampler
        >>> storage = MapStorage(100, (4,), np.float32, embedding_dims=4, num_actions=2)
        >>> writer = GWRWriter(0.9, 0.8, embedding=Identity((4,)))
        >>> memory = ReplayMemory(storage, VisitSampler(), writer, seed=0)
        >>> states = np.random.default_rng(0).normal(size=(51, 4)).astype(np.float32)
        >>> never = np.zeros((50, 1), bool)
        >>> _ = memory.extend({"observation": states[:-1], "action": np.zeros(50, np.int64),
        ...     "next": {"observation": states[1:], "reward": np.ones((50, 1), np.float32),
        ...              "terminated": never, "truncated": never}})
        >>> metric = MapMetric(storage, writer)
        >>> node, distance = metric.match([metric.embed(states)])
        >>> node.shape, bool((distance < 2).all())
        ((51,), True)
    """

    def __init__(self, storage: MapStorage, writer: GWRWriter) -> None:
        self.nodes = storage.live_nodes()
        if not len(self.nodes) or writer.scale is None:
            raise UserError(
                "the map has no nodes yet: memory.metric.scale=auto looks at "
                f"{writer.rule.metric.scale_samples:,} observations before the first one"
            )
        self.scale, self.contexts = writer.scale, storage.contexts
        self.context_beta = writer.rule.context_beta
        self._embedding = writer.embedding
        alphas = np.exp(-np.arange(self.contexts + 1.0))
        self.alphas = alphas / alphas.sum()
        keys, contexts = storage.node_keys(self.nodes), storage.node_contexts(self.nodes)
        # [n, 1 + K, d]: w, then the contexts.
        self._rows = np.concatenate([keys[:, None], contexts], axis=1) / np.float32(self.scale)

    def embed(self, observations: np.ndarray) -> np.ndarray:
        """Observations [n, *observation_shape] in the metric's space, float32 [n, d]."""
        return self._embedding.embed(observations) / np.float32(self.scale)

    def nearest(
        self, embedded: np.ndarray, contexts: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Best-matching units.

        Args:
            embedded: [n, d], from `embed`.
            contexts: [n, K, d]; None are zeros, those of an episode's start.

        Returns:
            Rows of `nodes`, int64 [n], and the distances D, float64 [n].
        """
        if contexts is None:
            contexts = np.zeros((len(embedded), self.contexts, embedded.shape[1]), np.float32)
        asked = torch.from_numpy(np.concatenate([embedded[:, None], contexts], axis=1)).double()
        best = torch.zeros(len(asked), dtype=torch.int64)
        least = torch.full((len(asked),), torch.inf, dtype=torch.float64)
        block = max(1, _BLOCK_BYTES // (8 * self._rows[0].size))
        for start in range(0, len(self._rows), block):
            rows = torch.from_numpy(self._rows[start : start + block]).double()
            for first in range(0, len(asked), _ROWS):
                some = slice(first, first + _ROWS)
                distance, node = self._distances(asked[some], rows).min(1)
                closer = distance < least[some]
                best[some] = torch.where(closer, node + start, best[some])
                least[some] = torch.where(closer, distance, least[some])
        return best.numpy(), least.numpy()

    def _distances(self, asked: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """D of [a, 1 + K, d] to [n, 1 + K, d]: float64 [a, n]."""
        total = torch.zeros(len(asked), len(rows), dtype=torch.float64)
        for k, alpha in enumerate(self.alphas.tolist()):
            total.add_(torch.cdist(asked[:, k], rows[:, k]), alpha=alpha)
        return total

    def follow(self, best: np.ndarray) -> np.ndarray:
        """Contexts [n, K, d] of the steps after those whose best-matching units are `best` [n]."""
        rows = self._rows[best]
        beta = np.float32(self.context_beta)
        return beta * rows[:, 1:] + (1 - beta) * rows[:, :-1]

    def match(self, episodes: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Best-matching unit and distance of each observation of whole episodes.

        Args:
            episodes: each [length, d], from `embed`, in the order in which it was played.

        Returns:
            As `nearest`, [sum of the lengths], episode after episode.
        """
        if not self.contexts:
            return self.nearest(np.concatenate(episodes))
        lengths = np.array([len(episode) for episode in episodes])
        longest = int(lengths.max())
        taken = np.arange(longest) < lengths[:, None]
        best, distance = np.zeros(taken.shape, np.int64), np.zeros(taken.shape)
        contexts = np.zeros((len(episodes), *self._rows[0, 1:].shape), np.float32)
        for step in range(longest):  # a step's contexts hang on the step before
            of = np.flatnonzero(taken[:, step])
            embedded = np.stack([episodes[e][step] for e in of.tolist()])
            best[of, step], distance[of, step] = self.nearest(embedded, contexts[of])
            contexts[of] = self.follow(best[of, step])
        return best[taken], distance[taken]
