"""The policy of a review, as numbers to change: what a rollout may cost before the verdict turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import panel as pn
import panel_material_ui as pmui
from bokeh.models import CustomJSTickFormatter

from commcanary_lab.errors import LabError
from commcanary_lab.review.policy import Policy, parse_policy
from commcanary_lab.views.markup import html, message
from commcanary_lab.views.tables import download

from .session import sidebar_label

__all__ = ["PolicyPanel", "policy_from", "policy_values"]

_MAX_FILE_BYTES = 1 << 16

#: Rows of the editor for each kind of comparison: thresholds, each with its label.
_ROWS: dict[str, tuple[tuple[tuple[str, str], ...], ...]] = {
    "reports": (
        (("p99_threshold_pct", "p99, %"), ("p99_absolute_threshold_us", "and, us")),
        (("p95_threshold_pct", "p95, %"), ("p95_absolute_threshold_us", "and, us")),
        (("median_threshold_pct", "Median, %"), ("median_absolute_threshold_us", "and, us")),
        (("breakdown_threshold_pct", "Each part, %"), ("breakdown_absolute_threshold_us", "and, us")),
        (("hidden_drop_threshold_points", "Hidden, points"), ("warn_fraction", "Warns from share")),
    ),
    "measured": (
        (("median_threshold_pct", "Median, %"), ("median_absolute_threshold_us", "and, us")),
        (("p95_threshold_pct", "p95, %"), ("p95_absolute_threshold_us", "and, us")),
        (("measured_confidence", "Confidence"), ("measured_inconclusive_pct", "Undecided, %")),
        (("measured_resamples", "Resamples"), ("measured_seed", "Seed")),
    ),
}
#: Smallest and largest value and step, where they are not 0, none and 1.
_SPANS: dict[str, tuple[float, float | None, float]] = {
    "warn_fraction": (0, 1, 0.05),
    "measured_confidence": (0.5, 0.9999, 0.01),
    "measured_inconclusive_pct": (0, 100, 1),
    "measured_resamples": (100, 1_000_000, 100),
}
_HALF = {"flex": "1 1 0px", "min-width": "0"}
_WHOLE = ("measured_resamples", "measured_seed")

_HELP = {
    "reports": "Allowed growth. A latency fails only where it exceeds both its share and its time; a part is a phase or an operation.",
    "measured": "Allowed growth. An operation fails where its whole interval lies above both its share and its time.",
}


def policy_values(policy: Policy) -> tuple[str, ...]:
    """Return what an address keeps of a policy: the thresholds that differ from the defaults.

    Examples
    --------
    >>> policy_values(Policy(p99_threshold_pct=5.5)), policy_values(Policy())
    (('p99_threshold_pct=5.5',), ())
    """
    return tuple(f"{name}={value!r}" for name, value in policy.changed().items())


def policy_from(values: tuple[str, ...]) -> Policy:
    """Return the policy that an address asks for.

    Raises
    ------
    LabError
        If a name is unknown or a value is no number in range.

    Examples
    --------
    >>> policy_from(("p99_threshold_pct=5.5",)).p99_threshold_pct, policy_from(()) == Policy()
    (5.5, True)
    """
    return parse_policy("\n".join(values).encode(), file="the address")


class PolicyPanel:
    """The editor; every change goes to `changed` at once.

    Parameters
    ----------
    kind : {"reports", "measured"}
        Which thresholds it shows.
    policy : Policy
        What it shows first; thresholds of the other kind are kept.
    changed : callable
        Takes the new policy.
    """

    def __init__(self, kind: str, policy: Policy, changed: Callable[[Policy], None]) -> None:
        self.kind, self.policy = kind, policy
        self._changed = changed
        self._filling = False
        self._inputs: dict[str, Any] = {}
        rows = [pn.Row(*(self._input(*cell) for cell in row), sizing_mode="stretch_width", margin=0) for row in _ROWS[kind]]
        self._problem = html("", visible=False, margin=(4, 0, 6, 0))
        self._file = pmui.FileInput(
            label="Policy from a TOML file", accept=".toml", variant="outlined", sizing_mode="stretch_width", margin=(2, 0, 4, 0),
            uploaded_label="Policy from a TOML file", max_file_size=_MAX_FILE_BYTES, sx={"fontWeight": 400},
        )  # fmt: skip
        self._file.param.watch(self._read, "value")
        self._defaults = pmui.Button(label="Defaults", variant="text", size="small", margin=0, disabled=policy == Policy())
        self._defaults.on_click(lambda _: self._take(Policy()))
        save = download(lambda: self.policy.to_toml(self.kind), "policy.toml", "Save as TOML")
        save.param.update(margin=0, width=140)
        note = html(f'<p class="muted" style="font-size:12px">{_HELP[kind]}</p>', margin=(0, 0, 14, 0))
        self.view: list[Any] = [
            sidebar_label("Policy", section=True, margin=(24, 0, 8, 0)),
            note,
            *rows,
            self._file,
            self._problem,
            pn.Row(self._defaults, save, sizing_mode="stretch_width", margin=0),
        ]

    def _input(self, name: str, label: str) -> Any:
        value = getattr(self.policy, name)
        whole = name in _WHOLE
        start, end, step = _SPANS.get(name, (0, None, 1))
        make = pmui.IntInput if whole else pmui.FloatInput
        style = {"size": "small", "variant": "outlined", "sizing_mode": "stretch_width", "margin": (0, 4, 12, 4)}
        # a text that changed when the field gets the focus would lose its selection, and what is typed would be appended to it
        as_typed = CustomJSTickFormatter(code="return String(tick)")
        widget = make(label=label, value=value, start=start, end=end, step=step, format=as_typed, styles=_HALF, **style)
        widget.param.watch(lambda e: self._edited(name, e.new), "value")
        self._inputs[name] = widget
        return widget

    def _edited(self, name: str, value: Any) -> None:
        if self._filling or value is None:
            return
        try:
            policy = Policy.from_mapping({**self.policy.to_json(), name: value})
        except LabError as e:
            self._refuse(str(e))
            return
        if policy != self.policy:  # a field that repeats what was set takes no message away
            self._take(policy)

    def _read(self, event: Any) -> None:
        if not event.new:
            return
        try:
            policy = parse_policy(event.new, file=str(self._file.filename))
        except LabError as e:
            self._refuse(str(e))
            return
        self._take(policy)

    def _refuse(self, text: str) -> None:
        self._problem.object = f'<div class="cl">{message("The policy was not changed", text, "err")}</div>'
        self._problem.visible = True

    def _take(self, policy: Policy) -> None:
        """Show a policy and pass it on."""
        self.policy = policy
        self._problem.visible = False
        self._defaults.disabled = policy == Policy()
        self._filling = True  # what the program sets is not a choice of the user
        try:
            for name, widget in self._inputs.items():
                if widget.value != getattr(policy, name):
                    widget.value = getattr(policy, name)
        finally:
            self._filling = False
        self._changed(policy)
