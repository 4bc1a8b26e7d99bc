"""Coded streams as strings of an arena: compressed by zstandard, with a dictionary once one pays,
or as they are if that is less.

A string's first byte says how: 0 as it is, 1 without a dictionary, from 2 on the number of its
dictionary. A dictionary is what many of the newest streams share. Once it is there, older strings
are packed again with it where that saves bytes. It stays until no string needs it or it saves less
than half of what it takes, counts with what zstandard holds to decode by it, and is part of the
state.
"""

from typing import Any

import numpy as np
import zstandard

from rlmem.allocator import give_back_freed_memory
from rlmem.errors import UserError
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import array_of, number_of
from rlmem.memories.compression.arena import Arena

STORED, PACKED, NUMBERS = 0, 1, 256
FIRST = 64  # strings packed before the first look for a dictionary
SAMPLES, SAMPLE_BYTES = 1280, 2**22  # strings that a look takes, and their bytes, at most
# The trainer is given their streams in few large parts, each put together from small groups: the
# allocator gives large blocks back; thousands of small ones would leave it megabytes of holes.
PARTS, GROUPS = 8, 8
TRIALS = 64  # strings, about, that are tried with another dictionary
LEAST, LARGEST, SHARE = 1024, 2**18, 16  # bytes of a dictionary, and of which part of the strings'
# What zstandard's tables are laid out for, bytes of a stream and of a dictionary. They then hold
# 2^17 places, the last of a larger dictionary, whose best content stands at its end; room for all
# of them would take four times the memory for 2 % fewer bytes.
STREAM, TABLES = 2**13, 2**16
CONTEXT = 2**17  # bytes that zstandard holds to decode with a dictionary
TRAINING = {"k": 128, "d": 8}  # zstandard's: bytes of a segment that is picked, and of a match


