"""How the synthetic samples are written: one event per line, keys sorted, the same bytes every time. Standard library only."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

__all__ = ["SAMPLES", "pick", "write_document"]

SAMPLES = Path(__file__).resolve().parent / "samples"


def pick(low: int, high: int, *key: object) -> int:
    """Return a whole number in [low, high) that depends on nothing but its arguments.

    Examples
    --------
    >>> pick(0, 1000, "gap", 3), pick(0, 1000, "gap", 3), pick(0, 1000, "gap", 4)
    (363, 363, 251)
    """
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return low + int.from_bytes(digest[:8], "big") % (high - low)


def write_document(document: dict[str, object], path: Path) -> None:
    """Write a trace document with one event per line."""

    def text(value: object) -> str:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)

    events = document["events"]
    assert isinstance(events, list)
    head = text({key: value for key, value in document.items() if key != "events"})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head[:-1] + ',"events":[\n' + ",\n".join(map(text, events)) + "\n]}\n", encoding="ascii", newline="\n")
