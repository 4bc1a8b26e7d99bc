"""Whether the bytes of a saved state can be coded frames: looked at before any are taken over.

A checksum says that a file is as it was written, not that it was written by a memory. To walk every
stream would double the time of a load: what only a walk tells of full chunks, `CodedChunks.read`
refuses. Open streams are walked, as they are written on where they end.
"""

import numpy as np

from rlmem.memories.compression.chunks import CodedChunks
from rlmem.memories.compression.codec import PREFIX, is_whole
from rlmem.memories.compression.packing import Decoders, check_string, no_frames


def check_strings(
    coded: CodedChunks, data: np.ndarray, sizes: np.ndarray, decoders: Decoders
) -> None:
    """Refuse strings (uint8, one after the other) that cannot be of full chunks.

    Args:
        sizes: of the strings, int [n], none 0.

    Raises:
        UserError: one cannot.
    """
    longest, first = PREFIX + coded.open.heads.shape[1] + coded.open.values.shape[1], 0
    strings = np.ascontiguousarray(data).data
    for size in sizes.tolist():
        check_string(strings[first : first + size], decoders, longest)
        first += size


def check_open(coded: CodedChunks, head: np.ndarray, values: np.ndarray, frames: int) -> None:
    """Refuse an open stream that is not so many frames, or takes more than so many may: the rest of
    the room is for the frames to come.

    Raises:
        UserError: it is not.
    """
    open, room = coded.open, coded.length + 1  # the arrays are for one frame more than a chunk
    longer = len(head) * room > frames * open.heads.shape[1]
    longer |= len(values) * room > frames * open.values.shape[1]
    frame = np.empty(8 * open.newest.shape[1], np.uint8)
    head, values = np.ascontiguousarray(head), np.ascontiguousarray(values)
    if longer or not is_whole(head, values, frames, frame):
        raise no_frames()
