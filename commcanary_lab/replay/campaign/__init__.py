"""Campaigns: what is asked is written down first, then run, then decided by the rule that was written down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from commcanary_lab.replay.campaign.preregistration import Preregistration
    from commcanary_lab.replay.campaign.read import read_preregistration
    from commcanary_lab.replay.campaign.result import Campaign, read_campaign
    from commcanary_lab.replay.campaign.run import CampaignProgress, run_campaign
    from commcanary_lab.replay.campaign.verify import CampaignCheck, verify_campaign

__all__ = [
    "Campaign",
    "CampaignCheck",
    "CampaignProgress",
    "Preregistration",
    "read_campaign",
    "read_preregistration",
    "run_campaign",
    "verify_campaign",
]

_WHERE = {
    "Campaign": "result", "CampaignCheck": "verify", "CampaignProgress": "run", "Preregistration": "preregistration",
    "read_campaign": "result", "read_preregistration": "read", "run_campaign": "run", "verify_campaign": "verify",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import what is asked for: the launcher's worker imports the package, and must not pay for all of it."""
    from importlib import import_module

    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
