"""What a canary reveals about its source: a list, not a promise of safety."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from commcanary_lab.canary.model import Canary

__all__ = ["disclosure", "disclosure_sentences"]

#: Longest list of distinct values that is spelled out; longer ones are counted.
_SPELLED = 8


def _spell(values: list[Any]) -> Any:
    return values if len(values) <= _SPELLED else {"distinct": len(values), "min": min(values), "max": max(values)}


def disclosure(canary: Canary) -> dict[str, Any]:
    """Return what a holder of the canary learns, as stated in its file.

    Parameters
    ----------
    canary : Canary

    Returns
    -------
    dict
        ``group_sizes``, ``message_bytes``, ``loop_counts`` (layers, tokens), ``phases``, ``ops``, ``timing`` and ``commitments``.
    """
    s = canary.signatures
    loops = np.unique(canary.program.counts[canary.program.counts > 1]).tolist()
    used = np.unique(s.group).tolist() if len(s) else []
    return {
        "group_sizes": _spell(sorted({s.groups[g].size for g in used})),
        "group_names": _spell(sorted({s.groups[g].name or "" for g in used})),
        "message_bytes": _spell(np.unique(s.size_bytes).tolist()),
        "loop_counts": _spell(loops),
        "phases": _spell(sorted({n for n in s.phase.to_list() if n})),
        "timing": "exact" if canary.timing == "lossless" else "approximate",
        "commitments": "salted" if canary.source.salted else "unsalted",
    }


def disclosure_sentences(canary: Canary) -> list[str]:
    """Return the disclosure in plain sentences, for people.

    The last sentence says what commitments allow.
    """
    d = disclosure(canary)

    def listed(value: Any, unit: str = "") -> str:
        if isinstance(value, dict):
            return f"{value['distinct']} distinct values from {value['min']} to {value['max']}{unit}"
        return ", ".join(f"{v}{unit}" for v in value) or "none"

    confirm = (
        "Commitments are salted: only the owner of the salt can check guesses about the source against them."
        if d["commitments"] == "salted"
        else "Commitments are unsalted: a holder who guesses source values exactly can confirm the guess; a salt file removes that."
    )
    return [
        f"Group sizes: {listed(d['group_sizes'], ' ranks')}.",
        f"Group names: {listed(d['group_names'])}.",
        f"Message sizes: {listed(d['message_bytes'], ' B')}.",
        f"Loop counts, which mirror layers, micro-batches or tokens: {listed(d['loop_counts'])}.",
        f"Phase names: {listed(d['phases'])}.",
        f"Timing between operations and per rank: {d['timing']}.",
        confirm,
    ]
