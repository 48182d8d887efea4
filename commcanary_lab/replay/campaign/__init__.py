"""Campaigns: what is asked is written down first, then run, then decided by the rule that was written down."""

from __future__ import annotations

__all__: list[str] = []
