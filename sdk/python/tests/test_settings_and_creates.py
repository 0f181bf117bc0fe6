"""Mistakes in arguments are found before a request, so that they leave no sandbox behind."""

from __future__ import annotations

import asyncio
from typing import Any, Dict

import pytest

from sandboxd import AsyncSandboxd, ConfigurationError, InvalidArgument, Sandboxd
from scripted import Service, failure


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
