"""Cards that appear in two steps, so that the first of them are read while the browser makes the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import panel as pn

from .timers import after

__all__ = ["Gradual"]

#: After the first cards: what is exchanged while the browser still builds its neighbours gets lost, so the rest has a place of its own.
_REST_MS = 400


class Gradual:
    """A place for cards.

    Parameters
    ----------
    gap : int, optional
        Pixels between them. Not the gap of a column: that also counts the button for scrolling which Panel puts into each.
    **params
        Of the column that holds them.
    """

    def __init__(self, gap: int | None = None, **params: Any) -> None:
        self._gap = gap
        self._first, self._rest = (pn.Column(**params) for _ in range(2))
        self._asked = 0
        self.view = pn.Column(self._first, self._rest, **params)

    def show(self, cards: Sequence[Any], first: int | None = None) -> None:
        """Exchange the cards: `first` of them now and the others soon, or all at once."""
        if self._gap is not None:
            for i, card in enumerate(cards):
                card.margin = (0, 0, self._gap if i + 1 < len(cards) else 0, 0)
        self._asked += 1
        asked, split = self._asked, len(cards) if first is None else first
        # a card that stays keeps its place: elsewhere the browser would make it anew, and what is typed or sent there would be lost
        stays = [i for i, card in enumerate(cards) if any(card is c for c in self._rest)]
        split = min([split, *stays])
        rest = list(cards[split:])
        if stays or len(self._rest):
            self._rest[:] = rest if stays else []
        self._first[:] = list(cards[:split])
        self._rest.visible = bool(rest)
        if stays:
            return
        if rest and pn.state.curdoc is None:
            self._complete(rest, asked)
        elif rest and pn.state.loaded:
            after(_REST_MS, lambda: self._complete(rest, asked))
        elif rest:  # the frame is not there either: its place is not among neighbours that are just built
            pn.state.onload(lambda: self._complete(rest, asked))

    def _complete(self, rest: list[Any], asked: int) -> None:
        if asked == self._asked:  # other cards have not taken their place
            self._rest[:] = rest
