"""Mistakes in arguments are found before a request, so that they leave no sandbox behind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Dict

import pytest

from sandboxd import AsyncSandboxd, ConfigurationError, InvalidArgument, InvalidState, Sandboxd
from scripted import SANDBOX, VIEW, Service, answer, failure


async def coroutine_function(_: Any) -> None:
    """Not a handler."""


@pytest.mark.parametrize("on", [{"begun": print}, {"paused": coroutine_function}])
def test_invalid_handlers_are_refused_before_the_sandbox_is_created(on: Dict[str, Any]) -> None:
    async def scenario() -> None:
        async with AsyncSandboxd(**service.settings) as client:
            with pytest.raises(InvalidArgument):
                await client.sandboxes.create("ubuntu:24.04", on=on)

    with Service(failure(500, "INTERNAL_ERROR")) as service:
        with Sandboxd(**service.settings) as client:
            with pytest.raises(InvalidArgument):
                client.sandboxes.create("ubuntu:24.04", on=on)
        asyncio.run(scenario())
        assert service.received == []


@pytest.mark.parametrize("content", ["AAAA", "not base64", ""])
def test_a_damaged_certificate_is_a_configuration_error(content: str) -> None:
    pem = f"-----BEGIN CERTIFICATE-----\n{content}\n-----END CERTIFICATE-----\n"
    with pytest.raises(ConfigurationError, match="certificate"):
        Sandboxd("https://sandboxes.example.com", "sbk_test", certificate=pem)


def test_a_handler_that_raises_does_not_change_the_call(caplog: pytest.LogCaptureFixture) -> None:
    def raises(_: object) -> None:
        raise KeyError("mine")

    paused = {"id": SANDBOX, "state": "paused", "pausedAt": "t", "runtimeDurationMs": 1}
    with Service([answer(201, VIEW), answer(200, paused), failure(409, "INVALID_STATE")]) as service:
        with Sandboxd(**service.settings) as client:
            sandbox = client.sandboxes.create("i", on={"started": raises, "paused": raises, "failed": raises})
            assert sandbox.pause().runtime_duration_ms == 1
            with pytest.raises(InvalidState):
                sandbox.pause()
    assert [record.message.rpartition(" ")[0] for record in caplog.records] == [
        "a handler of the event Started",
        "a handler of the event Paused",
        "a handler of the event CallFailed",
    ]


def test_files_that_are_not_text_are_a_configuration_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A key of the environment comes before the file.
    monkeypatch.delenv("SANDBOXD_API_KEY", raising=False)
    (tmp_path / "local.key").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match=r"local\.key"):
        Sandboxd("https://127.0.0.1:8443", data_dir=tmp_path)
    with pytest.raises(ConfigurationError, match=r"local\.key"):
        Sandboxd("https://a.example", "k", certificate=tmp_path / "local.key")
