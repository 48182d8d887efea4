"""The search for the provenance graph of a workspace: facts of each artifact, matched by SHA-256 values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from commcanary_lab.errors import LabError
from commcanary_lab.trace.model import Trace
from commcanary_lab.workspace.artifact import Artifact
from commcanary_lab.workspace.facts import FACTS, Facts, Origin, identity, look
from commcanary_lab.workspace.folder import Workspace
from commcanary_lab.workspace.openers import OPENERS
from commcanary_lab.workspace.provenance import Edge, Node, Provenance

__all__ = ["MAX_LOOKED_BYTES", "find_provenance", "known_sources"]

#: Larger artifacts are not opened in the background to see what they are; a visitor may ask for it.
MAX_LOOKED_BYTES = 256 << 20
#: Pairs of measured traces that are tried for one comparison.
_MAX_PAIRS = 400

_WORDS = {
    "events": "same events: SHA-256 {}",
    "canary": "same canary: SHA-256 {}",
    "report": "same report: SHA-256 {}",
    "workload": "same simulated work: SHA-256 {}",
    "measured": "same measured latencies: SHA-256 {}",
    "kept": "same kept events: SHA-256 {}",
}


def find_provenance(workspace: Workspace, *, large: bool = False, cancelled: Callable[[], bool] = lambda: False) -> Provenance:
    """Find the graph of a workspace. What was found out about an unchanged artifact comes from the index.

    Parameters
    ----------
    workspace : Workspace
    large : bool
        Also open artifacts of more than `MAX_LOOKED_BYTES`.
    cancelled : callable
        Asked between two artifacts; when it says yes, the graph of what is known so far is returned.

    Returns
    -------
    Provenance

    Examples
    --------
    >>> import tempfile
    >>> import commcanary_lab as lab
    >>> w = Workspace(tempfile.mkdtemp())
    >>> _ = lab.write(lab.samples.adversarial(), w.path / "apple.json")
    >>> _ = lab.write(lab.compile(lab.samples.adversarial()), w.path / "pear.json")
    >>> [(e.child, e.role, e.parent) for e in find_provenance(w).edges]
    [('pear.json', 'compiled from', 'apple.json')]
    """
    return _Search(workspace, large, cancelled).run()


def known_sources(workspace: Workspace, name: str) -> list[str]:
    """Return the traces that an artifact was made from, as far as the index knows already; nothing is opened."""
    facts = _indexed(workspace, name)
    if facts is None:
        return []
    wanted = {(o.scheme, o.sha256) for o in facts.origins if o.sha256}
    found = []
    for artifact in workspace.list("trace"):
        theirs = _indexed(workspace, artifact.name)
        if theirs is not None and any((s, v) in wanted for s, v in theirs.identities.items()):
            found.append(artifact.name)
    return found


def _indexed(workspace: Workspace, name: str) -> Facts | None:
    stored = workspace.known_fact(name, FACTS)
    return None if stored is None else _decoded(stored)


def _decoded(stored: bytes) -> Facts | None:
    try:
        return msgspec.json.decode(stored, type=Facts)
    except (msgspec.MsgspecError, RecursionError):
        return None


@dataclass
class _Search:
    workspace: Workspace
    large: bool
    cancelled: Callable[[], bool]
    facts: dict[str, Facts] = field(default_factory=dict)
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def run(self) -> Provenance:
        for artifact in self.workspace.list():
            if artifact.kind != "other":
                self.artifacts[artifact.name] = artifact
        for artifact in self.artifacts.values():
            self._look(artifact)
        edges: list[Edge] = []
        missing: dict[str, Node] = {}
        found = self._matches()
        for name, facts in self.facts.items():
            for origin in facts.origins:
                parents = [p for p in found.get((origin.scheme, origin.sha256), ()) if self.artifacts[p].kind in origin.kinds and p != name]
                if origin.scheme == "measured":
                    continue
                known = _known(origin)
                edges += [Edge(p, name, origin.role, known) for p in parents]
                if not parents and origin.expected:
                    node = _missing(origin)
                    missing[node.name] = node
                    edges.append(Edge(node.name, name, origin.role, known))
            edges += self._measured(name, facts, missing)
        nodes = [Node(a.name, a.kind, a.summary) for a in self.artifacts.values()]
        unread = {**{n: f.problem for n, f in self.facts.items() if f.problem}, **self.skipped}
        order = {n.name: i for i, n in enumerate([*nodes, *missing.values()])}
        edges = sorted(set(edges), key=lambda e: (order[e.child], order[e.parent], e.role))
        return Provenance((*nodes, *missing.values()), tuple(edges), tuple(sorted(unread.items())))

    def _look(self, artifact: Artifact) -> None:
        facts = _indexed(self.workspace, artifact.name)
        if facts is None:
            if self.cancelled():
                self.skipped[artifact.name] = "not looked at yet"
                return
            if artifact.size_bytes > MAX_LOOKED_BYTES and not self.large and artifact.kind in OPENERS:
                self.skipped[artifact.name] = "large; not opened to see what it was made from"
                return
            try:
                path = self.workspace.place(artifact.name)
                stored = self.workspace.fact(artifact.name, FACTS, lambda: msgspec.json.encode(look(path, artifact)))
            except LabError as e:  # removed a moment ago, or a link leads out
                self.skipped[artifact.name] = e.problems[0].what
                return
            except OSError as e:
                self.skipped[artifact.name] = f"cannot be read: {e.strerror}"
                return
            facts = _decoded(stored) or Facts(problem="cannot be read")
            self.workspace.index.flush()
        self.facts[artifact.name] = facts

    def _matches(self) -> Mapping[tuple[str, str], Sequence[str]]:
        """Artifacts by scheme and SHA-256; what is not among the facts is computed, one opening per artifact."""
        wanted: dict[str, dict[int | None, tuple[str, ...]]] = defaultdict(dict)
        for facts in self.facts.values():
            for o in facts.origins:
                if o.sha256 and o.scheme not in ("report", "kept", "measured"):
                    wanted[o.scheme][o.events] = tuple({*wanted[o.scheme].get(o.events, ()), *o.kinds})
        found: dict[tuple[str, str], list[str]] = defaultdict(list)
        for name, facts in self.facts.items():
            kind = self.artifacts[name].kind
            ids = dict(facts.identities)
            lacking = [
                scheme
                for scheme, by_events in wanted.items()
                if scheme not in ids and any(kind in kinds and n in (None, facts.events) for n, kinds in by_events.items())
            ]
            if kind in ("trace", "canary") and not facts.problem:
                ids |= self._identities(name, [s for s in lacking if s != "canary" or kind == "canary"])
            for scheme, value in ids.items():
                if value:
                    found[scheme, value].append(name)
        return found

    def _identities(self, name: str, schemes: Sequence[str]) -> dict[str, str]:
        out: dict[str, str] = {}
        opened: object = None
        for scheme in schemes:
            what = f"identity 1 {scheme}"
            stored = self.workspace.known_fact(name, what)
            if stored is None:
                if self.cancelled():
                    continue
                try:
                    opened = opened if opened is not None else OPENERS[self.artifacts[name].kind](self.workspace.path / name)
                except (LabError, OSError):
                    return out
                value = identity(opened, scheme)
                stored = self.workspace.fact(name, what, value.encode)
            out[scheme] = stored.decode("ascii", "replace")
        return out

    # -- measured comparisons -----------------------------------------------------------------------------------------

    def _measured(self, name: str, facts: Facts, missing: dict[str, Node]) -> list[Edge]:
        """The names of operations depend on the pair that is compared, so pairs are tried."""
        sides = [o for o in facts.origins if o.scheme == "measured"]
        if len(sides) != 2:
            return []
        stated = (sides[0].sha256, sides[1].sha256)
        pair = self._pair(sides, stated)
        edges = []
        for origin, parent in zip(sides, pair or (None, None), strict=True):
            if parent is None:
                node = _missing(origin)
                missing[node.name] = node
                parent = node.name
            edges.append(Edge(parent, name, origin.role, _known(origin)))
        return edges

    def _pair(self, sides: Sequence[Origin], stated: tuple[str, str]) -> tuple[str, str] | None:
        left, right = ([n for n, f in self.facts.items() if f.measured and f.events == side.events] for side in sides)
        for a, b in [(a, b) for a in left for b in right][:_MAX_PAIRS]:
            if self.cancelled():
                return None
            marks = [":".join(map(str, self.artifacts[n].stamp)) for n in (a, b)]
            what = f"measured 1 against {b} {marks[1]}"
            try:
                stored = self.workspace.fact(a, what, lambda a=a, b=b: "\n".join(self._latencies(a, b)).encode())  # type: ignore[misc]
            except (LabError, OSError):
                continue
            if tuple(stored.decode("ascii", "replace").split("\n")) == stated:
                return a, b
        return None

    def _latencies(self, a: str, b: str) -> tuple[str, str]:
        from commcanary_lab.review.latencies import latencies, latencies_sha256, matched

        opened = [OPENERS["trace"](self.workspace.path / n) for n in (a, b)]
        one, two = (latencies(t) for t in opened if isinstance(t, Trace))
        x, y = matched(one, two)
        return latencies_sha256(x), latencies_sha256(y)


def _known(origin: Origin) -> str:
    if not origin.sha256:
        return "salted: only who has the salt can tell"
    what, _, rest = origin.scheme.partition(" ")
    more = f" ({rest})" if rest else ""
    return _WORDS[what].format(f"{origin.sha256[:12]}…") + more


def _missing(origin: Origin) -> Node:
    kind = origin.kinds[0]
    what = "trace or canary" if len(origin.kinds) > 1 else kind
    events = f", {origin.events:,} events" if origin.events is not None else ""
    if not origin.sha256:
        return Node(f"/{kind} salted{events}", kind, f"Source is salted{events}: it cannot be told which {what} it is", True)
    return Node(
        f"/{origin.scheme} {origin.sha256}", kind, f"{what.capitalize()} not in this workspace, SHA-256 {origin.sha256[:12]}…{events}", True
    )
