"""The page on campaigns shows what is valid, and names everything that there is."""

from __future__ import annotations

import re
from pathlib import Path

from commcanary_lab.replay.campaign.metrics import AGREEMENT_METRICS, METRICS
from commcanary_lab.replay.campaign.read import parse_preregistration


def test_the_preregistration_of_the_page(root: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", (root / "docs" / "campaigns.md").read_text("utf-8"), re.DOTALL)
    asked = parse_preregistration(text.encode(), "page.toml")
    assert [c.name for c in asked.criteria] == ["every rank", "fleet", "launches", "outputs"]
    assert asked.configurations[0].fabric == {"rate_mbit": 400, "ranks_per_node": 2, "across_mbit": 50}


def test_every_metric_is_told(root: Path) -> None:
    page = (root / "docs" / "campaigns.md").read_text("utf-8")
    rows = "".join(line for line in page.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`([a-z_0-9]+)`", rows)) >= {*METRICS, *AGREEMENT_METRICS}
