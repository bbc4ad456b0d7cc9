"""Trajectory lines of any length in bounded memory.

A line of 60 MB holds a few long texts. Lines above `WHOLE_LINE_BYTES` are read in pieces, the
escapes of the outer string are undone piece by piece, and strings of the inner JSON are cut to a
length, before the usual JSON parser sees the rest.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

WHOLE_LINE_BYTES = 1024 * 1024
PIECE_BYTES = 256 * 1024
MAX_KEPT_CHARS = 8 * 1024 * 1024
"""Text kept of one line in all; beyond it, strings are cut to `SHORT_CHARS`."""
SHORT_CHARS = 64
MAX_HEAD_CHARS = 1024 * 1024

# Text of a JSON string up to its quote, in whole escapes only: a pair of surrogate escapes is never
# parted. Possessive repeats keep no state, so megabytes of escapes cost no memory.
_STRING_TEXT = re.compile(
    r'(?:[^"\\]++|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[0-9a-fA-F]{4}|(?=[^\\]|\\[^u])))*+",
    re.DOTALL,
)
_RAW_MESSAGE = re.compile(r'(?<!\\)"raw_message"\s*:\s*"')
_LONGEST_ESCAPE = 12


@dataclass(slots=True)
class ParsedLine:
    """A trajectory line as Python values; `inner` None: damaged."""

    outer: dict[str, Any]
    inner: dict[str, Any] | None
    num_nan: int = 0
    was_cut: bool = False


def parse_line(line: bytes) -> ParsedLine | None:
    """A line that is held as a whole; None if it is no JSON object."""
    reader = _Loads()
    outer = reader.object(line.decode("utf-8", "replace"))
    if outer is None:
        return None
    raw = outer.get("raw_message")
    inner = raw if isinstance(raw, dict) else None
    if isinstance(raw, str):
        inner = reader.object(raw)
    return ParsedLine(outer, inner, reader.num_nan)


def parse_pieces(pieces: Iterable[bytes], max_chars: int) -> ParsedLine | None:
    """A line in pieces, strings cut to `max_chars`; None if it is no JSON object."""
    text = _decoded(pieces)
    head = ""
    match = None
    for piece in text:
        head += piece
        match = _RAW_MESSAGE.search(head)
        if match is not None or len(head) > MAX_HEAD_CHARS:
            break
    reader = _Loads()
    if match is None:
        return _parse_flat(head, text, max_chars, reader)
    inner = _Cutter(max_chars)
    rest = head[match.end() :]
    head = head[: match.end()]
    try:
        tail = _inner_text(rest, text, inner)
    except ValueError:
        tail = None
    # Without its end the outer object is closed by hand: the ids before the message count.
    outer = reader.object(head + '"' + tail if tail is not None else head + '"}')
    if outer is None and tail is not None:
        outer = reader.object(head + '"}')
    if outer is None:
        return None
    found = reader.object(inner.text()) if tail is not None else None
    return ParsedLine(outer, found, reader.num_nan, inner.was_cut)


def _parse_flat(
    head: str, text: Iterator[str], max_chars: int, reader: _Loads
) -> ParsedLine | None:
    """A line whose message is no string, or comes late: one level of strings to cut."""
    cutter = _Cutter(max_chars)
    try:
        cutter.feed(head)
        for piece in text:
            cutter.feed(piece)
    except ValueError:
        return None
    outer = reader.object(cutter.text())
    if outer is None:
        return None
    raw = outer.get("raw_message")
    inner = raw if isinstance(raw, dict) else None
    return ParsedLine(outer, inner, reader.num_nan, cutter.was_cut)


def _decoded(pieces: Iterable[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in pieces:
        yield decoder.decode(piece)
    yield decoder.decode(b"", True)


def _inner_text(rest: str, text: Iterator[str], cutter: _Cutter) -> str | None:
    """Feed the unescaped message to the cutter; the text after its closing quote."""
    while True:
        end = _end_of(rest)
        cutter.feed(json.loads(f'"{rest[:end]}"', strict=False))
        if end < len(rest) and rest[end] == '"':
            return _bounded(rest[end + 1 :], text)
        rest = rest[end:]
        if len(rest) > _LONGEST_ESCAPE:
            raise ValueError("not an escape")
        piece = next(text, None)
        if piece is None:
            raise ValueError("message without its end")
        rest += piece


def _bounded(tail: str, text: Iterator[str]) -> str:
    for piece in text:
        tail += piece
        if len(tail) > MAX_HEAD_CHARS:
            raise ValueError("too much after the message")
    return tail


class _Cutter:
    """JSON text with the same structure and shorter strings."""

    def __init__(self, max_chars: int) -> None:
        self.was_cut = False
        self._max_chars = max_chars
        self._parts: list[str] = []
        self._kept = 0
        self._in_string = False
        self._string_chars = 0
        self._string_kept = 0
        self._string_full = False
        self._rest = ""

    def text(self) -> str:
        """The shortened text."""
        return "".join(self._parts) + self._rest

    def feed(self, piece: str) -> None:
        """Take in more text."""
        text, at = self._rest + piece, 0
        self._rest = ""
        while at < len(text):
            if not self._in_string:
                quote = text.find('"', at)
                stop = len(text) if quote < 0 else quote + 1
                self._keep(text[at:stop])
                at = stop
                self._in_string = quote >= 0
                self._string_chars = self._string_kept = 0
                self._string_full = False
                continue
            end = _end_of(text, at)
            self._string(text, at, end)
            at = end
            if at < len(text) and text[at] == '"':
                self._close_string()
                at += 1
            elif len(text) - at > _LONGEST_ESCAPE:
                raise ValueError("not an escape")
            else:
                self._rest = text[at:]
                return

    def _string(self, text: str, start: int, end: int) -> None:
        self._string_chars += end - start
        if self._string_full:
            return
        limit = self._max_chars if self._kept < MAX_KEPT_CHARS else SHORT_CHARS
        room = max(limit - self._string_kept, 0)
        if end - start > room:
            self._string_full = True
            end = start + _end_of(text[start : start + room])
        self._string_kept += end - start
        self._keep(text[start:end])

    def _close_string(self) -> None:
        if self._string_full:
            self.was_cut = True
            self._keep(f"… [{self._string_chars} characters]")
        self._keep('"')
        self._in_string = False

    def _keep(self, text: str) -> None:
        self._parts.append(text)
        self._kept += len(text)


class _Loads:
    """JSON objects with null for numbers that are none, which are counted."""

    def __init__(self) -> None:
        self.num_nan = 0

    def object(self, text: str) -> dict[str, Any] | None:
        """The object, or None if the text is not one."""
        try:
            value = json.loads(text, parse_constant=self._constant, strict=False)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def _constant(self, _name: str) -> None:
        self.num_nan += 1


def _end_of(text: str, start: int = 0) -> int:
    match = _STRING_TEXT.match(text, start)
    return match.end() if match is not None else start
