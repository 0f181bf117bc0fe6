"""The tables in `sdk/cases`, which drive the tests of the clients in all languages."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any, Dict, List

import pytest

from sandboxd import _errors, _retry, _settings, _sse

CASES = Path(__file__).resolve().parents[2] / "cases"


def cases(name: str) -> List[Dict[str, Any]]:
    table: List[Dict[str, Any]] = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))["cases"]
    assert table
    return table


def fault(case: Dict[str, Any]) -> _retry.Fault:
    if case["kind"] == "answered":
        return _retry.Answered(case["status"], case["code"])
    return _retry.Failed(case["kind"])


@pytest.mark.parametrize("case", cases("retry"), ids=str)
def test_only_safe_requests_are_retried(case: Dict[str, Any]) -> None:
    assert _retry.may_repeat(_retry.Safety(case["safety"]), fault(case["fault"])) is case["retry"]


@pytest.mark.parametrize("case", cases("wait"), ids=str)
def test_waits_grow_are_bounded_and_respect_retry_after(case: Dict[str, Any]) -> None:
    policy = _retry.Policy(case["retries"], case["max_retry_wait_ms"] / 1000)
    retry_after = None if case["retry_after_ms"] is None else case["retry_after_ms"] / 1000
    waited = _retry.wait(policy, case["next"], retry_after, case["random"])
    assert (None if waited is None else pytest.approx(waited * 1000)) == case["wait_ms"]


@pytest.mark.parametrize("case", cases("sse"), ids=lambda case: str(case["name"]))
def test_streams_are_parsed(case: Dict[str, Any]) -> None:
    whole = "".join(case["chunks"]).encode()
    bytewise = [whole[i : i + 1] for i in range(len(whole))]
    for chunks in ([chunk.encode() for chunk in case["chunks"]], [whole], bytewise):
        parser = _sse.Parser()
        events = [event for chunk in chunks for event in parser.push(chunk)]
        seen = [{"event": event.name, "data": event.data, "id": event.id} for event in events]
        assert seen == case["events"]


def test_an_endless_event_is_refused() -> None:
    for endless in (b"x" * 1024, b"data: " + b"x" * 1017 + b"\n"):
        parser = _sse.Parser()
        with pytest.raises(_sse.TooLong):
            for _ in range(2048):
                parser.push(endless * 64)


@pytest.mark.parametrize("case", cases("settings"), ids=str)
def test_settings_follow_the_table(case: Dict[str, Any], tmp_path: Path) -> None:
    def data(values: Dict[str, str]) -> Dict[str, str]:
        return {name: value.replace("DATA", str(tmp_path)) for name, value in values.items()}

    for name, text in case.get("files", {}).items():
        Path(name.replace("DATA", str(tmp_path))).write_text(text, encoding="utf-8")
    arguments, expected = data(case.get("arguments", {})), data(case["expected"])
    if "error" in expected:
        with pytest.raises(_errors.ConfigurationError) as caught:
            _settings.resolve(environment=data(case["environment"]), **arguments)  # type: ignore[arg-type]
        assert expected["error"] in str(caught.value)
        return
    settings = _settings.resolve(environment=data(case["environment"]), **arguments)  # type: ignore[arg-type]
    assert expected.get("url") in (None, settings.service_url.url("/v1"))
    assert expected.get("key") in (None, settings.api_key)
    if "trust" in expected:
        is_pinned = settings.tls is not None and settings.tls.verify_mode == ssl.CERT_NONE
        assert is_pinned == (expected["trust"] == "pinned")


@pytest.mark.parametrize("case", cases("error"), ids=lambda case: str(case["expected"]["code_name"]))
def test_error_responses_are_parsed(case: Dict[str, Any]) -> None:
    error = _errors.of_response(case["status"], case["body"].encode(), case["headers"])
    retry_after = error.retry_after
    assert {
        "code": error.code,
        "code_name": error.code_name,
        "message": error.message,
        "status": error.status,
        "details": error.details,
        "retryable": error.retryable,
        "request_id": error.request_id,
        "retry_after_ms": None if retry_after is None else retry_after * 1000,
    } == case["expected"]
