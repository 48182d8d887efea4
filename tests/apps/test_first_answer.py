"""What the browser fetches first: the page is made while the browser still loads its scripts, not after it has drawn an empty frame."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("panel")

from tests.apps.served import ROOT, Served, ask, connection, document, event, receive, token_of

#: In the sentence at the top of each page, as Panel escapes it.
ANSWER = "data-testid=&quot;answer"
PAGES = ("overview", "traffic", "timeline", "ablation", "ranking", "minimise")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("first")
    shutil.copy(ROOT / "data" / "samples" / "gloo4.json", folder)
    running = Served(folder)
    yield running
    running.stop()


async def fetched(server: Served, page: str, wait_s: float, *, loaded: bool = False) -> str:
    """Return the document as a browser fetches it `wait_s` after the answer."""
    got = await asyncio.to_thread(server.ask, f"/workbench?page={page}&trace=gloo4.json")
    await asyncio.sleep(wait_s)
    async with connection(server, token_of(got.text), Origin=f"http://{server.host}") as link:
        await receive(link)
        if loaded:
            await ask(link, "PATCH-DOC", event("document_ready"))
        text: Any = ""
        deadline = time.monotonic() + 30
        while not text or (loaded and ANSWER not in text and time.monotonic() < deadline):
            text = json.dumps(await document(link))
            await asyncio.sleep(0.1)
        return str(text)


@pytest.mark.parametrize("name", PAGES)
def test_a_browser_that_takes_a_moment_finds_the_page_in_the_document(server: Served, name: str) -> None:
    for wait_s in (1, 4, 12):  # on a busy machine the server needs longer
        if ANSWER in asyncio.run(fetched(server, name, wait_s)):
            return
    raise AssertionError(f"{name} is not in the document that the browser fetches")


def test_a_browser_that_connects_at_once_gets_it_after_the_frame(server: Served) -> None:
    assert ANSWER in asyncio.run(fetched(server, "overview", 0, loaded=True))
