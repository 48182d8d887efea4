"""A short soak: the script works, and nothing runs away within two minutes. ``make soak`` takes half an hour."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.soak import BOUNDS, Row, Soak, soak


@pytest.mark.slow
def test_two_minutes_of_use(browser_type_launch_args: dict[str, Any]) -> None:
    found = soak(2)
    print(found.table())
    assert found.rows[-1].rounds >= 2
    assert found.trouble == ()
    for name in ("files", "threads", "processes"):
        assert found.growth(name) <= BOUNDS[name], found.table()


def test_what_grows_is_noticed() -> None:
    rows = tuple(Row(60.0 * i, i, 0, 500_000_000 + 40_000_000 * i, 40, 20, 1) for i in range(1, 13))
    found = Soak(rows, 3, ("exception on a page: x",))
    assert found.growth("rss_bytes") == 240_000_000
    assert found.problems() == ["rss_bytes grew by 240,000,000, more than 150,000,000", "exception on a page: x"]
    steady = Soak(tuple(Row(60.0 * i, i, 0, 500_000_000, 40, 20, 1) for i in range(1, 13)), 3, ())
    assert steady.problems() == []
