"""Who is logged in, on the screen, and the way out; without a login, that the visitor may only look."""

from __future__ import annotations

from html import escape
from typing import Any

from commcanary_lab.views.markup import html

from .access import rules
from .session import Session

__all__ = ["account"]

_STYLE = "font-size:12.5px;white-space:nowrap;margin-right:12px"


def account(session: Session) -> list[Any]:
    """Return what the header says of the visitor; nothing where everybody is the operator."""
    who = session.visitor
    role = "viewer" if who.why_not else "operator"
    name = who.name or "role"
    chip = f'<span class="chip" title="{escape(who.why_not)}"><span>{escape(name)}</span><span>{role}</span></span>'
    if rules().users is not None:
        way_out = '<a href="logout" style="color:var(--a)">Log out</a>'
        inside = f"{chip}{way_out}"
    elif who.why_not:
        inside = chip
    else:
        return []
    flat = "display:inline-flex;align-items:center;gap:8px"
    return [html(f'<div style="{_STYLE};{flat}" data-testid="account">{inside}</div>', sizing_mode=None, align="center")]