class Packer:
    """Compresses streams into strings and back.

    Args:
        level: of zstandard.
    """

    def __init__(self, level: int) -> None:
        self._level = level
        self.clear()

    def clear(self) -> None:
        """Hold no string and no dictionary."""
        self._contents: dict[int, zstandard.ZstdCompressionDict] = {}  # of dictionaries
        self._decoders = {PACKED: zstandard.ZstdDecompressor()}
        self._strings = np.zeros(NUMBERS, np.int64)  # held, by their first byte
        self._waiting = 0  # strings packed since the last look for a dictionary
        self._use(PACKED)

    def _use(self, number: int) -> None:
        self._current = number
        content = self._contents.get(number)
        self._encoder = encoder_of(None if content is None else content.as_bytes(), self._level)

    def pack(self, stream: np.ndarray) -> np.ndarray:
        """The string of a new stream that follows one free byte, uint8 [n + 1]."""
        string = self.string(stream)
        self._strings[string[0]] += 1
        self._waiting += 1
        return string

    def string(self, stream: np.ndarray) -> np.ndarray:
        """The same without counting it: `hold` is to tell of it."""
        stream[0] = STORED
        packed = self._encoder.compress(stream[1:].data)
        if len(packed) + 1 >= len(stream):
            return stream
        data = np.empty(len(packed) + 1, np.uint8)
        data[0] = self._current
        data[1:] = np.frombuffer(packed, np.uint8)
        return data

    def unpack(self, arena: Arena, blobs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Streams of strings one after the other, and where each begins (-1: an empty one).

        Raises:
            UserError: there is a string that was never packed; a damaged file had it.
        """
        strings = arena.gather(blobs).data
        starts, streams, first, length = [], [], 0, 0
        try:
            # Before each turn: the string begins at `first`, and `length` bytes are unpacked.
            for size in blobs["size"].tolist():
                starts.append(length if size else -1)
                if size:
                    number, stream = strings[first], strings[first + 1 : first + size]
                    if number != STORED:
                        stream = self._decoders[number].decompress(stream)
                    streams.append(stream)
                    first, length = first + size, length + len(stream)
        except (KeyError, zstandard.ZstdError):  # of no dictionary; of none that zstandard wrote
            raise no_frames() from None
        return np.frombuffer(b"".join(streams), np.uint8), np.array(starts, np.int64)

    # Which strings are held.

    def hold(self, firsts: np.ndarray) -> None:
        """Strings with these first bytes (uint8 [n]) were put into the arena."""
        self._strings += np.bincount(firsts, minlength=NUMBERS)

    def release(self, firsts: np.ndarray) -> None:
        """Strings with these first bytes (uint8 [n]) are let go of, and dictionaries of none."""
        self._strings -= np.bincount(firsts, minlength=NUMBERS)
        for number in set(firsts.tolist()):
            if self._strings[number] == 0:
                self._drop(number)

    def _drop(self, number: int) -> int:
        """Let go of a dictionary that no string needs; its bytes."""
        content = self._contents.pop(number, None)
        if content is None:
            return 0
        del self._decoders[number]
        if number == self._current:
            self._use(PACKED)
        return bytes_of(len(content))

    def drop_unused(self) -> int:
        """Let go of a dictionary that no string needs yet; its bytes."""
        return 0 if self._strings[self._current] else self._drop(self._current)

    @property
    def nbytes(self) -> int:
        """Bytes of the dictionaries."""
        return sum(bytes_of(len(content)) for content in self._contents.values())

    # Dictionaries.

    @property
    def due(self) -> bool:
        """Whether to look for a better dictionary: half of the strings that are held came since."""
        return self._waiting >= FIRST and 2 * self._waiting >= self._strings.sum()

    def learn(self, arena: Arena, blobs: np.ndarray, most: int) -> bytes | None:
        """What to pack with from here on: a dictionary that saves more bytes on as many strings as
        are held than it takes; b"" for none, where the one in use saves less than half of what it
        takes; None to go on as now.

        Args:
            blobs: of the strings held, BLOB [n], the oldest first; it learns from the newer half.
            most: bytes that it may take.
        """
        self._waiting, total = 0, int(blobs["size"].sum(dtype=np.int64))
        stay = None if self._pays(arena, blobs) else b""
        size = min(LARGEST, total // SHARE, most - CONTEXT)
        count = min(len(blobs) // 2, SAMPLES, SAMPLE_BYTES * len(blobs) // max(1, total))
        if size < LEAST or count < FIRST // 2 or len(self._contents) == NUMBERS - 2:
            return stay
        some = blobs[np.linspace(len(blobs) // 2, len(blobs) - 1, count).astype(np.int64)]
        apart = max(5, count // TRIALS)  # these are kept from the trainer, and tried
        content = self._train(arena, np.delete(some, np.s_[::apart]), size)
        give_back_freed_memory()
        if content is None:
            return stay
        tried = self._streams(arena, some[::apart])
        before = self._encoder if stay is None else encoder_of(None, self._level)
        saved = _packed(before, tried) - _packed(encoder_of(content, self._level), tried)
        return content if saved * len(blobs) > bytes_of(len(content)) * len(tried) else stay

    def _pays(self, arena: Arena, blobs: np.ndarray) -> bool:
        """Whether the dictionary in use saves half of what it takes on the strings (BLOB [n]) that
        were packed with it, by a sample: that of `outdated`, so that what is left is packed again
        and the dictionary goes. Half, as one just above its cost must not come and go."""
        content = self._contents.get(self._current)
        of = blobs[arena.firsts(blobs) == self._current]
        if content is None or len(of) == 0:
            return True
        some = of[_spread(len(of))]
        plain = _packed(encoder_of(None, self._level), self._streams(arena, some)) + len(some)
        saved = plain - int(some["size"].sum(dtype=np.int64))
        return 2 * saved * len(of) >= bytes_of(len(content)) * len(some)

    def _train(self, arena: Arena, blobs: np.ndarray, size: int) -> bytes | None:
        """A dictionary of `size` bytes of what strings share; None: they share nothing."""
        samples: list[Any] = [
            b"".join(self.unpack(arena, few)[0].tobytes() for few in np.array_split(part, GROUPS))
            for part in np.array_split(blobs, PARTS)
        ]
        try:
            trained = zstandard.train_dictionary(size, samples, level=self._level, **TRAINING)
        except zstandard.ZstdError:
            return None
        return trained.as_bytes()

    def _streams(self, arena: Arena, blobs: np.ndarray) -> list[np.ndarray]:
        """The streams of strings, each uint8 [m]."""
        data, starts = self.unpack(arena, blobs)
        return np.split(data, starts[1:])

    def outdated(self, arena: Arena, blobs: np.ndarray, *, may_grow: bool) -> np.ndarray:
        """Which strings (BLOB [n]) the dictionary in use is to pack again, bool [n].

        Of those that were packed alike all or none, by a sample: if they take fewer bytes then.

        Args:
            may_grow: whether strings of an older dictionary may become longer, by fewer bytes than
                it takes itself: it goes with its last string.
        """
        firsts, found = arena.firsts(blobs), np.zeros(len(blobs), np.bool_)
        for number in set(firsts.tolist()) - {self._current}:
            of = np.flatnonzero(firsts == number)
            some = of[_spread(len(of))]
            then = len(some) + _packed(self._encoder, self._streams(arena, blobs[some]))
            saved = int(blobs["size"][some].sum(dtype=np.int64)) - then
            content = self._contents.get(number) if may_grow else None
            gone = 0 if content is None else bytes_of(len(content))
            found[of] = saved * len(of) + gone * len(some) > 0
        return found

    def adopt(self, content: bytes) -> None:
        """Pack with a dictionary from here on, or with none (b"")."""
        number, unused = PACKED, self._current
        if content:
            number = next(n for n in range(PACKED + 1, NUMBERS) if n not in self._contents)
            self._add(number, content)
        self._use(number)
        if self._strings[unused] == 0:
            self._drop(unused)

    def _add(self, number: int, content: bytes) -> None:
        # One copy, from which is decoded and saved.
        self._contents[number] = known = zstandard.ZstdCompressionDict(content)
        self._decoders[number] = _decoder_of(known)

    # Saving.

    def state_views(self) -> State:
        """The dictionaries, and when the next look for one is due."""
        contents = [content.as_bytes() for content in self._contents.values()]
        return {
            "dictionaries": np.frombuffer(b"".join(contents), np.uint8),
            "dictionary_sizes": np.array(
                [*zip(self._contents, map(len, contents), strict=True)], np.int64
            ).reshape(-1, 2),
            "dictionary": self._current,
            "strings_since": self._waiting,
        }

    def check_state(self, state: State) -> dict[int, bytes]:
        """The dictionaries of a state by their numbers.

        Raises:
            ValueError: there are none such.
        """
        table = array_of(state, "dictionary_sizes", np.int64, (-1, 2))
        numbers, sizes = table.T
        whole = ((numbers > PACKED) & (numbers < NUMBERS) & (sizes > 0)).all()
        whole = whole and len(np.unique(numbers)) == len(numbers)
        whole = whole and number_of(state, "dictionary") in {PACKED, *numbers.tolist()}
        if not whole or number_of(state, "strings_since") < 0:
            raise ValueError("the saved memory is damaged: no such dictionaries")
        data = array_of(state, "dictionaries", np.uint8, (int(sizes.sum()),))
        parts = np.split(data, np.cumsum(sizes)[:-1]) if len(sizes) else []
        found = {int(n): p.tobytes() for n, p in zip(numbers, parts, strict=True)}
        for content in found.values():
            try:
                encoder_of(content, self._level)
            except zstandard.ZstdError:
                raise ValueError("the saved memory is damaged: no dictionary") from None
        return found

    def take_over(self, state: State) -> None:
        """Take over the dictionaries of a checked state; `hold` then tells of the strings."""
        self.clear()
        for number, content in self.check_state(state).items():
            self._add(number, content)
        self._use(int(state["dictionary"]))
        self._waiting = int(state["strings_since"])

    def check_valid(self, arena: Arena, blobs: np.ndarray) -> None:
        """Assert that the strings held are `blobs`, and that their dictionaries are there."""
        held = np.bincount(arena.firsts(blobs), minlength=NUMBERS)
        assert np.array_equal(held, self._strings), "miscounted strings"
        needed = set(np.flatnonzero(held).tolist()) - {STORED, PACKED}
        assert needed <= set(self._contents) <= needed | {self._current}, "a dictionary of none"


Decoders = dict[int, zstandard.ZstdDecompressor]  # by the first bytes of their strings


def no_frames() -> UserError:
    """The refusal of bytes that no frames were ever coded to."""
    return UserError("the saved memory is damaged: the bytes of a chunk are no frames")


def decoders_of(contents: dict[int, bytes]) -> Decoders:
    """Those by which strings are unpacked whose dictionaries, by their numbers, are these."""
    known = {n: zstandard.ZstdCompressionDict(content) for n, content in contents.items()}
    own = {number: _decoder_of(content) for number, content in known.items()}
    return {PACKED: zstandard.ZstdDecompressor(), **own}


def _decoder_of(known: zstandard.ZstdCompressionDict) -> zstandard.ZstdDecompressor:
    return zstandard.ZstdDecompressor(dict_data=known, format=zstandard.FORMAT_ZSTD1_MAGICLESS)


def check_string(string: memoryview, decoders: Decoders, longest: int) -> None:
    """Refuse a string that has no dictionary, does not begin as zstandard's do, or says that its
    stream is longer than any is: so much memory would be taken to unpack it.

    Raises:
        UserError: it is none.
    """
    number = string[0]
    if number == STORED:
        return
    form = zstandard.FORMAT_ZSTD1 if number == PACKED else zstandard.FORMAT_ZSTD1_MAGICLESS
    try:
        says = zstandard.get_frame_parameters(string[1:], format=form).content_size
    except zstandard.ZstdError:
        raise no_frames() from None
    if number not in decoders or says > longest:
        raise no_frames()


def bytes_of(size: int) -> int:
    """Bytes of a dictionary of this size, with what zstandard holds to decode by it; 0 of none."""
    return size + CONTEXT if size else 0


def _spread(count: int) -> np.ndarray:
    """Which of so many strings are tried, int64 [n]."""
    return np.linspace(0, count - 1, min(count, TRIALS)).astype(np.int64)


def _packed(encoder: zstandard.ZstdCompressor, streams: list[np.ndarray]) -> int:
    """Bytes that streams take, compressed where that is less."""
    return sum(min(len(s), len(encoder.compress(s.data))) for s in streams)


def encoder_of(content: bytes | None, level: int) -> zstandard.ZstdCompressor:
    """A compressor with a dictionary or without."""
    if content is None:
        return zstandard.ZstdCompressor(level=level, write_checksum=False)
    known = zstandard.ZstdCompressionDict(content, dict_type=zstandard.DICT_TYPE_FULLDICT)
    parameters = zstandard.ZstdCompressionParameters.from_level(
        level,
        source_size=STREAM,
        dict_size=min(TABLES, len(content)),
        window_log=(STREAM + len(content)).bit_length(),
        format=zstandard.FORMAT_ZSTD1_MAGICLESS,
        write_checksum=False,
        write_dict_id=False,
    )
    known.precompute_compress(compression_params=parameters)
    return zstandard.ZstdCompressor(dict_data=known, compression_params=parameters)
