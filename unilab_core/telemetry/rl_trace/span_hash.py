"""64-bit hashes of many byte spans at once; the key is random per process.

A span is read as little-endian words, padded with zeros; each word is mixed with the key of its
place and the results are added. Spans above `MAX_SPAN` are hashed one by one, so that a single
long text does not widen the matrix of all.

Legend: n spans, W words per span.
"""

from __future__ import annotations

import os
from hashlib import blake2b

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

MAX_SPAN = 512
PADDING = MAX_SPAN
"""Zero bytes that a buffer needs behind its last span."""

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]

_KEY = os.urandom(16)
_PLACES = np.frombuffer(os.urandom(8 * (MAX_SPAN // 8 + 1)), dtype="<u8")
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_MASKS = np.array([(1 << (8 * kept)) - 1 for kept in range(9)], dtype=np.uint64)


def mix(words: Words) -> Words:
    """A bijection of 64 bits in which each bit of the input changes half of the output."""
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))


_OF_ZEROS = np.concatenate(([np.uint64(0)], np.cumsum(mix(_PLACES), dtype=np.uint64)))


def hash_spans(buffer: Bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Words:
    """Hashes [n] of spans of at most MAX_SPAN bytes; the buffer is padded."""
    if not len(starts):
        return np.empty(0, dtype=np.uint64)
    num_words = max((int(lengths.max()) + 7) // 8, 1)
    rows = sliding_window_view(buffer, 8 * num_words)[starts]
    words = np.ascontiguousarray(rows).view("<u8")
    last = 8 * np.arange(num_words)
    words &= _MASKS[np.clip(lengths[:, None] - last, 0, 8)]
    words ^= _PLACES[:num_words]
    # What the padding words of shorter rows added comes off again.
    padding = _OF_ZEROS[num_words] - _OF_ZEROS[(lengths + 7) // 8]
    total = mix(words).sum(axis=1, dtype=np.uint64) - padding
    return mix(total ^ lengths.astype(np.uint64) ^ _PLACES[-1])


def hash_texts(texts: list[bytes]) -> Words:
    """Hashes of separate texts; equal to `hash_spans` for those that fit."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    fits = lengths <= MAX_SPAN
    short = [text for text in texts if len(text) <= MAX_SPAN]
    starts = np.cumsum(lengths[fits]) - lengths[fits]
    result = np.empty(len(texts), dtype=np.uint64)
    result[fits] = hash_spans(padded(b"".join(short)), starts, lengths[fits])
    for place in np.flatnonzero(~fits).tolist():
        digest = blake2b(texts[place], digest_size=8, key=_KEY).digest()
        result[place] = int.from_bytes(digest, "little")
    return result


def padded(data: bytes) -> Bytes:
    """The bytes as an array with the padding that `hash_spans` needs."""
    return np.frombuffer(data + bytes(PADDING), dtype=np.uint8)
