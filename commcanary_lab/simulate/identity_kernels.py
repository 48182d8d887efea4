"""Compiled text and SHA-256 of noise identities.

Import this module inside functions: importing numba takes a third of a second.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["hash_range", "occurrences"]

_K = np.array(
    [
        0x428A2F98,
        0x71374491,
        0xB5C0FBCF,
        0xE9B5DBA5,
        0x3956C25B,
        0x59F111F1,
        0x923F82A4,
        0xAB1C5ED5,
        0xD807AA98,
        0x12835B01,
        0x243185BE,
        0x550C7DC3,
        0x72BE5D74,
        0x80DEB1FE,
        0x9BDC06A7,
        0xC19BF174,
        0xE49B69C1,
        0xEFBE4786,
        0x0FC19DC6,
        0x240CA1CC,
        0x2DE92C6F,
        0x4A7484AA,
        0x5CB0A9DC,
        0x76F988DA,
        0x983E5152,
        0xA831C66D,
        0xB00327C8,
        0xBF597FC7,
        0xC6E00BF3,
        0xD5A79147,
        0x06CA6351,
        0x14292967,
        0x27B70A85,
        0x2E1B2138,
        0x4D2C6DFC,
        0x53380D13,
        0x650A7354,
        0x766A0ABB,
        0x81C2C92E,
        0x92722C85,
        0xA2BFE8A1,
        0xA81A664B,
        0xC24B8B70,
        0xC76C51A3,
        0xD192E819,
        0xD6990624,
        0xF40E3585,
        0x106AA070,
        0x19A4C116,
        0x1E376C08,
        0x2748774C,
        0x34B0BCB5,
        0x391C0CB3,
        0x4ED8AA4A,
        0x5B9CCA4F,
        0x682E6FF3,
        0x748F82EE,
        0x78A5636F,
        0x84C87814,
        0x8CC70208,
        0x90BEFFFA,
        0xA4506CEB,
        0xBEF9A3F7,
        0xC67178F2,
    ],
    np.uint32,
)
_H0 = np.array([0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19], np.uint32)
#: Texts that are hashed side by side: two of the widest vectors that processors have.
_LANES = 32


@njit(cache=True, nogil=True, inline="always")
def _rotate(x: np.uint32, n: int) -> np.uint32:
    return np.uint32((x >> np.uint32(n)) | (x << np.uint32(32 - n)))


@njit(cache=True, nogil=True)
def _pad(buffer: npt.NDArray[np.uint8], length: int) -> int:
    """Append the padding of SHA-256 to ``buffer[:length]``, which has room for it; return the number of blocks."""
    bits = np.uint64(length) * np.uint64(8)
    blocks = (length + 8) // 64 + 1
    buffer[length] = 0x80
    for i in range(length + 1, blocks * 64 - 8):
        buffer[i] = 0
    for i in range(8):
        buffer[blocks * 64 - 1 - i] = np.uint8((bits >> np.uint64(8 * i)) & np.uint64(255))
    return blocks


@njit(cache=True, nogil=True)
def _load(buffer: npt.NDArray[np.uint8], block: int, w: npt.NDArray[np.uint32], lane: int) -> None:
    """Put the words of a block into a lane."""
    for i in range(16):
        j = block * 64 + 4 * i
        w[i, lane] = (
            (np.uint32(buffer[j]) << np.uint32(24))
            | (np.uint32(buffer[j + 1]) << np.uint32(16))
            | (np.uint32(buffer[j + 2]) << np.uint32(8))
            | np.uint32(buffer[j + 3])
        )


@njit(cache=True, nogil=True)
def _compress(w: npt.NDArray[np.uint32], state: npt.NDArray[np.uint32], work: npt.NDArray[np.uint32]) -> None:
    """One block of SHA-256 in every lane. The inner loops run over lanes: the compiler makes vector instructions of them.

    ``w`` has shape (64, lanes) with the block in its first 16 rows, ``state`` and ``work`` have shape (8, lanes). The eight variables
    do not move; their names do, by one row in each round.
    """
    for i in range(16, 64):
        for n in range(_LANES):
            x, y = w[i - 15, n], w[i - 2, n]
            s0 = _rotate(x, 7) ^ _rotate(x, 18) ^ (x >> np.uint32(3))
            s1 = _rotate(y, 17) ^ _rotate(y, 19) ^ (y >> np.uint32(10))
            w[i, n] = np.uint32(np.uint32(w[i - 16, n] + s0) + np.uint32(w[i - 7, n] + s1))
    for j in range(8):
        for n in range(_LANES):
            work[j, n] = state[j, n]
    for i in range(64):
        k = _K[i]
        ra, rb, rc, rd = -i & 7, (1 - i) & 7, (2 - i) & 7, (3 - i) & 7
        re, rf, rg, rh = (4 - i) & 7, (5 - i) & 7, (6 - i) & 7, (7 - i) & 7
        for n in range(_LANES):
            a, b, c, e = work[ra, n], work[rb, n], work[rc, n], work[re, n]
            s1 = _rotate(e, 6) ^ _rotate(e, 11) ^ _rotate(e, 25)
            choice = (e & work[rf, n]) ^ (~e & work[rg, n])
            t1 = np.uint32(np.uint32(work[rh, n] + s1) + np.uint32(np.uint32(choice + k) + w[i, n]))
            s0 = _rotate(a, 2) ^ _rotate(a, 13) ^ _rotate(a, 22)
            work[rd, n] = np.uint32(work[rd, n] + t1)
            work[rh, n] = np.uint32(t1 + np.uint32(s0 + ((a & b) ^ (a & c) ^ (b & c))))
    for j in range(8):
        for n in range(_LANES):
            state[j, n] = np.uint32(state[j, n] + work[j, n])


@njit(cache=True, nogil=True, inline="always")
def _put_int(buffer: npt.NDArray[np.uint8], at: int, value: int) -> int:
    """Write ``value >= 0`` in decimal. Unsigned: a signed division by ten rounds towards minus infinity, which costs twice as much."""
    ten = np.uint64(10)
    rest, bound = np.uint64(value), ten
    digits = 1
    while digits < 19 and rest >= bound:
        digits += 1
        bound *= ten
    for i in range(at + digits - 1, at - 1, -1):
        quotient = rest // ten
        buffer[i] = np.uint8(np.uint64(48) + rest - quotient * ten)
        rest = quotient
    return at + digits


@njit(cache=True, nogil=True, inline="always")
def _put_us(buffer: npt.NDArray[np.uint8], at: int, time_ns: int) -> int:
    """Write ``time_ns / 1000`` as Python prints that float: trailing zeros dropped, at least one decimal."""
    whole = np.uint64(time_ns) // np.uint64(1000)
    fraction = np.uint32(np.uint64(time_ns) - whole * np.uint64(1000))
    at = _put_int(buffer, at, whole)
    hundreds = fraction // np.uint32(100)
    rest = fraction - hundreds * np.uint32(100)
    tens = rest // np.uint32(10)
    ones = rest - tens * np.uint32(10)
    buffer[at] = 46
    buffer[at + 1] = np.uint8(np.uint32(48) + hundreds)
    buffer[at + 2] = np.uint8(np.uint32(48) + tens)
    buffer[at + 3] = np.uint8(np.uint32(48) + ones)
    return at + (2 if rest == 0 else 3 if ones == 0 else 4)


@njit(cache=True, nogil=True, inline="always")
def _put_bytes(buffer: npt.NDArray[np.uint8], at: int, source: npt.NDArray[np.uint8], start: int, stop: int) -> int:
    for i in range(start, stop):
        buffer[at + i - start] = source[i]
    return at + stop - start


@njit(cache=True, nogil=True)
def _write(
    buffer: npt.NDArray[np.uint8],
    i: int,
    values: npt.NDArray[np.int64],
    pointers: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    zero: bool,
    key: npt.NDArray[np.int64],
    text: npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.int64],
    sequence: npt.NDArray[np.int64],
    occurrence: npt.NDArray[np.int64],
) -> int:
    """Write the text of event i; return its length."""
    k, piece = sizes[i], 5 * key[i]
    start, count = pointers[i], pointers[i + 1] - pointers[i]
    at = _put_bytes(buffer, 0, text, bounds[piece], bounds[piece + 1])
    low = np.int64(0)
    if count == k:
        low = values[start]
        for j in range(1, k):
            low = min(low, values[start + j])
    for j in range(k):
        offset = np.int64(0)
        if not zero:
            if count == k:
                offset = values[start + j] - low
            elif count == 1 and j == k - 1:
                offset = values[start]
        if j:
            buffer[at] = 44
            at += 1
        at = _put_us(buffer, at, offset)
    at = _put_bytes(buffer, at, text, bounds[piece + 1], bounds[piece + 2])
    if sequence[i] >= 0:
        at = _put_bytes(buffer, at, text, bounds[piece + 2], bounds[piece + 3])
        at = _put_int(buffer, at, sequence[i])
    at = _put_bytes(buffer, at, text, bounds[piece + 3], bounds[piece + 4])
    at = _put_int(buffer, at, occurrence[i])
    return _put_bytes(buffer, at, text, bounds[piece + 4], bounds[piece + 5])


@njit(cache=True, nogil=True)
def hash_range(
    first: int,
    last: int,
    values: npt.NDArray[np.int64],
    pointers: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    zero: bool,
    key: npt.NDArray[np.int64],
    text: npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.int64],
    sequence: npt.NDArray[np.int64],
    occurrence: npt.NDArray[np.int64],
    room: int,
    out: npt.NDArray[np.uint64],
) -> None:
    """Identities of events first..last-1. `text` holds five pieces per key, delimited by `bounds`.

    A lane takes the next event when the text of its last one is through, so that texts of any length fill all lanes.
    """
    buffers = np.zeros((_LANES, room), np.uint8)
    w, state, work = np.zeros((64, _LANES), np.uint32), np.zeros((8, _LANES), np.uint32), np.zeros((8, _LANES), np.uint32)
    event, block, blocks = np.full(_LANES, -1), np.zeros(_LANES, np.int64), np.zeros(_LANES, np.int64)
    following, busy = first, 0
    while True:
        for lane in range(_LANES):
            if event[lane] < 0 and following < last:
                buffer = buffers[lane]
                length = _write(buffer, following, values, pointers, sizes, zero, key, text, bounds, sequence, occurrence)
                event[lane], block[lane], blocks[lane] = following, 0, _pad(buffer, length)
                for j in range(8):
                    state[j, lane] = _H0[j]
                following += 1
                busy += 1
            if event[lane] >= 0:
                _load(buffers[lane], block[lane], w, lane)
        if busy == 0:
            return
        _compress(w, state, work)
        for lane in range(_LANES):
            if event[lane] >= 0:
                block[lane] += 1
                if block[lane] == blocks[lane]:
                    out[event[lane]] = (np.uint64(state[0, lane]) << np.uint64(32)) | np.uint64(state[1, lane])
                    event[lane] = -1
                    busy -= 1


@njit(cache=True, nogil=True)
def _count(codes: npt.NDArray[np.int64], kinds: int) -> npt.NDArray[np.int64]:
    seen = np.zeros(kinds, np.int64)
    out = np.empty(len(codes), np.int64)
    for i in range(len(codes)):
        out[i] = seen[codes[i]]
        seen[codes[i]] += 1
    return out


def occurrences(codes: npt.NDArray[np.int64], kinds: int) -> npt.NDArray[np.int64]:
    """Return how many earlier events have the same code, shape (n,).

    Examples
    --------
    >>> occurrences(np.array([0, 1, 0, 0]), 2).tolist()
    [0, 0, 1, 2]
    """
    return _count(codes, kinds)  # type: ignore[no-any-return]
