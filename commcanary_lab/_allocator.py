"""How the C library hands out memory, for a process that does one thing and ends."""

from __future__ import annotations

import ctypes
from contextlib import suppress

__all__ = ["keep_freed_memory"]

#: Parameters of mallopt, from the malloc.h of glibc.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


def keep_freed_memory() -> None:
    """Let freed arrays be used again instead of being returned to the system, which would zero each page anew.

    Ten million events are read and compiled in arrays of 80 MB: a third of the time would go into zeroing. Only glibc can be told;
    elsewhere nothing happens. Not for a server, whose memory should shrink again.
    """
    with suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)
