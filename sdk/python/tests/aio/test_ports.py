"""HTTP clients of ports: where their requests go, and what they carry."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Any, Dict, List

import httpx
import pytest

from sandboxd import AsyncSandboxd, InvalidArgument, InvalidState, models
from sandboxd._async._port_transport import AsyncPortTransport
from scripted import SANDBOX, Handler, Received, Responder, Service, answer

URL = "https://8000-sb-01234567890123456789.sandboxes.localhost:8443"
HOST = URL.partition("//")[2]


def port(visibility: str, number: int = 8000) -> Dict[str, Any]:
    times = {"exposedAt": "2026-01-01T00:00:00.000Z", "autoResume": True}
    return {"port": number, "url": URL, "visibility": visibility, **times}


def token(text: str, seconds: int) -> Responder:
    end = datetime.now(timezone.utc) + timedelta(seconds=seconds)
    shown = end.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return answer(201, {"token": text, "url": URL, "expiresAt": shown})


def page(received: Received, handler: Handler) -> None:
    handler.send(200, {"content-type": "text/plain"}, received.body or b"hello")


def refusal(_: Received, handler: Handler) -> None:
    handler.send(401, {}, b"")


async def test_a_client_reaches_a_private_port_without_the_name_and_renews_its_token() -> None:
    responders: List[Responder] = [
        *[answer(200, {"data": [port("public", 3000)]}), answer(201, port("private"))],
        *[token("spt_a", 3600), page, page, refusal, token("spt_b", 30), page, token("spt_c", 3600), page],
    ]
    with Service(responders) as service:
        async with AsyncSandboxd(**service.settings) as client:
            async with client.sandboxes.connect(SANDBOX).ports.client(8000) as http:
                response = await http.get("/a?b=c")
                assert (response.status_code, response.text) == (200, "hello")
                assert str(response.request.url) == f"{URL}/a?b=c" and "x-sandbox-token" not in response.request.headers
                assert (await http.post("/form", content=b"sent")).text == "sent"
                assert (await http.get("/")).status_code == 401, "exposed again by another client"
                assert (await http.get("/")).status_code == 200
                assert (await http.get("/")).status_code == 200
            assert (await http.aclose()) is None and http.is_closed
        through = [each for each in service.received if not each.path.startswith("/v1/")]
        assert [each.path for each in through] == ["/a?b=c", "/form", "/", "/", "/"]
        tokens = [each.headers["x-sandbox-token"] for each in through]
        assert tokens == ["spt_a", "spt_a", "spt_a", "spt_b", "spt_c"], "the second ends within a minute"
        assert {each.headers["host"] for each in through} == {HOST}
        assert not any("authorization" in each.headers for each in through)


async def test_a_public_port_needs_no_token_and_redirects_get_none() -> None:
    def elsewhere(_: Received, handler: Handler) -> None:
        handler.send(302, {"location": f"{service.settings['url']}/other"}, b"")

    responders: List[Responder] = [answer(200, {"data": [port("public")]}), page]
    with Service(responders) as service:
        async with AsyncSandboxd(**service.settings) as client:
            http = await client.sandboxes.connect(SANDBOX).ports.client(8000, timeout="5s")
            assert http.timeout.read == 5.0 and (await http.get("")).text == "hello"
        assert "x-sandbox-token" not in service.received[1].headers and len(service.received) == 2
    responders = [answer(200, {"data": [port("private")]}), token("spt_a", 3600), elsewhere, page]
    with Service(responders) as service:
        async with AsyncSandboxd(**service.settings) as client:
            async with client.sandboxes.connect(SANDBOX).ports.client(8000) as http:
                await http.get("/", follow_redirects=True)
        assert service.received[-1].path == "/other" and "x-sandbox-token" not in service.received[-1].headers


async def test_a_port_is_a_number() -> None:
    with Service([]) as service:
        async with AsyncSandboxd(**service.settings) as client:
            with pytest.raises(InvalidArgument, match="port is '8000'"):
                await client.sandboxes.connect(SANDBOX).ports.client("8000")  # type: ignore[arg-type]


async def test_no_token_is_sent_without_tls_or_after_the_end_of_the_client() -> None:
    sent: List[httpx.Request] = []

    def reply(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200)

    async def new_token() -> models.PortToken:
        return models.PortToken(expires_at="2100-01-01T00:00:00.000Z", token="spt_a", url=URL)

    with Service([]) as service:
        async with AsyncSandboxd(**service.settings) as client:
            owner = client._transport
            transport = AsyncPortTransport(httpx.MockTransport(reply), owner, owner.settings.service_url, URL, new_token)
            for url in (URL, URL.replace("https", "http")):
                await transport.handle_async_request(httpx.Request("GET", url))
        assert ["x-sandbox-token" in each.headers for each in sent] == [True, False], "a redirect of a hostile program"
        assert all("trace" in each.extensions for each in sent), "the client closes their connections"
        with pytest.raises(InvalidState, match="the client is closed"):
            await transport.handle_async_request(httpx.Request("GET", URL))


async def test_a_token_that_another_thread_drops_is_still_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def new_token() -> models.PortToken:
        return models.PortToken(expires_at="2100-01-01T00:00:00.000Z", token="spt_a", url=URL)

    with Service([]) as service:
        async with AsyncSandboxd(**service.settings) as client:
            owner = client._transport
            http = httpx.MockTransport(lambda _: httpx.Response(200))
            transport = AsyncPortTransport(http, owner, owner.settings.service_url, URL, new_token)
            await transport.handle_async_request(httpx.Request("GET", URL))

            def dropping() -> float:
                transport._token = None
                return 0.0

            monkeypatch.setattr(time, "time", dropping)
            assert (await transport.handle_async_request(httpx.Request("GET", URL))).status_code == 200
