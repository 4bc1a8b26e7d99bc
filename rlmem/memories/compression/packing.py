"""Coded streams as strings of an arena: compressed by zstandard, or as they are if that is less."""

import numpy as np
import zstandard

from rlmem.memories.compression.arena import Arena

STORED, PACKED = 0, 1  # first byte of a string


class Packer:
    """Compresses streams into strings and back.

    Args:
        level: of zstandard.
    """

    def __init__(self, level: int) -> None:
        self._compressor = zstandard.ZstdCompressor(level=level, write_checksum=False)
        self._decompressor = zstandard.ZstdDecompressor()

    def pack(self, stream: np.ndarray) -> np.ndarray:
        """The string of a stream that follows one free byte, uint8 [n + 1]."""
        stream[0] = STORED
        packed = self._compressor.compress(stream[1:].data)
        if len(packed) + 1 >= len(stream):
            return stream
        data = np.empty(len(packed) + 1, np.uint8)
        data[0] = PACKED
        data[1:] = np.frombuffer(packed, np.uint8)
        return data

    def unpack(self, arena: Arena, blobs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Streams of strings one after the other, and where each begins (-1: an empty one)."""
        starts = np.full(len(blobs), -1, np.int64)
        full = np.flatnonzero(blobs["size"])
        data = arena.gather(blobs)
        view, parts = data.data, bytearray()
        at = end = 0
        decompress = self._decompressor.decompress
        for number, size in zip(full.tolist(), blobs["size"][full].tolist(), strict=True):
            part = view[at + 1 : at + size]
            starts[number] = end
            stream = decompress(part) if view[at] == PACKED else part
            parts += stream
            end += len(stream)
            at += size
        return np.frombuffer(parts, np.uint8), starts
