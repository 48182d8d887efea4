"""What the calibration campaign of the decision-fidelity experiment says of the links, and what follows for a job."""

from __future__ import annotations

from pathlib import Path

import msgspec

from commcanary_lab.replay.campaign.result import read_campaign
from commcanary_lab.replay.link_model import LinkTerms, calibrate, link_terms, predictions
from commcanary_lab.replay.source import sha256_of
from commcanary_lab.trace.model import Trace

__all__ = ["Links", "calibrated", "predicted"]


class Links(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the calibration says of every configuration, and which calibration it was.

    Parameters
    ----------
    calibration_sha256 : str
        Of the list of its files.
    terms : dict of str to LinkTerms
        By configuration.
    verdicts : dict of str to list of str
        Of the two fits, inside and across: fits, misfit or inconclusive.
    """

    calibration_sha256: str
    terms: dict[str, LinkTerms]
    verdicts: dict[str, tuple[str, str]]
    format: str = "commcanary.links.v1"


def calibrated(directory: Path) -> Links:
    """Fit the links of every configuration of a calibration.

    Parameters
    ----------
    directory : Path
        Evidence of the campaign.
    """
    campaign = read_campaign(directory)
    terms, verdicts = {}, {}
    for planned in campaign.manifest.order:
        fabric = campaign.asked.configuration(planned.configuration).fabric or {}
        name, width = str(fabric.get("name", planned.configuration)), int(str(fabric.get("ranks_per_node", 2)))
        inside, across = calibrate(campaign.replays[planned.run], width)
        terms[name], verdicts[name] = link_terms(inside, across, width), (inside.verdict, across.verdict)
    return Links(calibration_sha256=sha256_of(directory / "SHA256SUMS"), terms=terms, verdicts=verdicts)


def predicted(job: Trace, links: Links) -> dict[str, dict[str, float]]:
    """Return what the calibrated links predict of a job: figures per ranking and configuration."""
    return predictions(job, links.terms.items())
