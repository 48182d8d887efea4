"""What a page is, and the parts that all pages share: its head, and its empty and error states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from commcanary_lab.views.markup import Figure, html, key_figures, message
from commcanary_lab.views.theme import fill
from commcanary_lab.workspace import Workspace

if TYPE_CHECKING:
    from .session import Session

__all__ = ["GAP", "Built", "PageSpec", "Selection", "columns", "empty", "failure", "head", "stack"]

#: Between cards, pixels.
GAP = 16


@dataclass(frozen=True)
class Selection:
    """What is open, and the choices on pages that the address keeps, each with its values."""

    trace: str | None = None
    canary: str | None = None
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def option(self, name: str, default: str) -> str:
        """Return a choice with one value."""
        return self.options.get(name, (default,))[0]


@dataclass(frozen=True)
class Built:
    """A page, built: what goes into the main area, and its controls."""

    main: Sequence[Any]
    controls: Sequence[Any] = field(default_factory=tuple)


@dataclass(frozen=True)
class PageSpec:
    """A page.

    Parameters
    ----------
    name : str
        In the address.
    title : str
        On its tab.
    needs : {"trace", "canary", ""}
        What must be open.
    gather : callable
        Computes everything that takes time; runs in a worker, knows no widgets.
    build : callable
        Makes the page from what `gather` returned; runs in the session.
    follows : tuple of str
        Kinds of artifacts that the page lists: it is made again when one of them appears, changes or goes.
    first : int
        Parts that are drawn first when the page is opened: down to the first chart or table.
    """

    name: str
    title: str
    needs: str
    gather: Callable[[Workspace, Selection], Any]
    build: Callable[[Any, Session], Built]
    follows: tuple[str, ...] = ()
    first: int = 3


def stack(cards: Sequence[Any], **params: Any) -> Any:
    """Return cards below each other."""
    import panel as pn

    for card in cards[:-1]:
        card.margin = (0, 0, GAP, 0)
    return pn.Column(*cards, **{"sizing_mode": "stretch_width", "margin": 0, **params})


def columns(left: Sequence[Any], right: Sequence[Any], percent: int) -> Any:
    """Return two columns of cards that end at the same height."""
    import panel as pn

    sides = []
    for cards, share, margin in ((left, percent, (0, GAP, 0, 0)), (right, 100 - percent, 0)):
        fill(cards[-1], flex="1 1 auto")
        styles = {"flex": f"{share} 1 0px", "min-width": "0", "align-self": "stretch", "height": "auto"}
        sides.append(stack(cards, margin=margin, styles=styles))
    return pn.Row(*sides, sizing_mode="stretch_width", margin=0, styles={"align-items": "stretch"})


def head(crumb: str, answer: str, figures: Sequence[Figure]) -> Any:
    """Return the top of a page: what is open, one sentence that answers the page's question, the key figures.

    `answer` may hold ``<b>``; everything inserted into it must be escaped by the caller.
    """
    return html(
        f'<div class="crumb">{escape(crumb)}</div><h1 class="answer" data-testid="answer">{answer}</h1>'
        f'<div style="height:16px"></div>{key_figures(figures)}'
    )


def empty(title: str, text: str) -> Any:
    """Return an empty state: what is missing and what to do next."""
    return html(f'<div class="empty"><div class="bt">{escape(title)}</div><div>{escape(text)}</div></div>')


def failure(title: str, text: str) -> Any:
    """Return an error state."""
    return html(message(title, text, "err"))
