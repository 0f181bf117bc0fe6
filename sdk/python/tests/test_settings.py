"""Settings from the environment and from the files of the local daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd import _settings
from sandboxd._errors import ConfigurationError

KEY = {"SANDBOXD_API_KEY": "k"}


def refusal(environment: "dict[str, str]") -> str:
    with pytest.raises(ConfigurationError) as caught:
        _settings.resolve(environment=environment)
    return str(caught.value)


def test_the_local_key_is_found_and_stays_here(tmp_path: Path) -> None:
    local = {"SANDBOXD_DATA_DIR": str(tmp_path)}
    missing = refusal(local)
    assert "local.key" in missing and "SANDBOXD_API_KEY" in missing
    (tmp_path / "local.key").write_text("sk_local\n")
    settings = _settings.resolve(environment=local)
    assert (settings.service_url.url(""), settings.api_key) == (_settings.LOCAL_URL, "sk_local")
    assert "no API key for https://a.example:443" in refusal({**local, "SANDBOXD_URL": "https://a.example"})


def test_invalid_settings_are_named() -> None:
    assert "/nowhere.pem" in refusal({**KEY, "SANDBOXD_CERTIFICATE": "/nowhere.pem"})
    assert "unencrypted" in refusal({**KEY, "SANDBOXD_URL": "http://a.example"})
    assert "characters" in refusal({"SANDBOXD_API_KEY": "a\nb"})
    for url, why in [
        ("ftp://a.example", "does not begin with https://"),
        ("https://", "is not a URL"),
        ("https://a.example/?q", "has a query"),
        ("https://me@a.example", "contains a user name"),
        ("https://a.example:x", "is not a URL"),
        ("https://a.example/v1", "which the library adds: use 'https://a.example'"),
        (" https://a.example:8443/box/v1/ ", "use 'https://a.example:8443/box'"),
    ]:
        assert why in refusal({**KEY, "SANDBOXD_URL": url}), url


def test_an_empty_variable_counts_as_unset() -> None:
    settings = _settings.resolve(environment={**KEY, "SANDBOXD_URL": " "})
    assert settings.service_url.url("/v1/health") == "https://127.0.0.1:8443/v1/health"


def test_prefixes_and_ipv6_addresses_are_preserved() -> None:
    url = _settings.parse_url("http://[::1]:8080/sandboxes/")
    assert url.is_local and url.url("/v1") == "http://[::1]:8080/sandboxes/v1"


def test_fingerprints_are_parsed() -> None:
    assert _settings.parse_fingerprint("sha256:" + "AB" * 32) == "ab" * 32
    with pytest.raises(ConfigurationError, match="64 hexadecimal digits"):
        _settings.parse_fingerprint("ab")
