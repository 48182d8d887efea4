"""The state of one visitor: page, open artifacts, theme; kept in the address, so that a link reopens it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode

import panel as pn
import param

from commcanary_lab.views.markup import html
from commcanary_lab.workspace import Artifact, Workspace
from commcanary_lab.workspace.provenance_search import known_sources

from .access import visitor
from .guarded import GuardedWorkspace
from .jobs import Jobs
from .page import Selection

if TYPE_CHECKING:
    from .workspace_panel import WorkspacePanel

__all__ = ["Session", "best_canary", "first_trace", "sidebar_label"]

#: Traces up to this size open in less than a second.
_QUICK_BYTES = 16 << 20

_KEYS = ("page", "trace", "canary", "theme")


class Session(param.Parameterized):
    """One visitor. Names are those of the workspace; an unknown name in the address stays as it is, and the page says so."""

    page = param.String("overview")
    trace = param.String(None, allow_None=True)
    canary = param.String(None, allow_None=True)
    dark = param.Boolean(False)
    tour = param.Integer(-1, doc="Step of the guided tour, from 0; -1 when it is not shown.")
    options = param.Dict({}, doc="Choices on pages, each with its values; `Selection.options`.")
    revision = param.Integer(0, doc="Counts changes of the workspace that this session made or saw.")

    def __init__(self, workspace: Workspace, **params: Any) -> None:
        super().__init__(**params)
        self.visitor = visitor()
        self.workspace: Workspace = GuardedWorkspace(workspace, self.visitor)
        self.jobs = Jobs()
        self.folder: WorkspacePanel | None = None
        #: What pages keep for this visitor. A table of theirs, weak in its keys, would keep the session: what it holds refers to it.
        self.kept: dict[str, Any] = {}
        self.begin_tour: Callable[[], None] = lambda: None
        self._from_address()
        self.param.watch(self._to_address, ["page", "trace", "canary", "dark", "options"])
        if pn.state.curdoc is not None:
            pn.state.on_session_destroyed(lambda _: self.jobs.close())

    @property
    def selection(self) -> Selection:
        """What is open."""
        return Selection(self.trace, self.canary, self.options)

    def choose(self, name: str, *values: str) -> None:
        """Keep a choice in the address; without values it is forgotten. The page that offers it follows by itself."""
        kept = {k: v for k, v in self.options.items() if k != name}
        self.options = {**kept, name: values} if values else kept

    def _from_address(self) -> None:
        location = pn.state.location
        query = parse_qs((location.search or "").lstrip("?")) if location is not None else {}
        given = {key: query[key][0] for key in _KEYS if query.get(key)}
        canaries = [a.name for a in self.workspace.list("canary")]
        trace = given.get("trace") or first_trace(self.workspace.list("trace"))
        canary = given.get("canary") or best_canary(trace, canaries)
        options = {key: tuple(values) for key, values in query.items() if key not in _KEYS}
        dark = given.get("theme") == "dark"
        self.param.update(page=given.get("page", "overview"), trace=trace, canary=canary, dark=dark, options=options)

    def _to_address(self, *_: Any) -> None:
        location = pn.state.location
        if location is None:
            return
        query = {"page": self.page, "trace": self.trace, "canary": self.canary, "theme": "dark" if self.dark else None}
        search = "?" + urlencode({**{k: v for k, v in query.items() if v}, **self.options}, doseq=True)
        if location.search != search:
            location.search = search

    def open(self, name: str, *, show: bool = False) -> None:
        """Open an artifact; a trace brings a canary that was compiled from it, and the other way round.

        Documents open on the page that shows them: reports and comparisons in Review, ledgers in Minimise, evidence in Replay; with
        `show`, traces do in Overview and canaries in Canary.
        """
        kind = self.workspace.get(name).kind
        if kind == "trace":
            self.param.update(trace=name, canary=self._canary_of(name), page="overview" if show else self.page)
        elif kind == "canary":
            self.param.update(canary=name, trace=self._source_of(name), page="canary" if show else self.page)
        elif kind == "report":
            kept = {k: v for k, v in self.options.items() if k not in ("compare", "comparison")}
            if kept.get("baseline") == (name,):
                del kept["baseline"]
            self.param.update(options={**kept, "candidate": (name,)}, page="review")
        elif kind == "comparison":
            self.param.update(options={**self.options, "comparison": (name,)}, page="review")
        elif kind == "signoff":
            from .review_signoffs import pair_of

            kept = {k: v for k, v in self.options.items() if k not in ("comparison", "policy", "allow")}
            self.param.update(options={**kept, **pair_of(self.workspace, name)}, page="review")
            self.param.trigger("page")  # the page may be open with another pair
        elif kind == "ledger":
            self.param.update(options={**self.options, "ledger": (name,)}, page="minimise")
        elif kind in ("replay", "campaign"):
            kept = {k: v for k, v in self.options.items() if k not in ("replay", "campaign")}
            self.param.update(options={**kept, kind: (name.removeprefix(f"{kind}s/"),)}, page="replay")
            self.param.trigger("page")  # the page may be open with another one

    def _canary_of(self, trace: str) -> str | None:
        """A canary compiled from a trace: by content where that is known, else by its name."""
        canaries = [a.name for a in self.workspace.list("canary")]
        made = [c for c in canaries if trace in known_sources(self.workspace, c)]
        return best_canary(trace, made) or (made[0] if made else best_canary(trace, canaries))

    def _source_of(self, canary: str) -> str | None:
        """The trace that a canary was compiled from: by content where that is known, else by its name."""
        sources = known_sources(self.workspace, canary)
        stem = canary.split(".")[0]
        named = [a.name for a in self.workspace.list("trace") if a.name.split(".")[0] == stem]
        if sources:
            return next((s for s in [self.trace, *named] if s in sources), sources[0])
        return named[0] if named else self.trace

    def address(self, name: str, kind: str, sources: Sequence[str] = ()) -> str:
        """Return the address that opens an artifact on the page that suits its kind.

        Parameters
        ----------
        name, kind : str
            The artifact.
        sources : sequence of str
            Traces that a canary was made from.
        """
        page = {"trace": "overview", "canary": "canary", "ledger": "minimise", "replay": "replay", "campaign": "replay"}.get(kind, "review")
        key = "candidate" if kind == "report" else kind
        value = name.removeprefix(f"{kind}s/") if kind in ("replay", "campaign") else name
        query = {"page": page, "trace": sources[0] if kind == "canary" and sources else None, key: value}
        if kind == "trace":
            query["trace"] = name
        query["theme"] = "dark" if self.dark else None
        return "?" + urlencode({k: v for k, v in query.items() if v})

    def changed(self) -> None:
        """Say that the workspace has changed."""
        self.revision += 1


def first_trace(traces: list[Artifact]) -> str | None:
    """Return the trace that a new visitor sees: the richest one that opens at once."""
    quick = [a for a in traces if a.size_bytes <= _QUICK_BYTES] or traces
    return max(quick, key=lambda a: (a.size_bytes, a.name)).name if quick else None


def best_canary(trace: str | None, canaries: list[str]) -> str | None:
    """Return the canary whose name begins like the trace's; without a trace, the first."""
    stem = (trace or "").split(".")[0]
    matching = [c for c in canaries if stem and c.startswith(stem + ".")]
    return (matching or ([] if stem else canaries) or [None])[0]


def sidebar_label(text: str, *, section: bool = False, margin: Any = (0, 0, 4, 0)) -> Any:
    """Return the heading of a part of the side bar, or the label of a control."""
    style = "font-size:11.5px;letter-spacing:.06em;text-transform:uppercase;font-weight:700" if section else "font-size:12px"
    return html(f'<div style="{style};color:var(--m)">{escape(text)}</div>', margin=margin)
