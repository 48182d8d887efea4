"""A real server on this machine, and clients that mean it no good: hosts, origins, tokens, headers, paths in addresses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import Iterator

import pytest

pytest.importorskip("panel")

from tornado.httpclient import HTTPClientError

from commcanary_lab.errors import LabError
from commcanary_lab.workspace import Workspace
from tests.apps import served as wire
from tests.apps.served import ROOT, Served, connection, token_of

SAMPLES = ROOT / "data" / "samples"
#: A group of a trace beside the workspace; it must never reach a page of it.
SECRET = "group-of-somebody-else"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    base = tmp_path_factory.mktemp("machine")
    folder = base / "workspace"
    folder.mkdir()
    shutil.copy(SAMPLES / "gloo4.json", folder)
    outside = base / "outside"
    (outside / "job").mkdir(parents=True)
    event = {"op": "all_reduce", "bytes": 8, "ranks": 2, "group": SECRET, "phase": SECRET, "gap_us": 1}
    for place in (outside / "secret.json", outside / "job" / "rank0.json"):
        place.write_text(json.dumps({"format": "commcanary.trace.v1", "events": [event] * 3}))
    (folder / "link.json").symlink_to(outside / "secret.json")
    (folder / "linked").symlink_to(outside / "job")
    (folder / "half").mkdir()
    (folder / "half" / "rank0.json").symlink_to(outside / "secret.json")
    (folder / "deep").mkdir()
    (folder / "deep" / "inner").symlink_to(outside)
    (folder / "replays").mkdir()
    (folder / "replays" / "gone").symlink_to(outside / "job")
    (folder / "backends.toml").symlink_to(outside / "secret.json")
    running = Served(folder)
    yield running
    running.stop()
    output = "".join(running.output)
    assert "Traceback" not in output, output


@pytest.fixture(scope="module")
def token(server: Served) -> str:
    return token_of(server.ask().text)


def run(work: object) -> object:
    return asyncio.run(asyncio.wait_for(work, 120))  # type: ignore[arg-type]


async def shown(server: Served, query: str, *words: str) -> str:
    """What a browser is sent for an address, once it holds one of some words."""
    page = server.ask(f"/workbench?{query}")
    assert page.status == 200
    text = ""
    async with connection(server, token_of(page.text), Origin=f"http://{server.host}") as link:
        await wire.receive(link)
        await wire.ask(link, "PATCH-DOC", wire.event("document_ready"))
        for _ in range(100):
            text = json.dumps(await wire.document(link))
            if any(w in text for w in words):
                break
            await asyncio.sleep(0.15)
        else:
            raise AssertionError(f"none of {words} is shown: {text[-3000:]}")
    return text


# -- headers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/workbench", 200),
        ("/", 302),
        ("/static/js/bokeh.min.js", 200),
        ("/favicon.ico", 200),
        ("/nothing", 404),
        ("/workbench/metadata", 200),
    ],
)
def test_every_answer_has_the_headers(server: Served, path: str, status: int) -> None:
    got = server.ask(path)
    assert got.status == status
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["x-frame-options"] == "DENY"
    assert got.headers["referrer-policy"] == "same-origin"
    policy = dict(rule.split(" ", 1) for rule in got.headers["content-security-policy"].split("; "))
    assert policy["frame-ancestors"] == "'none'"
    assert "'unsafe-inline'" not in policy["script-src"]
    assert policy["connect-src"] == "'self' blob: data:"
    assert "server" not in got.headers
    assert not any(name.startswith("access-control-") for name in got.headers)


def test_a_page_allows_exactly_its_own_scripts(server: Served) -> None:
    first, second = server.ask().headers["content-security-policy"], server.ask().headers["content-security-policy"]
    assert first.count("'sha256-") >= 4
    assert first != second  # its nonce and its token are new each time


# -- where requests come from -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "user@127.0.0.1:{port}", "", "localhost.:x"]
)
def test_a_name_that_somebody_points_here_is_refused(server: Served, host: str) -> None:
    got = server.ask(Host=host.format(port=server.port))
    assert got.status in (400, 421)
    assert "token" not in got.text


@pytest.mark.parametrize("host", ["localhost:{port}", "127.0.0.1:{port}", "localhost:9", "[::1]:{port}", "192.168.7.7:8080"])
def test_own_names_addresses_and_tunnels_are_served(server: Served, host: str) -> None:
    assert server.ask("/workbench/metadata", Host=host.format(port=server.port)).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "script"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "iframe"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Dest": "image"},
    ],
)
def test_pages_of_other_sites_get_nothing(server: Served, headers: dict[str, str]) -> None:
    assert server.ask(**headers).status == 403
    assert server.ask("/workbench", "POST", {}, **headers).status == 403


def test_a_link_from_elsewhere_opens_the_page(server: Served) -> None:
    assert server.ask(Sec_Fetch_Site="cross-site", Sec_Fetch_Dest="document", Sec_Fetch_Mode="navigate").status == 200


def test_what_embeds_the_page_elsewhere_is_not_there(server: Served) -> None:
    assert server.ask("/workbench/autoload.js?bokeh-autoload-element=x").status == 404


def test_no_module_is_imported_because_a_request_names_it(server: Served) -> None:
    assert server.ask("/components/this/s/__css__/x").status == 404  # importing it prints a poem
    assert "Beautiful" not in "".join(server.output)


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:1", "null", "https://localhost.evil.example", "file://", "x"])
def test_a_websocket_of_another_site_is_refused(server: Served, token: str, origin: str) -> None:
    async def go() -> None:
        async with connection(server, token, Origin=origin):
            pass

    with pytest.raises(HTTPClientError) as refused:
        run(go())
    assert refused.value.code == 403


def test_a_websocket_of_the_page_is_served(server: Served, token: str) -> None:
    async def go() -> str:
        async with connection(server, token, Origin=f"http://{server.host}") as link:
            return str((await wire.receive(link))[0]["msgtype"])

    assert run(go()) == "ACK"


# -- tokens -----------------------------------------------------------------------------------------------------------


def forged(kind: str, token: str) -> str:
    from bokeh.util.token import generate_jwt_token, generate_session_id

    if kind == "unsigned":
        return generate_jwt_token(generate_session_id(signed=False), signed=False)
    if kind == "signed by somebody else":
        key = b"0" * 32
        return generate_jwt_token(generate_session_id(key, signed=True), secret_key=key, signed=True)
    if kind == "changed":
        return ("B" if token[20] != "B" else "C").join([token[:20], token[21:]])
    return kind


@pytest.mark.parametrize("kind", ["unsigned", "signed by somebody else", "changed", "nonsense"])
def test_only_tokens_of_this_server_open_a_session(server: Served, token: str, kind: str) -> None:
    wrong = forged(kind, token)

    async def go() -> object:
        async with connection(server, wrong, Origin=f"http://{server.host}") as link:
            return await asyncio.wait_for(link.read_message(), 30)

    assert run(go()) is None  # closed without a word
    assert server.ask("/workbench/metadata").status == 200


def test_nobody_chooses_the_name_of_a_session(server: Served) -> None:
    assert server.ask("/workbench?bokeh-session-id=mine").status == 403
    assert server.ask("/workbench", bokeh_session_id="mine").status == 403


# -- addresses --------------------------------------------------------------------------------------------------------

#: What a page may be asked to open; "{outside}" is the folder beside the workspace.
NAMES = [
    "../outside/secret.json", "{outside}/secret.json", "link.json", "linked", "linked/rank0.json", "half", "half/rank0.json", "deep",
    "deep/inner/secret.json", "replays/../../outside/secret.json", "replays/gone", "./../outside/secret.json", "..\\outside\\secret.json",
    "backends.toml", "CON", "a\0b", "\0", ".trash", ".", "..", "/", "", "x" * 5000, "gloo4.json/", "//gloo4.json", "replays/",
    "/etc/passwd", ".commcanary/index", "\ud800", "gloo4.json\0.png", "~/secret.json", "file:///etc/passwd", "C:\\secret.json",
]  # fmt: skip
#: Which of its kinds each choice in an address is opened as.
CHOICES = {
    "overview": ("trace",), "traffic": ("trace",), "timeline": ("trace",), "canary": ("canary",), "ablation": ("trace", "backends"),
    "ranking": ("trace", "backends"), "minimise": ("trace", "ledger"), "replay": ("replay", "campaign", "canary", "model"),
    "review": ("baseline", "candidate", "comparison"),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:40]))
def test_no_name_opens_what_is_outside(server: Served, name: str) -> None:
    """Every choice of every page, as an address makes it, without the server."""
    from apps.page import Selection
    from apps.pages import PAGES

    workspace = Workspace(server.folder)
    asked = name.format(outside=server.folder.parent / "outside")
    for artifact_of in (workspace.trace, workspace.canary, workspace.report, workspace.comparison, workspace.ledger, workspace.replay):
        with pytest.raises(LabError):
            artifact_of(asked)
    with pytest.raises(LabError):
        workspace.place(asked)
    for page in PAGES:
        for choice in CHOICES[page.name]:
            selection = Selection(**{choice: asked}) if choice in ("trace", "canary") else Selection("gloo4.json", None, {choice: (asked,)})
            try:
                found = repr(page.gather(workspace, selection))
            except LabError as e:
                found = str(e)
            assert SECRET not in found, (page.name, choice)
            assert "root:x:" not in found


def test_every_page_and_choice_is_tried() -> None:
    from apps.pages import PAGES

    assert {p.name for p in PAGES} == set(CHOICES)


@pytest.mark.parametrize(
    "query", ["page=overview&trace=../outside/secret.json", "page=overview&trace=deep", "page=overview&trace=link.json"]
)
def test_no_address_opens_what_is_outside(server: Served, query: str) -> None:
    text = str(run(shown(server, query, "cannot be opened")))
    assert SECRET not in text


@pytest.mark.parametrize(
    "query",
    [
        "page=replay&replay=../outside/job",
        "page=replay&campaign=gone",
        "page=minimise&ledger=/etc/passwd",
        "page=review&compare=reports&baseline=/etc/passwd&candidate=../outside/secret.json",
    ],
)
def test_nor_does_any_choice_of_a_page(server: Served, query: str) -> None:
    text = str(run(shown(server, query, "data-testid", "What is compared")))
    assert SECRET not in text
    assert "root:x:" not in text


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/static/../../../../../../etc/passwd",
        "/static/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/static/extensions/panel/../../../../../../../../etc/passwd",
        "/static/extensions/panel/%2e%2e/%2e%2e/%2e%2e/setup.py",
        "/static//etc/passwd",
        "/components/panel.config/panel_extension/_css/../../../../etc/passwd",
        "/components/apps.users/Users/__css__/users.py",
        "/workbench/gloo4.json",
        "/gloo4.json",
    ],
)
def test_no_path_serves_a_file_of_the_machine(server: Served, path: str) -> None:
    got = server.ask(path)
    assert got.status in (400, 403, 404), got.text[:300]
    assert "root:" not in got.text


def test_a_long_request_is_refused(server: Served) -> None:
    for path, form in (("/login", {"username": "x" * 200_000}), ("/workbench?" + "a" * 100_000, None)):
        with contextlib.suppress(ConnectionError):  # it does not wait for the rest
            assert server.ask(path, "POST" if form else "GET", form).status in (400, 404, 413, 431)
    assert server.ask("/workbench/metadata").status == 200


def test_the_workspace_is_as_it_was(server: Served) -> None:
    """The last test of this module: nothing that was asked for changed a file."""
    assert sorted(n for n in os.listdir(server.folder) if not n.startswith(".")) == [
        "backends.toml", "deep", "gloo4.json", "half", "link.json", "linked", "replays",
    ]  # fmt: skip
    assert sorted(os.listdir(server.folder.parent / "outside")) == ["job", "secret.json"]
    assert os.listdir(server.folder.parent / "outside" / "job") == ["rank0.json"]
