"""How the workbench is served: where it listens, who may come in, and which combinations are refused."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from commcanary_lab.errors import InputError, UsageError
from commcanary_lab.files import read_file

__all__ = ["OAuth", "ServeOptions", "is_loopback"]

_MIN_SECRET = 16


@dataclass(frozen=True)
class OAuth:
    """A login elsewhere. What is not given, Panel reads from its environment variables ``PANEL_OAUTH_*``.

    Parameters
    ----------
    provider : str
        One that Panel knows: ``github``, ``gitlab``, ``azure``, ``okta``, ``google``, ``auth0``, ``generic``, ...
    key : str
        The public identifier of this workbench there.
    secret_file : Path, optional
        A file with the secret: an argument could be read by every user of the machine.
    redirect_uri : str
        Where the provider sends visitors back to.
    user_field : str
        Which field of the provider's answer is the name.
    """

    provider: str
    key: str = ""
    secret_file: Path | None = None
    redirect_uri: str = ""
    user_field: str = ""


@dataclass(frozen=True)
class ServeOptions:
    """How to serve a workspace.

    Parameters
    ----------
    workspace : Path
        The folder with traces and canaries; made if it does not exist.
    port : int
        TCP port; 0 picks a free one.
    show : bool
        Open a browser window.
    address : str
        Where it listens.
    public : tuple of str
        Names, with port where it is not the usual one, under which others reach it.
    users : Path, optional
        The file of users; there is a login then.
    oauth : OAuth, optional
        The login is elsewhere; `users` says who may come in, and as what.
    read_only : bool
        Everybody is a viewer.
    unsafe_no_login : bool
        Other machines may come in without a login.
    ssl_certfile, ssl_keyfile : Path, optional
        TLS.
    behind_tls_proxy : bool
        A proxy in front speaks TLS, and is believed when it says whom it speaks for.
    cookie_secret_file : Path, optional
        Signs who is logged in; without it a restart logs everybody out.
    max_sessions : int
        Open pages.
    max_ranks : int
        Processes of one replay that is started here.
    """

    workspace: Path
    port: int = 5006
    show: bool = False
    address: str = "127.0.0.1"
    public: tuple[str, ...] = ()
    users: Path | None = None
    oauth: OAuth | None = None
    read_only: bool = False
    unsafe_no_login: bool = False
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    behind_tls_proxy: bool = False
    cookie_secret_file: Path | None = None
    max_sessions: int = 64
    max_ranks: int = 64

    @property
    def exposed(self) -> bool:
        """Whether other machines can reach it, as far as the options say."""
        return not is_loopback(self.address) or any(not is_loopback(_name(n)) for n in self.public)

    @property
    def has_login(self) -> bool:
        """Whether visitors must log in."""
        return self.users is not None or self.oauth is not None

    @property
    def is_encrypted(self) -> bool:
        """Whether what a browser sends is encrypted on its way."""
        return self.ssl_certfile is not None or self.behind_tls_proxy

    @property
    def names(self) -> frozenset[str]:
        """Names of this server; where it is exposed, also those of the machine."""
        found = {"localhost", self.address.lower(), *(_name(n) for n in self.public)}
        if self.exposed:
            found |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        return frozenset(n for n in found if n and n not in ("0.0.0.0", "::"))

    def check(self) -> None:
        """Refuse what would be unsafe.

        Raises
        ------
        UsageError
            With the way to do it.

        Examples
        --------
        >>> ServeOptions(Path("w"), address="0.0.0.0").check()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        commcanary_lab.errors.UsageError: '0.0.0.0' is not a loopback address, and there is no login; use 127.0.0.1 ...
        """
        for name in self.public:
            if urlsplit(f"//{name}").netloc != name or not _name(name):
                raise UsageError(f"{name!r} is no name of a server", remedy="give a name, and a port where it is not the usual one")
        if self.exposed and not self.has_login and not self.unsafe_no_login:
            where = self.address if not is_loopback(self.address) else next(n for n in self.public if not is_loopback(_name(n)))
            raise UsageError(
                f"{where!r} is not a loopback address, and there is no login",
                remedy="use 127.0.0.1 and an SSH tunnel, or --users FILE; --unsafe-no-login lets everybody in",
            )
        if self.has_login and self.unsafe_no_login:
            raise UsageError("--unsafe-no-login contradicts the login", remedy="leave it out")
        if self.exposed and self.has_login and not self.is_encrypted:
            raise UsageError(
                "passwords and cookies would cross the network unencrypted",
                remedy="give --ssl-certfile and --ssl-keyfile, or say --behind-tls-proxy where a proxy speaks TLS",
            )
        if self.oauth is not None and self.users is None:
            raise UsageError("OAuth says who somebody is, not who may come in", remedy="list names and roles with --users FILE --add-user")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise UsageError("--ssl-keyfile without --ssl-certfile", remedy="give both")
        if self.users is not None and self.users.resolve().is_relative_to(self.workspace.resolve()):
            raise UsageError(f"{self.users} lies in the workspace", remedy="keep the file of users elsewhere")

    def cookie_secret(self) -> str:
        """Return what signs cookies: of the file, of ``COMMCANARY_LAB_COOKIE_SECRET``, or random.

        Raises
        ------
        LabError
            If the secret is short, or others may read its file.
        """
        if self.cookie_secret_file is None:
            found = os.environ.get("COMMCANARY_LAB_COOKIE_SECRET") or secrets.token_urlsafe(32)
        else:
            found = read_secret(self.cookie_secret_file)
        if len(found) < _MIN_SECRET:
            raise UsageError(f"the cookie secret has {len(found)} characters", remedy=f"use at least {_MIN_SECRET} random ones")
        return found


def read_secret(path: Path) -> str:
    """Return the text of a file that only its owner may read.

    Raises
    ------
    InputError
        If it cannot be read, or others may read it.
    """
    text = read_file(path, max_bytes=4096).decode("utf-8", "replace").strip()
    if os.name == "posix" and os.stat(path).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError("others may read this secret", file=str(path), remedy=f"chmod 600 {path}")
    return text


def is_loopback(address: str) -> bool:
    """Say whether an address or a name is this machine only."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address.lower() == "localhost"


def _name(netloc: str) -> str:
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""
