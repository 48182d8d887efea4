"""Cards in two steps: which column holds them, and that one that stays is not moved."""

from __future__ import annotations

import pytest

pytest.importorskip("panel")

import panel as pn

from apps.gradual import Gradual


def columns(place: Gradual) -> list[list[str]]:
    return [[card.object for card in column] for column in place.view]


def cards(*names: str) -> list[pn.pane.HTML]:
    return [pn.pane.HTML(n) for n in names]


def test_without_a_browser_everything_is_there_at_once() -> None:
    place = Gradual()
    place.show(cards("a", "b", "c"), first=1)
    assert columns(place) == [["a"], ["b", "c"]]
    place.show(cards("d", "e"))
    assert columns(place) == [["d", "e"], []]


@pytest.mark.parametrize("first", [1, 2])
def test_a_card_that_stays_keeps_its_model(first: int) -> None:
    place = Gradual()
    head, kept = cards("a", "kept")
    place.show([head, kept], first=first)
    root = place.view.get_root()
    model = kept._models[root.ref["id"]][0]
    place.show([*cards("x", "y"), kept, *cards("z")])
    assert kept._models[root.ref["id"]][0] is model
    assert [name for column in columns(place) for name in column] == ["x", "y", "kept", "z"]
