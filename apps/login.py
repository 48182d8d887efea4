"""Logging in: Panel's login and OAuth, with hashed passwords, bounded attempts, and a list of who may come in."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from panel.auth import BasicAuthProvider, BasicLoginHandler, LogoutHandler, OAuthProvider, _validate_next_url
from panel.config import config
from panel.io.state import state
from tornado.ioloop import IOLoop
from tornado.web import HTTPError

from .users import Users

__all__ = ["Attempts", "ListedOAuth", "PasswordLogin"]

_ASSETS = Path(__file__).with_name("assets")
#: One after another: a hash takes a quarter of a second and 32 MiB, and must not be a way to stop the server.
_HASHING = ThreadPoolExecutor(1, thread_name_prefix="workbench-login")
_MAX_WAITING = 8
_WRONG = "The name or the password is wrong."


class Attempts:
    """Wrong passwords of each address: after some, it has to wait.

    Parameters
    ----------
    most : int
        Wrong ones in the period.
    period_s : float
        Seconds.

    Examples
    --------
    >>> now = [0.0]
    >>> attempts = Attempts(2, 60, clock=lambda: now[0])
    >>> attempts.wrong("10.0.0.9"), attempts.wrong("10.0.0.9"), attempts.wait_s("10.0.0.9"), attempts.wait_s("10.0.0.8")
    (None, None, 60.0, 0.0)
    >>> now[0] = 60.0
    >>> attempts.wait_s("10.0.0.9")
    0.0
    """

    _MAX_ADDRESSES = 10_000

    def __init__(self, most: int = 10, period_s: float = 300.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._period_s, self._clock = most, period_s, clock
        self._times: OrderedDict[str, list[float]] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """Return how long an address has to wait; 0 if it may try."""
        now = self._clock()
        times = [t for t in self._times.get(address, ()) if now - t < self._period_s]
        return self._period_s - (now - times[-self._most]) if len(times) >= self._most else 0.0

    def wrong(self, address: str) -> None:
        """Count a wrong password."""
        now = self._clock()
        times = [t for t in self._times.pop(address, ()) if now - t < self._period_s]
        self._times[address] = [*times, now][-self._most :]
        while len(self._times) > self._MAX_ADDRESSES:
            self._times.popitem(last=False)


class _Login(BasicLoginHandler):
    """The page that asks for name and password."""

    users: Users
    attempts: Attempts
    secure = False
    _waiting = 0

    def get(self) -> None:
        """Show the page; nothing that the address says is shown in it."""
        if next_url := _validate_next_url(self.get_argument("next", state.base_url)):
            self.set_cookie("next_url", next_url, httponly=True, samesite="Lax", secure=self.secure)
        self._show()

    async def post(self) -> None:  # type: ignore[override]
        """Check name and password."""
        name, password, address = self.get_argument("username", ""), self.get_argument("password", "", strip=False), self.request.remote_ip
        wait = self.attempts.wait_s(address)
        if wait or _Login._waiting >= _MAX_WAITING:
            self.set_status(429)
            self.set_header("Retry-After", str(int(wait) + 1))
            self._show("Too many attempts. Try again in a few minutes.")
            return
        _Login._waiting += 1
        try:
            right = await IOLoop.current().run_in_executor(_HASHING, self.users.check, name, password)
        finally:
            _Login._waiting -= 1
        if not right:
            self.attempts.wrong(address)
            self.set_status(401)
            self._show(_WRONG)
            return
        self.set_current_user(name)
        self.redirect(_validate_next_url(self.get_cookie("next_url", state.base_url)) or "/")

    def set_current_user(self, user: str) -> None:
        """Keep who it is in a signed cookie that no script can read."""
        days = config.oauth_expiry
        self.set_signed_cookie("user", user, expires_days=days, httponly=True, path=config.cookie_path, samesite="Lax", secure=self.secure)

    def _show(self, problem: str = "") -> None:
        self.set_header("Cache-Control", "no-store")
        self.set_header("Content-Type", "text/html; charset=UTF-8")
        self.finish(self._login_template.render(login_endpoint=self._login_endpoint, errormessage=problem))


class _Named:
    """Tells the page who has opened it. The name comes from the cookie of this very request, never from what a page sends."""

    users: Users

    def _listed(self, handler: Any, user: str | None) -> str | None:
        if user is not None and self.users.role(user) is None:
            return None
        handler.request.lab_user = user
        return user


class PasswordLogin(_Named, BasicAuthProvider):
    """Names and passwords of a file.

    Parameters
    ----------
    users : Users
        Who may come in.
    secure : bool
        The cookie is sent over TLS only.
    """

    def __init__(self, users: Users, *, secure: bool) -> None:
        self.users, self._secure, self._attempts = users, secure, Attempts()
        super().__init__(login_template=_ASSETS / "login.html", logout_template=_ASSETS / "logout.html")

    @property
    def get_user(self) -> Callable[[Any], str | None]:
        """The function that says who sent a request; None for nobody in the file."""
        found = BasicAuthProvider.get_user.fget(self)  # type: ignore[attr-defined]
        return lambda handler: self._listed(handler, found(handler))

    @property
    def login_handler(self) -> type[BasicLoginHandler]:
        """The login page."""
        given = {"users": self.users, "attempts": self._attempts, "secure": self._secure}
        return type("Login", (_Login,), {**given, "_login_endpoint": self._login_endpoint, "_login_template": self._login_template})

    @property
    def logout_handler(self) -> type[LogoutHandler]:
        """The page after logging out."""
        return type("Logout", (LogoutHandler,), {"_logout_template": self._logout_template, "_login_endpoint": self._login_endpoint})


class ListedOAuth(_Named, OAuthProvider):
    """A login elsewhere, for those whom a file lists.

    Parameters
    ----------
    users : Users
        Names as the provider gives them, and roles.
    """

    def __init__(self, users: Users) -> None:
        self.users = users
        super().__init__(logout_template=_ASSETS / "logout.html")

    @property
    def get_user_async(self) -> Callable[[Any], Any]:
        """The function that says who sent a request; who is not in the file is refused, and not sent round in circles."""
        found = OAuthProvider.get_user_async.fget(self)  # type: ignore[attr-defined]

        async def get_user(handler: Any) -> str | None:
            user = await found(handler)
            if user is not None and self._listed(handler, user) is None:
                raise HTTPError(403, reason="This account is not in the list of users of this workbench")
            return user

        return get_user
