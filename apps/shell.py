"""The frame around the pages: header with tabs, what is open, the controls of the page, loading and errors."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.views.extra import panel as load_panel
from commcanary_lab.views.markup import html
from commcanary_lab.views.saving import define as define_save_links
from commcanary_lab.views.theme import THEME_CONFIG
from commcanary_lab.workspace import Artifact, ResultCache, Workspace

from .accessible import AccessibleNames
from .click_guard import ClickGuard
from .gradual import Gradual
from .layout_guard import LayoutGuard
from .page import GAP, Built, PageSpec, Selection, empty, failure
from .pages import PAGES
from .session import Session, best_canary, first_trace, sidebar_label
from .timers import after, every
from .tour import TourBar
from .visitor_chip import account

__all__ = ["Shell", "create", "shared_workspace"]

_WATCH_MS = 3000
#: How soon after the answer to the browser, and how often until it connects, the page is made if it is known.
_AHEAD_MS = 20
_SKELETON_MS = 180
_SETTLE_S = 0.35
#: Shown by an empty select; no file has this name.
_NONE = "/"
_WORKSPACES: dict[Path, Workspace] = {}
_CACHE = ResultCache()
define_save_links()  # the first page that a server shows may have no chart yet

_PAGE_SX = {
    # these two values make pmui leave the palette inside the header alone; the next rule sets what is shown
    ".MuiAppBar-root": {"bgcolor": "primary.contrastText", "color": "primary.main"},
    "& .header": {"backgroundColor": "var(--mui-palette-background-paper)", "color": "var(--mui-palette-text-primary)", "boxShadow": "none",
                  "borderBottom": "1px solid var(--mui-palette-divider)", "backgroundImage": "none"},
    "& .header .MuiToolbar-root": {"minHeight": "56px", "margin": 0},
    "& .header .title": {"color": "var(--mui-palette-text-primary) !important", "fontSize": "17px", "fontWeight": 700},
    "& .header .logo": {"height": "30px !important"},
    "& .MuiToolbar-root": {"minHeight": "56px !important"},
    "& .sidebar": {"borderRight": "1px solid var(--mui-palette-divider)", "backgroundColor": "var(--mui-palette-background-paper)"},
    "& .main": {"backgroundColor": "var(--mui-palette-background-default)"},
    "& .main-content": {"padding": "20px 28px 48px", "boxSizing": "border-box"},
}  # fmt: skip


def shared_workspace() -> Workspace:
    """Return the workspace of this server: the folder named by ``COMMCANARY_LAB_WORKSPACE``, else ``workspace``."""
    path = Path(os.environ.get("COMMCANARY_LAB_WORKSPACE") or "workspace").resolve()
    if path not in _WORKSPACES:
        _WORKSPACES[path] = Workspace(path, _CACHE)
    return _WORKSPACES[path]


def create(*names: str) -> Any:
    """Return the app of one visitor: all pages, or those that are named."""
    load_panel()
    return Shell(Session(shared_workspace()), tuple(p for p in PAGES if not names or p.name in names)).page


class Shell:
    """The frame of one visitor."""

    def __init__(self, session: Session, pages: tuple[PageSpec, ...] = PAGES) -> None:
        self.session = session
        self.pages = pages
        self._job: Any = None
        self._shown: Any = None
        self._spec_shown: PageSpec | None = None
        self._listed: Any = None
        self._put_at = 0.0
        self._filling = False
        self._loaded = False
        self._at_once = False
        self.tabs = pmui.TabMenu(
            items=[{"label": p.title} for p in pages],
            active=self._index(),
            margin=(0, 0, 0, 28),
            align="end",
            sx={
                "& .MuiTab-root": {"color": "var(--mui-palette-text-secondary)"},
                "& .MuiTab-root.Mui-selected": {"color": "var(--mui-palette-text-primary)"},
                "& .MuiTabs-indicator": {"height": "2px", "backgroundColor": "var(--mui-palette-primary-main)"},
            },
        )
        self.trace = pmui.Select(
            label="Trace", options=[], sizing_mode="stretch_width", margin=(0, 0, 12, 0), size="small", variant="outlined"
        )
        self.canary = pmui.Select(label="Canary", options=[], sizing_mode="stretch_width", margin=0, size="small", variant="outlined")
        self._controls = Gradual(sizing_mode="stretch_width", margin=0)
        # Panel's limit, the height of the window, would cut the cards that are taller
        tall = {"sizing_mode": "stretch_width", "margin": 0, "styles": {"max-height": "none"}}
        self._content = Gradual(**tall)
        self.content = self._content.view
        self._skeleton = skeletons()
        self.tour = TourBar(session, tuple(p.name for p in pages))
        self.body = pn.Column(self.tour.view, self._skeleton, self.content, **tall)
        self._list()
        side = pn.Column(
            sidebar_label("Open", section=True, margin=(4, 0, 12, 0)),
            self.trace,
            self.canary,
            self._controls.view,
            sizing_mode="stretch_width",
            margin=0,
            styles={"padding": "18px 20px"},
        )
        self.page = pmui.Page(
            title="CommCanary Lab",
            logo=Path(__file__).with_name("assets") / "logo.svg",
            favicon=Path(__file__).with_name("assets") / "logo.svg",
            header=[self.tabs, pn.layout.HSpacer(), *account(session), self.tour.button] if len(pages) > 1 else account(session),
            sidebar=[side],
            main=[self.body, *(unseen(margin=0, width=0, height=0) for unseen in (AccessibleNames, LayoutGuard, ClickGuard))],
            sidebar_width=288,
            sidebar_resizable=False,
            busy_indicator=None,
            theme_config=THEME_CONFIG,
            dark_theme=session.dark,
            sx=_PAGE_SX,
            meta_description="Communication canaries, from trace to verdict",
        )
        _let_go(self.page)
        if pn.state.curdoc is not None:
            pn.state.on_session_destroyed(lambda _: self._ended())
        self._ahead = self._gather_ahead()
        self._wire()  # where nothing is served, the page is filled in at once

    def _wire(self) -> None:
        self.tabs.param.watch(self._tab, "active")
        self.trace.param.watch(lambda e: self._pick("trace", e.new), "value")
        self.canary.param.watch(lambda e: self._pick("canary", e.new), "value")
        self.page.param.watch(lambda e: setattr(self.session, "dark", e.new), "dark_theme")
        self.session.param.watch(lambda *_: self.show(), ["page", "trace", "canary"])
        self.session.param.watch(lambda *_: self._rescan(), "revision")
        pn.state.onload(self._started)

    def _ended(self) -> None:
        """The visitor is gone. HoloViews keeps the streams of every plot that nobody cleans up."""
        for part in (self.body, self._controls.view):
            for pane in part.select(pn.pane.HoloViews):
                for plot, _ in list(pane._plots.values()):
                    plot.cleanup()
                pane._plots.clear()

    def _gather_ahead(self) -> tuple[PageSpec, Selection, Any] | None:
        """Begin to gather what the page shows: the browser takes a moment before it asks for the document."""
        spec, selection = self.pages[self._index()], self.session.selection
        document = pn.state.curdoc
        if document is None or (spec.needs and getattr(selection, spec.needs) is None):
            return None
        workspace = self.session.workspace
        future = self.session.jobs.ahead(lambda: spec.gather(workspace, selection))
        if future is None:
            return None
        document.add_timeout_callback(self._make_ahead, _AHEAD_MS)
        return spec, selection, future

    def _make_ahead(self) -> None:
        """Put the page into the document before the browser fetches it, where that can be done."""
        context = pn.state.curdoc.session_context if pn.state.curdoc is not None else None
        if self._ahead is None or self._loaded or context is None or context.session is None or context.session.connection_count:
            return
        spec, selection, future = self._ahead
        if not future.done():
            pn.state.curdoc.add_timeout_callback(self._make_ahead, _AHEAD_MS)
        elif not future.cancelled() and future.exception() is None:
            self._ahead = None
            if (spec, selection) == (self.pages[self._index()], self.session.selection):
                self._at_once = True
                self._build(spec, future.result())

    def _started(self) -> None:
        self._loaded = True
        every(_WATCH_MS, self._rescan)
        if not self._at_once:
            self.show()

    # -- what is open -------------------------------------------------------------------------------------------------

    def _index(self) -> int:
        names = [p.name for p in self.pages]
        return names.index(self.session.page) if self.session.page in names else 0

    def _tab(self, event: Any) -> None:
        if event.new is not None and 0 <= event.new < len(self.pages):
            self.session.page = self.pages[event.new].name

    def _pick(self, kind: str, name: str | None) -> None:
        if not self._filling and name and name != _NONE and name != getattr(self.session, kind):
            self.session.open(name)

    def _list(self) -> None:
        """Fill the selects; an artifact that the address names and the folder lacks stays visible as missing."""
        artifacts = self.session.workspace.list()
        self._listed = artifacts
        for kind, select in (("trace", self.trace), ("canary", self.canary)):
            names = [a.name for a in artifacts if a.kind == kind]
            current = getattr(self.session, kind)
            options = names + ([current] if current and current not in names else [])
            choices = {**({} if current else {"none": _NONE}), **dict(zip(options, options, strict=True))}
            if select.options != choices or select.value != (current or _NONE):
                self._filling = True  # what the program sets is not a choice of the user
                try:
                    select.param.update(options=choices, value=current or _NONE, disabled=not options)
                finally:
                    self._filling = False

    def _rescan(self) -> None:
        """Follow the folder: new files appear, nothing moves when nothing changed."""
        if self.session.visitor.role is None:  # taken out of the file of users while the page was open
            self._controls.show([])
            self._content.show([failure("You are no longer a user", "Ask who serves this workbench.")])
            self.trace.disabled = self.canary.disabled = self.tabs.disabled = True
            return
        artifacts = self.session.workspace.list()
        if artifacts == self._listed:
            return
        before, now = self._shown_artifacts(self._listed), self._shown_artifacts(artifacts)
        canaries = [a.name for a in artifacts if a.kind == "canary"]
        trace = self.session.trace or first_trace([a for a in artifacts if a.kind == "trace"])
        self.session.param.update(trace=trace, canary=self.session.canary or best_canary(trace, canaries))
        self._list()
        if self.session.folder is not None:
            self.session.folder.refresh()
        if before != now:
            self.show()

    def _open_artifacts(self, artifacts: list[Artifact] | None) -> list[Artifact]:
        return [a for a in artifacts or [] if a.name in (self.session.trace, self.session.canary)]

    def _shown_artifacts(self, artifacts: list[Artifact] | None) -> list[Artifact]:
        """What the page in view rests on."""
        follows = self.pages[self._index()].follows
        return [a for a in artifacts or [] if a.kind in follows] + self._open_artifacts(artifacts)

    # -- the page -----------------------------------------------------------------------------------------------------

    def show(self) -> None:
        """Show the current page; what takes time runs in a worker, and a newer request replaces an older one."""
        if self.session.visitor.role is None:
            return
        self._list()
        if self.tabs.active != self._index():
            self.tabs.active = self._index()
        if self._job is not None:
            self._job.cancel()
        spec = self.pages[self._index()]
        selection = self.session.selection
        if spec.needs and getattr(selection, spec.needs) is None:
            self._put(spec, Built([empty(*_MISSING[spec.needs])]))
            return
        workspace = self.session.workspace
        self._await(spec)
        gathered = self._ahead[2] if self._ahead is not None and self._ahead[:2] == (spec, selection) else None
        self._ahead = None
        self._job = self.session.jobs.start(
            lambda: spec.gather(workspace, selection) if gathered is None else gathered.result(),
            lambda data: self._build(spec, data),
            lambda text: self._put(spec, Built([failure("This page cannot be shown", text)])),
        )

    def _await(self, spec: PageSpec) -> None:
        """Show a skeleton, but only when the work takes longer than a glance."""
        job_before = self._job

        def skeleton() -> None:
            if self._job is not job_before and not self._job.cancelled and self._shown is not self._job:
                self._skeleton.visible, self.content.visible = True, False

        after(_SKELETON_MS, skeleton)

    def _build(self, spec: PageSpec, data: Any) -> None:
        try:
            built = spec.build(data, self.session)
        except Exception as e:
            from .jobs import describe

            built = Built([failure("This page cannot be shown", describe(e))])
        self._put(spec, built)

    def _put(self, spec: PageSpec, built: Built) -> None:
        """Exchange the content, but never while the browser may still be building the last one: then children get lost."""
        self._shown = job = self._job
        wait_s = self._put_at + _SETTLE_S - time.monotonic()
        if wait_s <= 0:
            self._exchange(spec, built)
        else:
            after(int(1000 * wait_s) + 1, lambda: self._exchange(spec, built) if self._job is job else None)

    def _exchange(self, spec: PageSpec, built: Built) -> None:
        self._put_at = time.monotonic()
        for part in built.main:
            part.margin = (0, 0, GAP, 0)
        opened, self._spec_shown = spec is not self._spec_shown, spec
        # a page that is made anew stays as long as it is, so that nobody loses the place that they look at
        self._content.show(built.main, spec.first if opened else None)
        self._skeleton.visible, self.content.visible = False, True
        label = [sidebar_label(spec.title, section=True, margin=(28, 0, 12, 0))] if built.controls else []
        self._controls.show([*label, *built.controls], 0 if opened else None)


def _let_go(page: Any) -> None:
    """Stop the page from watching whether the server is busy: the server's state would keep it, and all that it shows, for ever."""
    for watcher in list(pn.state.param.watchers.get("busy", {}).get("value", [])):
        if getattr(getattr(watcher.fn, "__self__", None), "self", None) is page:
            pn.state.param.unwatch(watcher)


_MISSING = {
    "trace": ("No trace is open", "Choose one at the left, or upload one on the Overview page: a commcanary.trace.v1 file or a profile."),
    "canary": ("No canary is open", "Choose one at the left, or open a trace and compile it here."),
}


def skeletons() -> Any:
    """Return the loading state: the outline of a page."""

    def bone(width: str, height: int) -> str:
        return f'<div style="width:{width};height:{height}px;border-radius:8px;background:var(--s);margin-bottom:16px"></div>'

    return html(
        f'<div aria-label="Loading" role="status">{bone("38%", 14)}{bone("64%", 26)}{bone("100%", 92)}{bone("100%", 340)}</div>',
        visible=False,
    )
