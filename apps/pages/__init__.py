"""The pages, in the order of their tabs. Each is one file with a `PAGE`."""

from ..page import PageSpec
from .ablation import PAGE as ABLATION
from .canary import PAGE as CANARY
from .minimise import PAGE as MINIMISE
from .overview import PAGE as OVERVIEW
from .ranking import PAGE as RANKING
from .replay import PAGE as REPLAY
from .review import PAGE as REVIEW
from .timeline import PAGE as TIMELINE
from .traffic import PAGE as TRAFFIC

__all__ = ["PAGES"]

PAGES: tuple[PageSpec, ...] = (OVERVIEW, TRAFFIC, TIMELINE, CANARY, ABLATION, RANKING, MINIMISE, REPLAY, REVIEW)
