"""Replay: a canary's program on real process groups, measured; never the simulator."""

from __future__ import annotations

from commcanary_lab._callable import make_callable

__all__: list[str] = []

make_callable(__name__, "commcanary_lab.replay.run", "replay")
