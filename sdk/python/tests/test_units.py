"""Durations and sizes with units."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, Dict, List, Optional

import httpx
import pytest

from sandboxd import InvalidArgument, Sandboxd
from sandboxd._units import megabytes, milliseconds, seconds
from scripted import VIEW


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        *[(90, 90.0), (1.5, 1.5), (0, 0.0), (timedelta(minutes=90), 5400.0)],
        *[("90", 90.0), ("1.5", 1.5), ("500ms", 0.5), ("90s", 90.0), ("90m", 5400.0), ("24h", 86_400.0), ("1d", 86_400.0)],
        *[("1h30m", 5400.0), (" 1 h 30 m ", 5400.0), ("0.1s", 0.1), ("1.5h", 5400.0)],
        *[("5min", 300.0), ("5 minutes", 300.0), ("2 days", 172_800.0), ("1 hour 30 mins", 5400.0), ("10sec", 10.0)],
    ],
)
def test_durations_are_parsed(duration: Any, expected: float) -> None:
    assert seconds(duration) == expected


@pytest.mark.parametrize(
    "duration", ["", "s", "soon", "-5s", "5x", "5 minuets", "1h30", "90M", "5mi", "1,5s", float("nan"), float("inf"), True, [1]]
)
def test_malformed_durations_are_named(duration: Any) -> None:
    with pytest.raises(InvalidArgument, match="idle_timeout is .*expected seconds as a number") as caught:
        milliseconds(duration, "idle_timeout")
    assert caught.value.details == {"argument": "idle_timeout"}


def test_milliseconds_are_exact() -> None:
    assert (milliseconds("90m"), milliseconds("0.001s"), milliseconds(0.1), milliseconds(None)) == (5_400_000, 1, 100, None)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        *[(4096, 4096), ("4096", 4096), ("4g", 4096), ("4G", 4096), ("4GB", 4096), ("4 GiB", 4096), ("1.5g", 1536)],
        *[("2048m", 2048), ("2048mb", 2048), ("2097152k", 2048), ("4294967296b", 4096), ("1t", 1 << 20), (None, None)],
    ],
)
def test_sizes_are_parsed(size: Any, expected: Optional[int]) -> None:
    assert megabytes(size, "memory") == expected


@pytest.mark.parametrize("size", ["", "g", "much", "-4g", "4x", "4gg", "4 g b", 4.0, True, ["4g"]])
def test_malformed_sizes_are_named(size: Any) -> None:
    with pytest.raises(InvalidArgument, match='disk is .*expected MB as a number, or a text with a unit such as "4g"'):
        megabytes(size, "disk")


def test_a_size_is_a_whole_number_of_mb() -> None:
    with pytest.raises(InvalidArgument, match="memory is '1.0001g', which is not a whole number of MB"):
        megabytes("1.0001g", "memory")


def sent(**arguments: Any) -> Dict[str, Any]:
    """The body of a create."""
    bodies = []

    def respond(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.read()))
        return httpx.Response(201, json=VIEW)

    with Sandboxd("http://127.0.0.1:9", "k", timeout="5s", http=httpx.MockTransport(respond)) as client:
        client.sandboxes.create("i", **arguments)
    (body,) = bodies
    return dict(body)


def test_a_create_takes_sizes_and_durations_with_units() -> None:
    body = sent(memory="4g", disk="20g", timeout="90m", idle_timeout="10m", cpu=2)
    assert body["resources"] == {"cpu": 2, "memoryMb": 4096, "diskMb": 20_480}
    assert (body["timeoutMs"], body["idleTimeoutMs"]) == (5_400_000, 600_000)
    assert sent(memory=4096, disk_mb=5120)["resources"] == {"memoryMb": 4096, "diskMb": 5120}
    with pytest.raises(InvalidArgument, match="memory and memory_mb are both set; set one of them"):
        sent(memory="4g", memory_mb=4096)


def test_a_policy_with_an_unknown_field_is_refused() -> None:
    policies: Dict[str, Any] = {
        "did you mean 'default'?": {"egress": {"defualt": "deny"}},
        "did you mean 'allowNetworks'?": {"egress": {"default": "deny", "allow_networks": []}},
        "did you mean 'allowPorts'?": {"ingress": {"allowports": [80]}},
        "its fields are allow, allowNetworks, default, denyNetworks": {"egress": {"zzz": 1}},
        "expected a dictionary": {"egress": "deny"},
    }
    for message, arguments in policies.items():
        with pytest.raises(InvalidArgument) as caught:
            sent(**arguments)
        assert message in caught.value.message
    with pytest.raises(InvalidArgument) as caught:
        sent(egress={"defualt": "deny"})
    assert caught.value.details == {"argument": "egress.defualt"}
    assert sent(egress={"default": "deny"}, ingress={})["network"] == {"egress": {"default": "deny"}, "ingress": {}}


@pytest.mark.parametrize(
    ("egress", "default"),
    [
        ({"allow": ["packages.example"]}, "deny"),
        ({"allow": ["packages.example"], "default": "allow"}, "allow"),
        ({"allow": ["packages.example"], "denyNetworks": ["192.0.2.0/24"]}, "deny"),
        ({"allowNetworks": ("192.0.2.0/24",)}, "deny"),
        # The exception of a denied network.
        ({"allowNetworks": ["192.0.2.7"], "denyNetworks": ["192.0.2.0/24"]}, None),
        ({"denyNetworks": ["192.0.2.0/24"]}, None),
        ({"allow": []}, "deny"),
        ({"allowNetworks": []}, None),
        ({}, None),
    ],
)
def test_a_list_of_what_is_allowed_denies_the_rest(egress: Any, default: Optional[str]) -> None:
    before = dict(egress)
    sent_egress = sent(egress=egress)["network"]["egress"]
    assert sent_egress.get("default") == default and egress == before
    assert {**sent_egress, "default": None} == {**json.loads(json.dumps(egress)), "default": None}


def test_an_update_of_what_is_allowed_denies_the_rest() -> None:
    bodies: List[Any] = []

    def respond(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.read())["egress"])
        return httpx.Response(200, json=VIEW)

    with Sandboxd("http://127.0.0.1:9", "k", http=httpx.MockTransport(respond)) as client:
        network = client.sandboxes.connect(VIEW["id"]).network
        network.update(allow=["a.example"])
        network.update(default="allow", allow=["a.example"])
        network.update(allow=[])
        network.update(deny_networks=["192.0.2.0/24"])
    assert bodies == [
        {"default": "deny", "allow": ["a.example"]},
        {"default": "allow", "allow": ["a.example"]},
        {"default": "deny", "allow": []},
        {"denyNetworks": ["192.0.2.0/24"]},
    ]



def test_ignored_fields_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def respond(_: httpx.Request) -> httpx.Response:
        headers = {"sandboxd-ignored-fields": "onTimeout, [1].priority"}
        return httpx.Response(201, json=VIEW, headers=headers)

    with Sandboxd("http://127.0.0.1:9", "k", http=httpx.MockTransport(respond)) as client:
        client.sandboxes.create("i")
    (record,) = caplog.records
    assert record.levelname == "WARNING" and record.name == "sandboxd"
    assert record.getMessage() == "the service ignored unknown fields of POST /v1/sandboxes: onTimeout, [1].priority"
