"""Logging in and roles, on a real server: who may come in, and what a viewer can do even with a tampered page."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("panel")

from tornado.httpclient import HTTPClientError

from apps.users import Users, add_user
from tests.apps.served import ROOT, Served, ask, click, connection, document, event, models, patch, receive, token_of

PASSWORDS = {"olga": "a long password of olga", "vera": "a long password of vera", "gone": "a long password of gone"}
PROGRAM = [sys.executable, "-m", "commcanary_lab.cli", "serve"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    base = tmp_path_factory.mktemp("login")
    folder = base / "workspace"
    folder.mkdir()
    for name in ("gloo4.json", "tp8_decode.json"):
        shutil.copy(ROOT / "data" / "samples" / name, folder)
    for name, role in (("olga", "operator"), ("vera", "viewer"), ("gone", "operator")):
        told = subprocess.run(
            [*PROGRAM, "--users", str(base / "users.json"), "--add-user", name, "--role", role], input=PASSWORDS[name] + "\n", text=True,
            cwd=ROOT, capture_output=True, check=True,
        )  # fmt: skip
        assert told.stdout.startswith(f"{name} may log in: {role}")
    running = Served(folder, "--users", str(base / "users.json"))
    yield running
    running.stop()
    assert "Traceback" not in "".join(running.output), "".join(running.output)


@pytest.fixture(scope="module")
def cookies(server: Served) -> dict[str, str]:
    return {name: server.log_in(name, PASSWORDS[name]) for name in PASSWORDS}


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 180))


# -- who comes in -----------------------------------------------------------------------------------------------------


def test_nobody_sees_anything_without_logging_in(server: Served) -> None:
    got = server.ask()
    assert (got.status, got.headers["location"].partition("?")[0].lstrip(".")) == (302, "/login")
    page = server.ask("/login")
    assert page.status == 200
    assert not re.search(r"(src|href|action)=[\"']?(https?:)?//", page.text)  # nothing of it comes from elsewhere
    assert "'unsafe-inline'" not in page.headers["content-security-policy"].partition("script-src")[2].partition(";")[0]
    assert server.ask("/workbench/metadata").status == 302


def test_a_websocket_needs_the_cookie(server: Served, cookies: dict[str, str]) -> None:
    token = token_of(server.ask(Cookie=cookies["vera"]).text)

    async def go(**headers: str) -> None:
        async with connection(server, token, Origin=f"http://{server.host}", **headers):
            pass

    for headers in ({}, {"Cookie": "user=vera"}, {"Cookie": "user=" + cookies["vera"][6:30]}, {"Cookie": "is_guest=1"}):
        with pytest.raises(HTTPClientError) as refused:
            run(go(**headers))
        assert refused.value.code == 403


@pytest.mark.parametrize(
    ("name", "password"), [("olga", "wrong"), ("nobody", PASSWORDS["olga"]), ("", ""), ("olga", ""), ("olga", "x" * 3000)]
)
def test_a_wrong_name_and_a_wrong_password_get_the_same_answer(server: Served, name: str, password: str) -> None:
    got = server.ask("/login", "POST", {"username": name, "password": password})
    assert got.status == 401
    assert "The name or the password is wrong." in got.text
    assert not got.cookies


def test_what_the_address_of_the_login_page_says_is_not_shown(server: Served) -> None:
    assert "call 555" not in server.ask("/login?error=call+555").text
    assert server.ask("/login?next=https://evil.example/").status == 400
    assert server.ask("/login?next=//evil.example/").status == 400


def test_the_cookie_is_kept_from_scripts_and_from_other_sites(server: Served) -> None:
    got = server.ask("/login", "POST", {"username": "olga", "password": PASSWORDS["olga"]})
    kept = next(c for c in got.cookies if c.startswith("user="))
    assert "HttpOnly" in kept
    assert "SameSite=Lax" in kept
    assert PASSWORDS["olga"] not in str(got)


def test_the_page_does_not_carry_the_cookie(server: Served, cookies: dict[str, str]) -> None:
    from bokeh.util.token import get_token_payload

    page = server.ask(Cookie=cookies["olga"], Authorization="Bearer my-own-secret").text
    value = cookies["olga"].partition("=")[2].strip('"')
    assert value not in page
    payload = json.dumps(get_token_payload(token_of(page)), default=str)
    assert value not in payload
    assert "my-own-secret" not in payload


def test_another_site_cannot_log_somebody_in(server: Served) -> None:
    form = {"username": "olga", "password": PASSWORDS["olga"]}
    assert server.ask("/login", "POST", form, Origin="http://evil.example").status == 403


def test_the_page_of_another_visitor_is_of_no_use(server: Served, cookies: dict[str, str]) -> None:
    """A viewer who has got the page of an operator, with its token, is not connected to it."""
    token = token_of(server.ask(Cookie=cookies["olga"]).text)

    async def go() -> Any:
        async with connection(server, token, Origin=f"http://{server.host}", Cookie=cookies["vera"]) as link:
            return await asyncio.wait_for(link.read_message(), 30)

    assert run(go()) is None


# -- what a viewer can do ---------------------------------------------------------------------------------------------


async def opened(server: Served, cookie: str, query: str, *clicks: str) -> str:
    """Open a page, take every lock off in the browser, press buttons; return what is shown afterwards."""
    page = server.ask(f"/workbench?{query}", Cookie=cookie)
    async with connection(server, token_of(page.text), Origin=f"http://{server.host}", Cookie=cookie) as link:
        await receive(link)
        await ask(link, "PATCH-DOC", event("document_ready"))
        for label in clicks:
            for _ in range(100):
                if found := models(await document(link), label):
                    break
                await asyncio.sleep(0.2)
            else:
                raise AssertionError(f"no control {label}")
            for model in found:
                await ask(link, "PATCH-DOC", patch(model, disabled=False))
                await ask(link, "PATCH-DOC", click(model))
            await asyncio.sleep(1.5)
        return json.dumps(await document(link))


def listing(server: Served) -> list[str]:
    return sorted(p.relative_to(server.folder).as_posix() for p in server.folder.rglob("*") if ".commcanary" not in p.as_posix())


@pytest.mark.parametrize(
    ("query", "button"),
    [("page=canary&trace=gloo4.json", "Compile this trace"), ("page=replay&trace=gloo4.json&run_of=trace&run_ranks=2", "Run")],
)
def test_a_viewer_presses_in_vain(server: Served, cookies: dict[str, str], query: str, button: str) -> None:
    before = [n for n in listing(server) if not n.startswith(".")]
    text = run(opened(server, cookies["vera"], query, button))
    assert "needs the role operator: you are here as vera, a viewer" in text
    assert [n for n in listing(server) if not n.startswith(".")] == before


def test_an_operator_presses_and_it_happens(server: Served, cookies: dict[str, str]) -> None:
    run(opened(server, cookies["olga"], "page=canary&trace=gloo4.json", "Compile this trace"))
    deadline = time.monotonic() + 60
    while not (server.folder / "gloo4.lossless.canary.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_viewer_sees_why(server: Served, cookies: dict[str, str]) -> None:
    text = run(opened(server, cookies["vera"], "page=overview&trace=gloo4.json"))
    assert "Uploads are for operators. You are here as vera, a viewer." in text
    assert "Drop files here" not in text
    assert "Log out" in text


def test_who_is_taken_out_of_the_file_is_out(server: Served, cookies: dict[str, str]) -> None:
    assert server.ask(Cookie=cookies["gone"]).status == 200
    path = server.folder.parent / "users.json"
    kept = json.loads(path.read_text())
    kept["users"] = [u for u in kept["users"] if u["name"] != "gone"]
    path.write_text(json.dumps(kept))
    assert server.ask(Cookie=cookies["gone"]).status == 302
    assert server.ask("/login", "POST", {"username": "gone", "password": PASSWORDS["gone"]}).status == 401


def test_guessing_is_slowed_down(server: Served) -> None:
    """The last test here: after it, this address may not log in for a while."""
    for _ in range(12):
        got = server.ask("/login", "POST", {"username": "olga", "password": "guess"})
        if got.status == 429:
            break
    assert got.status == 429
    assert int(got.headers["retry-after"]) > 60
    assert server.ask("/login", "POST", {"username": "olga", "password": PASSWORDS["olga"]}).status == 429


# -- the file of users ------------------------------------------------------------------------------------------------


def test_the_file_holds_no_password_and_is_the_owners(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    assert add_user(path, "olga", "operator", PASSWORDS["olga"])
    assert not add_user(path, "olga", "viewer", PASSWORDS["olga"])
    assert PASSWORDS["olga"] not in path.read_text()
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    users = Users(path)
    assert users.role("olga") == "viewer"
    assert users.check("olga", PASSWORDS["olga"])
    assert not users.check("olga", PASSWORDS["olga"] + " ")
    assert not users.check("vera", PASSWORDS["olga"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "no file of users"),
        ('{"format": "commcanary_lab.users.v1", "users": [{"name": "a", "role": "admin"}]}', "no file of users"),
        ('{"format": "commcanary_lab.users.v1", "users": [{"name": "a", "role": "viewer", "password": "plain text"}]}', "no file of users"),
        ('{"format": "commcanary_lab.users.v1", "users": [{"name": "a", "role": "viewer", "password": "scrypt$1073741824$8$1$AAAA$AAAA"}]}',
         "no scrypt hash"),
        ('{"format": "commcanary_lab.users.v1", "users": [{"name": "a", "role": "viewer"}, {"name": "a", "role": "viewer"}]}', "twice"),
    ],
)  # fmt: skip
def test_a_damaged_file_lets_nobody_in(tmp_path: Path, content: str, words: str) -> None:
    from commcanary_lab.errors import InputError

    path = tmp_path / "users.json"
    add_user(path, "olga", "operator", PASSWORDS["olga"])
    users = Users(path)
    path.write_text(content)
    os.utime(path, (1, 1))
    assert users.role("olga") is None
    with pytest.raises(InputError, match=words):
        Users(path)


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    from commcanary_lab.errors import InputError

    path = tmp_path / "users.json"
    add_user(path, "olga", "operator", PASSWORDS["olga"])
    path.chmod(0o666)
    with pytest.raises(InputError, match="others may write"):
        Users(path)


# -- where it listens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--address", "0.0.0.0"], "is not a loopback address, and there is no login"),
        (["--public-name", "bench.example.com"], "is not a loopback address, and there is no login"),
        (["--address", "0.0.0.0", "--users", "{users}"], "unencrypted"),
        (["--unsafe-no-login", "--users", "{users}"], "contradicts"),
        (["--oauth-provider", "github"], "OAuth says who somebody is"),
        (["--oauth-provider", "nobody", "--users", "{users}"], "unknown OAuth provider"),
        (["--oauth-provider", "github", "--users", "{users}"], "OAuth needs PANEL_OAUTH_KEY"),
        (["--users", "{workspace}/users.json"], "lies in the workspace"),
        (["--users", "/nowhere/users.json"], "cannot be read"),
        (["--ssl-keyfile", "key.pem"], "without --ssl-certfile"),
        (["--public-name", "a/b"], "is no name of a server"),
        (["--add-user", "olga"], "needs --users"),
    ],
)
def test_unsafe_options_are_refused_before_anything_listens(tmp_path: Path, options: list[str], words: str) -> None:
    add_user(tmp_path / "users.json", "olga", "operator", PASSWORDS["olga"])
    given = [o.format(users=tmp_path / "users.json", workspace=tmp_path / "w") for o in options]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PANEL_")}
    told = subprocess.run(
        [*PROGRAM, "--workspace", str(tmp_path / "w"), "--port", "0", *given], text=True, cwd=ROOT, capture_output=True, timeout=90,
        env=environment, check=False,
    )  # fmt: skip
    assert told.returncode in (2, 3)
    assert words in told.stderr
    assert "http" not in told.stdout


def test_the_unsafe_way_is_loud_and_read_only_is_obeyed(tmp_path: Path) -> None:
    shutil.copy(ROOT / "data" / "samples" / "gloo4.json", tmp_path)
    running = Served(tmp_path, "--address", "0.0.0.0", "--unsafe-no-login", "--read-only", "--max-sessions", "2")
    try:
        assert "WARNING: --unsafe-no-login: EVERYBODY" in "".join(running.output)
        text = run(opened(running, "", "page=canary&trace=gloo4.json", "Compile this trace"))
        assert "needs the role operator: this workbench is served read-only" in text
        assert sorted(n for n in os.listdir(tmp_path) if not n.startswith(".")) == ["gloo4.json"]
        assert running.ask().status == 200
        full = running.ask()
        assert (full.status, full.headers["retry-after"]) == (503, "20")
        assert "The workbench is full" in full.text
        assert "2 pages are open" in full.text
    finally:
        running.stop()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
def test_tls_with_a_login_may_listen_elsewhere(tmp_path: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj",
         "/CN=localhost"], cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    add_user(tmp_path / "users.json", "olga", "operator", PASSWORDS["olga"])
    pem = ["--ssl-certfile", str(tmp_path / "cert.pem"), "--ssl-keyfile", str(tmp_path / "key.pem")]
    running = Served(tmp_path / "w", "--address", "0.0.0.0", "--users", str(tmp_path / "users.json"), *pem)
    try:
        got = running.ask("/login", "POST", {"username": "olga", "password": PASSWORDS["olga"]})
        kept = next(c for c in got.cookies if c.startswith("user="))
        assert "Secure" in kept
        cookie = kept.partition(";")[0]
        token = token_of(running.ask(Cookie=cookie).text)

        async def go() -> Any:
            async with connection(running, token, Origin=f"https://{running.host}", Cookie=cookie) as link:
                return (await receive(link))[0]["msgtype"]

        assert run(go()) == "ACK"
        plain = http.client.HTTPConnection("127.0.0.1", running.port, timeout=20)
        with contextlib.closing(plain):
            plain.request("GET", "/workbench")
            with pytest.raises((ConnectionError, http.client.HTTPException)):
                plain.getresponse()
    finally:
        running.stop()


def test_oauth_sends_visitors_to_the_provider_and_lets_nobody_in_without_it(tmp_path: Path) -> None:
    users = tmp_path / "users.json"
    add_user(users, "olga", "operator")
    secret = tmp_path / "secret"
    secret.write_text("the secret of this workbench")
    secret.chmod(0o600)
    options = ["--users", str(users), "--oauth-provider", "github", "--oauth-key", "public-key", "--oauth-secret-file", str(secret),
               "--oauth-redirect-uri", "http://localhost:5006/login"]  # fmt: skip
    running = Served(tmp_path / "w", *options)
    try:
        assert running.ask().status == 302
        got = running.ask("/login")
        assert got.status == 302
        where = got.headers["location"]
        assert where.startswith("https://github.com/login/oauth/authorize?")
        assert "client_id=public-key" in where
        assert "state=" in where
        assert "the secret" not in where
        assert running.ask("/login?code=invented&state=invented").status >= 400  # a state that this server has not made
        assert running.ask(Cookie="user=olga; is_guest=1").status == 302
    finally:
        running.stop()
