"""What a map's records take, and a budget in bytes for it: it grows by as much as has room.

How far exemplars compress is known only once they are held, so that each is reckoned at its worst
before; those that take the place of removed nodes need room as well. Where there is none, a map
that evicts lets nodes go without taking in others, until there is.
"""

from typing import TYPE_CHECKING

import numpy as np

from rlmem.errors import UserError
from rlmem.memories.base.serialize import State
from rlmem.memories.compression.segments import BLOB, SEGMENT
from rlmem.memories.gwr.records import BOOK, EDGE, ENDLESS, HALF, MOST_RECORDS, NODE, MapArrays

if TYPE_CHECKING:
    from rlmem.memories.gwr.map import MapStorage

_SHARE = 16  # of a budget: no more is kept for what evicted exemplars do not leave
_EDGE_BYTES = EDGE.itemsize + 4  # with its place in the log of touched edges


def record_bytes(m: MapArrays, nodes: int, links: int, edges: int) -> dict[str, int]:
    """Component -> bytes of so many records; of exemplars, only where they lie."""
    dims, depth = m.heads.shape[1] + m.tails.shape[1], len(m.contexts) // len(m.alive)
    prototype = m.prototypes.strides[0] if len(m.prototypes) else 0
    prototype += BLOB.itemsize if len(m.removed) else 0
    state = NODE.itemsize + 1 + (len(m.terminal) > 0) + 8 * (len(m.stamps) > 0)
    return {
        "prototypes": nodes * prototype,
        "embeddings": nodes * dims * 4,
        "contexts": nodes * depth * dims * 4,
        "node_state": nodes * state,
        "links": links * 2 * HALF.itemsize,
        "edges": edges * (_EDGE_BYTES + 4 * m.actions.shape[1]),
    }


class MapBudget:
    """Sets the limits of a map's growth.

    Args:
        storage: whose bytes are counted.
        limit: bytes that it may hold.
        slot_bytes: bytes that the sampler holds for each edge ever used, among the limit.
    """

    def __init__(self, storage: "MapStorage", limit: int, slot_bytes: int) -> None:
        self.storage, self.limit, self.slot_bytes = storage, limit, slot_bytes

    def limit_growth(self, nodes: int, links: int, edges: int) -> None:
        """Let the map grow by as much of this as there is room for. Links and edges go before
        nodes, which are of use only with them."""
        m, exemplars = self.storage.arrays, self.storage.exemplars
        node, link, edge = (
            sum(record_bytes(m, *one).values()) for one in np.eye(3, dtype=int).tolist()
        )
        left, edge, holes = self._left(), edge + self.slot_bytes, 0
        if exemplars is not None:
            holes = max(2 * SEGMENT, exemplars.size_held // 32)
            wanted = nodes * node + links * link + edges * edge + exemplars.growth(nodes)
            if wanted + holes > left:
                exemplars.repack(holes)
                left = self._left()
                # The holes that repacking leaves for speed may be all that a small budget has. A
                # map that lets no nodes go gains nothing, and would do so at each block.
                if len(m.stamps) and exemplars.growth(1) + node > left:
                    exemplars.repack(0)
                    left = self._left()
        edges = max(0, min(edges, left // (edge + 2 * link)))
        links = min(links, 2 * edges)
        left -= edges * edge + links * link
        most = m.book[[BOOK.node_mark, BOOK.link_mark, BOOK.edge_mark]]
        made = inserted = nodes
        if exemplars is None:
            made = max(0, min(nodes, left // node))
        else:
            spare = 0
            if len(m.stamps):  # each new node takes the place of one, which may leave but a hole
                spare = min(holes + nodes * exemplars.longest, self.limit // _SHARE)
                most[0] = m.book[BOOK.nodes]
            while made and made * node + exemplars.growth(made) + spare > left:
                made -= 1
            while inserted and made * node + exemplars.growth(inserted) > left:
                inserted -= 1
        most += np.array([made, links, edges])
        m.limits[:3] = np.minimum(most, [self.storage.capacity, MOST_RECORDS, MOST_RECORDS])
        m.limits[3] = ENDLESS if exemplars is None else inserted

    def check_state(self, state: State) -> None:
        """Refuse a checked state that takes more than the limit: a map gives nothing back.

        Raises:
            UserError: it does.
        """
        book, m = state["book"], self.storage.arrays
        marks = [int(book[mark]) for mark in (BOOK.node_mark, BOOK.link_mark, BOOK.edge_mark)]
        size = sum(record_bytes(m, *marks).values()) + self.slot_bytes * marks[2]
        if self.storage.exemplars is not None:
            size += self.storage.exemplars.loaded_bytes(state)
        if size > self.limit:
            raise UserError(
                f"memory.budget: the saved map takes {size} bytes of the {self.limit} that are "
                "left for it; use more"
            )

    def _left(self) -> int:
        slots = self.slot_bytes * int(self.storage.arrays.book[BOOK.edge_mark])
        return self.limit - sum(self.storage.footprint().values()) - slots
