"""Who may log in, and as what: a file of names, roles and scrypt hashes. It holds no password."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
import stat
import threading
from pathlib import Path
from typing import Literal, get_args

import msgspec

from commcanary_lab.canonical import write_atomic
from commcanary_lab.errors import InputError, UsageError
from commcanary_lab.files import read_file

__all__ = ["MIN_PASSWORD", "Role", "Users", "add_user", "hashed", "matches"]

Role = Literal["viewer", "operator"]

#: Characters; length is what makes guessing hopeless.
MIN_PASSWORD = 12
_MAX_PASSWORD = 1024
#: Cost of new hashes: 32 MiB and about a quarter of a second each.
_N, _R, _P = 1 << 15, 8, 3
_SALT_BYTES, _HASH_BYTES = 16, 32
#: What a file may ask for: a hash of it must not take the server down.
_MAX_N, _MAX_R, _MAX_P = 1 << 18, 32, 16
_NAME = re.compile(r"[\w.@+-]{1,64}", re.ASCII)
_REMEDY = "make it with: commcanary-lab serve --users FILE --add-user NAME --role viewer"


class _User(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    role: Role
    password: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    users: list[_User]
    format: Literal["commcanary_lab.users.v1"] = "commcanary_lab.users.v1"


def hashed(password: str) -> str:
    """Return the hash of a password, with its own salt and cost.

    Raises
    ------
    UsageError
        If the password is shorter than `MIN_PASSWORD` characters, or longer than 1,024.

    Examples
    --------
    >>> kept = hashed("correct horse battery")
    >>> kept.split("$")[:4], matches("correct horse battery", kept), matches("correct horse", kept)
    (['scrypt', '32768', '8', '3'], True, False)
    """
    if not MIN_PASSWORD <= len(password) <= _MAX_PASSWORD:
        raise UsageError(f"the password has {len(password)} characters", remedy=f"use {MIN_PASSWORD} to {_MAX_PASSWORD:,}")
    salt = secrets.token_bytes(_SALT_BYTES)
    made = _scrypt(password, salt, _N, _R, _P)
    return "$".join(["scrypt", str(_N), str(_R), str(_P), *(base64.b64encode(b).decode("ascii") for b in (salt, made))])


def matches(password: str, kept: str) -> bool:
    """Say whether a password has a hash; False for a hash that makes no sense."""
    try:
        n, r, p, salt, expected = _parts(kept)
    except ValueError:
        return False
    return len(password) <= _MAX_PASSWORD and hmac.compare_digest(_scrypt(password, salt, n, r, p), expected)


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode("utf-8", "surrogatepass"), salt=salt, n=n, r=r, p=p, maxmem=256 * n * r, dklen=_HASH_BYTES)


def _parts(kept: str) -> tuple[int, int, int, bytes, bytes]:
    kind, *numbers, salt, expected = kept.split("$")
    n, r, p = (int(x) for x in numbers)
    if kind != "scrypt" or not (2 <= n <= _MAX_N and n & (n - 1) == 0 and 1 <= r <= _MAX_R and 1 <= p <= _MAX_P):
        raise ValueError("no scrypt hash")
    plain = base64.b64decode(salt, validate=True), base64.b64decode(expected, validate=True)
    if len(plain[0]) < 8 or len(plain[1]) != _HASH_BYTES:
        raise ValueError("no scrypt hash")
    return n, r, p, *plain


class Users:
    """The users of a server. The file is read again when it changes: who is taken out of it is out at the next click.

    Parameters
    ----------
    path : Path
        A file of the format ``commcanary_lab.users.v1``.

    Raises
    ------
    InputError
        If it cannot be read, is not such a file, or others may write it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._users: dict[str, _User] = {}
        #: Compared with for names that do not exist, so that the time of an answer does not tell them.
        self._nobody = hashed(secrets.token_hex(16))
        self._load(must=True)

    def role(self, name: str) -> Role | None:
        """Return the role of a user; None for a name that is not in the file."""
        self._load()
        found = self._users.get(name)
        return found.role if found is not None else None

    def check(self, name: str, password: str) -> bool:
        """Say whether a user has this password. Takes a quarter of a second, whatever the answer is."""
        self._load()
        found = self._users.get(name)
        right = matches(password, found.password if found is not None and found.password else self._nobody)
        return right and found is not None and bool(found.password)

    @property
    def have_passwords(self) -> bool:
        """Whether anybody in the file can log in with a password."""
        return any(u.password for u in self._users.values())

    def _load(self, must: bool = False) -> None:
        """Follow the file. One that was damaged or taken away lets nobody in, until it is repaired."""
        with self._lock:
            try:
                info = os.stat(self.path)
                stamp = info.st_mtime_ns, info.st_size, info.st_ino
                if stamp == self._stamp:
                    return
                self._users = {u.name: u for u in _read(self.path).users}
                self._stamp = stamp
            except (OSError, InputError) as e:
                self._users, self._stamp = {}, None
                if must:
                    raise (
                        e if isinstance(e, InputError) else InputError(f"cannot be read: {e.strerror}", file=str(self.path), remedy=_REMEDY)
                    ) from None


def _read(path: Path) -> _File:
    data = read_file(path, max_bytes=1 << 20, remedy=_REMEDY)
    if os.name == "posix" and os.stat(path).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InputError("others may write this file, and so let themselves in", file=str(path), remedy=f"chmod 600 {path}")
    try:
        found = msgspec.json.decode(data, type=_File)
        names = [u.name for u in found.users]
        if len(set(names)) != len(names):
            raise InputError("a name occurs twice", file=str(path), remedy="keep one of the two")
        for user in found.users:
            if user.password:
                _parts(user.password)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as e:
        if isinstance(e, InputError):
            raise
        raise InputError(f"no file of users: {e}", file=str(path), remedy=_REMEDY) from None
    return found


def add_user(path: Path, name: str, role: Role, password: str = "") -> bool:
    """Add a user to a file, or give one another role and password; the file is made if there is none.

    Parameters
    ----------
    path : Path
        The file; only its owner may read it afterwards.
    name : str
        Letters, digits and ``. _ @ + -``; with OAuth, what the provider calls the user.
    role : {"viewer", "operator"}
        What the user may do.
    password : str
        Empty for somebody who logs in with OAuth.

    Returns
    -------
    bool
        True if the user is new.

    Raises
    ------
    UsageError
        If the name, the role or the password is refused.
    InputError
        If the file is damaged or cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a user", remedy="use letters, digits and . _ @ + -, up to 64")
    if role not in get_args(Role):
        raise UsageError(f"{role!r} is no role", remedy=f"choose from {', '.join(get_args(Role))}")
    user = _User(name, role, hashed(password) if password else "")
    known = _read(path).users if path.exists() else []
    kept = [u for u in known if u.name != name]
    text = msgspec.json.format(msgspec.json.encode(_File([*kept, user])), indent=1) + b"\n"
    try:
        write_atomic(path, text)
        os.chmod(path, 0o600)
    except OSError as e:
        raise InputError(f"cannot be written: {e.strerror}", file=str(path), remedy="choose another file") from None
    return len(kept) == len(known)
