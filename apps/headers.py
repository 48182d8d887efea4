"""What every answer says to the browser: guess no types, show me in no frame, ask for nothing elsewhere, run no strange script."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from typing import Any

from tornado.httputil import HTTPHeaders
from tornado.web import OutputTransform

__all__ = ["SecurityHeaders", "content_policy"]

_SCRIPT = re.compile(rb"<script\b([^>]*)>(.*?)</script\s*>", re.IGNORECASE | re.DOTALL)
_TYPE = re.compile(rb"\btype\s*=\s*[\"']?([^\"'\s>]*)", re.IGNORECASE)
#: Types of scripts that run; the others are data.
_RUNS = (b"", b"text/javascript", b"application/javascript", b"module")
#: Where Panel tells its loader of modules how to work. The loader tries what the browser can in scripts that it writes itself.
_LOADER = b'<script type="esms-options">{"shimMode": true}</script>'


def content_policy(page: bytes = b"", nonce: str = "") -> str:
    """Return the content policy of an answer.

    Scripts come from the server, or stand in the page as it was sent: these are allowed one by one, by their SHA-256. What a text brings
    into the page later is none of them, so that neither ``<script>`` nor ``onerror=`` in it runs. BokehJS compiles templates and
    callbacks (``unsafe-eval``) and loads its modules from ``blob:``; styles are written into elements (``unsafe-inline``).

    Parameters
    ----------
    page : bytes
        HTML whose scripts are allowed; anything else has none.
    nonce : str
        What else may run: scripts that carry this random word.

    Examples
    --------
    >>> content_policy(b"<script>a()</script><script type='application/json'>{}</script>").partition("script-src ")[2].partition(";")[0]
    "'self' 'unsafe-eval' blob: 'sha256-qVpDBgj7bpq5hMAcGp3AOc79J3Y1Z4HvySTwKrWDoy4='"
    """
    hashes = []
    for attributes, text in _SCRIPT.findall(page):
        found = _TYPE.search(attributes)
        if text.strip() and (found.group(1).lower() if found else b"") in _RUNS:
            hashes.append(f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode('ascii')}'")
    words = [f"'nonce-{nonce}'"] if nonce else []
    rules = {
        "default-src": "'self'",
        "script-src": " ".join(["'self'", "'unsafe-eval'", "blob:", *dict.fromkeys(hashes), *words]),
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "connect-src": "'self' blob: data:",
        "worker-src": "'self' blob:",
        "object-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


class SecurityHeaders(OutputTransform):
    """Adds the headers; Tornado passes every answer through it: pages, files, redirects and errors."""

    def transform_first_chunk(self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool) -> tuple[int, Any, bytes]:
        """Set the headers of one answer; a page is sent in one piece."""
        is_page = headers.get("Content-Type", "").startswith("text/html")
        nonce = ""
        if is_page and finishing and _LOADER in chunk:
            nonce = secrets.token_urlsafe(16)
            chunk = chunk.replace(_LOADER, _LOADER.replace(b"true}", b'true, "nonce": "%s"}' % nonce.encode("ascii")), 1)
            headers["Content-Length"] = str(len(chunk))
        headers["Content-Security-Policy"] = content_policy(chunk if is_page and finishing else b"", nonce)
        headers["X-Content-Type-Options"] = "nosniff"
        headers["X-Frame-Options"] = "DENY"
        headers["Referrer-Policy"] = "same-origin"  # without any, a browser would send the login with the origin null
        headers["Cross-Origin-Opener-Policy"] = "same-origin"
        headers["Cross-Origin-Resource-Policy"] = "same-origin"
        headers["Permissions-Policy"] = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"
        for name in ("Server", "Access-Control-Allow-Origin", "Access-Control-Allow-Headers", "Access-Control-Allow-Methods",
                     "Access-Control-Allow-Credentials"):  # fmt: skip
            headers.pop(name, None)
        return status_code, headers, chunk
