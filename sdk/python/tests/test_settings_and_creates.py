"""Mistakes in arguments are found before a request, so that they leave no sandbox behind."""

from __future__ import annotations

import asyncio
import io
import json
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from sandboxd import (
    AsyncSandbox,
    AsyncSandboxd,
    ConfigurationError,
    InvalidArgument,
    InvalidState,
    Sandbox,
    Sandboxd,
    UnknownError,
    models,
)
from scripted import SANDBOX, SNAPSHOT, TEMPLATE, VIEW, Service, answer, failure


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


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"image": "i", "env": ["A=1"]}, "env"),
        ({"image": "i", "metadata": "job"}, "metadata"),
        ({"image": 24.04}, "image"),
    ],
)
def test_mistakes_in_a_create_are_named(arguments: Dict[str, Any], argument: str) -> None:
    with Service([]) as service, Sandboxd(**service.settings) as client:
        with pytest.raises(InvalidArgument, match=argument) as caught:
            client.sandboxes.create(**arguments)
        assert caught.value.details == {"argument": argument} and service.received == []


def test_mistakes_in_commands_files_and_templates_are_named() -> None:
    stdin: Any = ["bytes"]
    content: Any = {"a": 1}
    with Service([]) as service, Sandboxd(**service.settings) as client:
        sandbox = client.sandboxes.connect(SANDBOX)
        with pytest.raises(InvalidArgument, match="stdin is of the type list"):
            sandbox.execute("cat", stdin=stdin)
        for value in (content, None, 3):
            with pytest.raises(InvalidArgument, match=f"content is of the type {type(value).__name__}"):
                sandbox.files.write("a.json", value)
        with pytest.raises(InvalidArgument, match="dockerfile_path"):
            client.templates.build("web", dockerfile="./Dockerfile")
        assert service.received == []


def test_text_files_texts_and_objects_in_the_wrong_place_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("pass")
    tag: Any = "job=1"
    with Service([]) as service, Sandboxd(**service.settings) as client:
        sandbox: Any = client.sandboxes.connect(SANDBOX)
        with open(tmp_path / "t.py") as file, tempfile.NamedTemporaryFile("w") as temporary:
            for content in (file, io.StringIO("pass"), temporary):
                with pytest.raises(InvalidArgument, match="open it with the mode 'rb'"):
                    sandbox.files.write("t.py", content)
        calls: List[Callable[[], Any]] = [
            *[lambda: client.sandboxes.list(metadata=tag), lambda: client.snapshots.list(metadata=tag)],
            *[lambda: client.templates.list(metadata=tag), lambda: sandbox.fork(metadata=tag)],
            *[lambda: sandbox.snapshot(metadata=tag), lambda: sandbox.terminal(env=tag), lambda: sandbox.run_code("1", env=tag)],
        ]
        for call in calls:
            with pytest.raises(InvalidArgument, match="is str; expected a dictionary of texts"):
                call()
        for given in (sandbox, models.Sandbox.from_json(VIEW), None, 7):
            for connect in (Sandbox.connect, client.sandboxes.connect, client.sandboxes.get):
                with pytest.raises(InvalidArgument, match=f"is of the type {type(given).__name__}; .* pass the id"):
                    connect(given)
        assert service.received == []


def test_a_timeout_of_the_client_follows_the_rule_of_all_durations() -> None:
    for timeout in ("60", "1m", 60, timedelta(minutes=1)):
        assert Sandboxd("http://127.0.0.1:9", "k", timeout=timeout)._transport.settings.timeout == 60.0
    for wrong in ("sixty", [60], True):
        with pytest.raises(InvalidArgument, match="expected seconds as a number"):
            Sandboxd("http://127.0.0.1:9", "k", timeout=wrong)


@pytest.mark.parametrize("flavour", [Sandbox, AsyncSandbox])
def test_the_class_of_a_sandbox_is_not_called_with_an_image(flavour: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"create\(image\)"):
        flavour("ubuntu:24.04")


def test_snapshots_and_templates_can_be_the_image_of_a_create() -> None:
    with Service([answer(201, VIEW), answer(201, VIEW)]) as service, Sandboxd(**service.settings) as client:
        for image in (models.Snapshot.from_json(SNAPSHOT), models.Template.from_json(TEMPLATE)):
            client.sandboxes.create(image)
        images = [json.loads(request.body)["image"] for request in service.received]
        assert images == [SNAPSHOT["id"], TEMPLATE["id"]]


def test_a_redirect_names_its_target() -> None:
    targets = ["https://a.example:8443/v1/info", "http://a.example/v1/info"]
    with Service([answer(301, {}, {"location": target}) for target in targets]) as service:
        with Sandboxd(**service.settings) as client:
            with pytest.raises(ConfigurationError, match=r"only over HTTPS: use 'https://a\.example:8443'") as caught:
                client.info()
            assert caught.value.details == {"reason": "https", "location": "https://a.example:8443"}
            with pytest.raises(UnknownError, match=r"status 301 .* redirects to http://a\.example/v1/info"):
                client.info()


@pytest.mark.parametrize("client", [Sandboxd, AsyncSandboxd])
def test_names_of_other_libraries_lead_to_those_of_this_one(client: Any) -> None:
    sandbox = client("http://127.0.0.1:9", "k").sandboxes.connect(SANDBOX)
    names = {"run": "execute", "exec": "execute", "commands": "execute", "kill": "terminate", "restore": "rollback"}
    for name, instead in names.items():
        with pytest.raises(AttributeError, match=rf"Sandbox' object has no attribute '{name}'; use {instead}\(\)"):
            getattr(sandbox, name)
    for name, instead in {"upload": "write", "delete": "remove"}.items():
        with pytest.raises(AttributeError, match=rf"Files' object has no attribute '{name}'; use {instead}\("):
            getattr(sandbox.files, name)
    with pytest.raises(AttributeError, match="Sandbox' object has no attribute 'exekute'$"):
        sandbox.exekute


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
