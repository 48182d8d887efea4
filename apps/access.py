"""Who a visitor is, and what the visitor may do. Every function that changes something asks here; buttons only follow."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Any

from commcanary_lab.errors import LabError

from .users import Role, Users

__all__ = ["NotAllowedError", "Rules", "Visitor", "operate_with", "rules", "visitor"]


class NotAllowedError(LabError, PermissionError):
    """The visitor may look, and not change anything."""


@dataclass(frozen=True)
class Rules:
    """Who may do what on this server.

    Parameters
    ----------
    users : Users, optional
        Where there is a login: names and roles.
    read_only : bool
        Everybody is a viewer.
    anybody : bool
        Without a login, visitors from other machines are operators, too.
    """

    users: Users | None = None
    read_only: bool = False
    anybody: bool = False

    def role(self, name: str, is_local: bool) -> tuple[Role | None, str]:
        """Return the role of a visitor, and why it is no more than viewer; None for one who may not even look.

        Examples
        --------
        >>> Rules().role("", is_local=True), Rules().role("", is_local=False)[0], Rules(read_only=True).role("", is_local=True)[0]
        (('operator', ''), 'viewer', 'viewer')
        """
        found: Role | None = "operator" if is_local or self.anybody else "viewer"
        why = "" if found == "operator" else "you are not on the machine that serves it, and it has no login"
        if self.users is not None:
            found = self.users.role(name) if name else None
            why = (
                "" if found == "operator" else f"you are here as {name}, a viewer" if found else f"{name!r} is not a user of this workbench"
            )
        if found == "operator" and self.read_only:
            return "viewer", "this workbench is served read-only"
        return found, why


@dataclass
class _Serving:
    rules: Rules = field(default_factory=Rules)


_NOW = _Serving()


def operate_with(new: Rules) -> None:
    """Set the rules of this server. Without that, who comes from this machine is an operator, and others are viewers."""
    _NOW.rules = new


def rules() -> Rules:
    """Return the rules of this server."""
    return _NOW.rules


@dataclass(frozen=True)
class Visitor:
    """One visitor: fixed when the page is opened. The role follows the file of users.

    Parameters
    ----------
    name : str
        As logged in; empty without a login.
    is_local : bool
        Comes from this machine, or there is no server at all.
    """

    name: str = ""
    is_local: bool = True

    @property
    def role(self) -> Role | None:
        """What the visitor is now."""
        return rules().role(self.name, self.is_local)[0]

    @property
    def operates(self) -> bool:
        """Whether the visitor may change something."""
        return self.role == "operator"

    @property
    def why_not(self) -> str:
        """Say why the visitor may only look; empty for an operator."""
        role, why = rules().role(self.name, self.is_local)
        return "" if role == "operator" else why[:1].upper() + why[1:]

    def limit(self, *controls: Any) -> None:
        """Disable controls that change something, with the reason as their tooltip, unless the visitor may use them."""
        if why := self.why_not:
            for control in controls:
                control.param.update(disabled=True, description=f"For operators. {why}.")

    def require(self, what: str) -> None:
        """Refuse unless the visitor may change something.

        Parameters
        ----------
        what : str
            What is about to be done: "deleting", "a replay".

        Raises
        ------
        NotAllowedError
        """
        role, why = rules().role(self.name, self.is_local)
        if role != "operator":
            raise NotAllowedError(f"{what} needs the role operator: {why}", remedy="ask who serves this workbench")


def visitor() -> Visitor:
    """Return who has opened the page that is being made; the caller itself where there is no server."""
    import panel as pn

    document = pn.state.curdoc
    context = document.session_context if document is not None else None
    if context is None:
        return Visitor()
    request: Any = context.request
    address = getattr(request, "remote_ip", None)
    try:
        is_local = address is not None and ipaddress.ip_address(address).is_loopback
    except ValueError:
        is_local = False
    return Visitor(str(getattr(request, "lab_user", "") or ""), is_local)
