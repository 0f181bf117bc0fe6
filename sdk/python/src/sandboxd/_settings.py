"""Client settings: from code, from the environment, or from the files of the local daemon."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional, Union
from urllib.parse import urlsplit

import httpx

from ._errors import ConfigurationError
from ._pinning import pinned
from ._retry import MAX_RETRY_WAIT, Policy
from ._secrets import HasKey, Secret

LOCAL_URL = "https://127.0.0.1:8443"
LOCAL_DATA_DIR = "/var/lib/sandboxd"
TIMEOUT = 30.0
_PARTIAL_CHAIN = ssl.VerifyFlags(0x80000)
"""X509_V_FLAG_PARTIAL_CHAIN of OpenSSL, which has a name since Python 3.10."""
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")


@dataclass(frozen=True)
class ServiceUrl:
    """The URL of a service, which may have a path prefix."""

    scheme: str
    host: str
    port: int
    prefix: str

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"

    @property
    def is_local(self) -> bool:
        """Whether the host is this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def url(self, path: str) -> str:
        """The full URL of a path that starts with a slash."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}{path}"


@dataclass(frozen=True)
class Settings(HasKey):
    """Complete settings."""

    service_url: ServiceUrl
    api_key: Secret
    tls: Optional[ssl.SSLContext]
    """Decides which certificates are trusted; None for plain HTTP."""
    timeout: float
    policy: Policy

    def __repr__(self) -> str:
        return f"Settings({self.service_url.url('')!r})"


class _Variables:
    """Environment variables, of which one is the key. Without a `repr` that shows them."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def get(self, name: str) -> Optional[str]:
        """The value, or None if it is empty or not set."""
        return self._values.get(name, "").strip() or None


def resolve(
    *,
    url: Optional[str] = None,
    api_key: Optional[str] = None,
    certificate: Optional[Union[str, "os.PathLike[str]"]] = None,
    fingerprint: Optional[str] = None,
    system_certificates: bool = False,
    data_dir: Optional[str] = None,
    timeout: float = TIMEOUT,
    retries: int = 2,
    max_retry_wait: float = MAX_RETRY_WAIT,
    environment: Optional[Mapping[str, str]] = None,
) -> Settings:
    """Completes the arguments from the environment and from the files of the local daemon."""
    api_key = None if api_key is None else Secret(api_key)
    variables = _Variables(os.environ if environment is None else environment)
    directory = Path(data_dir or variables.get("SANDBOXD_DATA_DIR") or LOCAL_DATA_DIR)
    given_url = url or variables.get("SANDBOXD_URL")
    local = _local_service(directory) if given_url is None else None
    service_url = parse_url(given_url or (LOCAL_URL if local is None else local.url))
    key = Secret((api_key or variables.get("SANDBOXD_API_KEY") or _local_key(service_url, directory, local)).strip())
    if not key.isascii() or not key.isprintable():
        raise ConfigurationError("the API key has characters that are not allowed in keys")
    tls: Optional[ssl.SSLContext] = None
    if service_url.is_tls:
        if system_certificates:
            tls = _system()
        elif fingerprint is not None:
            tls = pinned(parse_fingerprint(fingerprint))
        else:
            tls = _trusted(certificate or variables.get("SANDBOXD_CERTIFICATE"), service_url, directory, local)
        tls.set_alpn_protocols(["http/1.1"])
    return Settings(
        service_url=service_url,
        api_key=key,
        tls=tls,
        timeout=timeout,
        policy=Policy(retries, max_retry_wait),
    )


def parse_url(text: str) -> ServiceUrl:
    """Parses the URL of a service. Plain HTTP is allowed for this machine only."""

    def fault(why: str) -> ConfigurationError:
        return ConfigurationError(
            f"the URL {text!r} {why}; expected a URL such as https://sandboxes.example.com"
        )

    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise fault("is not a URL") from None
    if parts.scheme not in ("https", "http"):
        raise fault("does not begin with https://")
    if not parts.hostname:
        raise fault("is not a URL")
    if parts.query:
        raise fault("has a query")
    if "@" in parts.netloc:
        raise fault("contains a user name, but the service accepts only API keys")
    default = 443 if parts.scheme == "https" else 80
    prefix = parts.path.rstrip("/")
    if prefix.endswith("/v1"):
        # Not the text of the caller, which may contain white space and slashes at its end.
        without = f"{parts.scheme}://{parts.netloc}{prefix[: -len('/v1')]}"
        raise ConfigurationError(f"the URL {text!r} ends with the version of the API, which the library adds: use {without!r}")
    service_url = ServiceUrl(parts.scheme, parts.hostname, port or default, prefix)
    if not service_url.is_tls and not service_url.is_local:
        raise fault("would send the key unencrypted; plain HTTP is allowed only for this machine")
    return service_url


def parse_fingerprint(text: str) -> str:
    """The digits of a fingerprint, as written by this project (`sha256:…`) or by openssl (`0F:…`)."""
    digits = re.sub(r"^sha256:", "", text).replace(":", "").lower()
    if not re.fullmatch(r"[0-9a-f]{64}", digits):
        raise ConfigurationError("a fingerprint is 'sha256:' and 64 hexadecimal digits")
    return digits


@dataclass(frozen=True)
class _LocalService:
    """How to reach the daemon of a data directory, as it describes itself when it starts."""

    url: str
    sha256: Optional[str]
    """The fingerprint of the only certificate to trust; None without TLS."""


def _local_service(directory: Path) -> Optional[_LocalService]:
    """The daemon of this directory; None if there is no description that this user can read."""
    file = directory / "local.json"
    try:
        text = file.read_bytes()
    except OSError:
        return None
    try:
        content = json.loads(text)
        url, fingerprint = content["url"], content.get("fingerprint")
        if not isinstance(url, str):
            raise TypeError("the URL is not a text")
        return _LocalService(url, None if fingerprint is None else parse_fingerprint(fingerprint))
    except (ValueError, TypeError, LookupError, AttributeError, ConfigurationError) as error:
        message = f"{file} is malformed; a restart of the daemon writes it again"
        raise ConfigurationError(message) from error


def _trusted(
    certificate: Optional[Union[str, "os.PathLike[str]"]],
    service_url: ServiceUrl,
    directory: Path,
    local: Optional[_LocalService],
) -> ssl.SSLContext:
    if certificate is not None:
        is_text = isinstance(certificate, str) and "-----BEGIN" in certificate
        pem = str(certificate) if is_text else _read(Path(certificate))
        if not _PEM.search(pem):
            what = "the text to trust" if is_text else str(certificate)
            raise ConfigurationError(f"{what} contains no PEM certificate (-----BEGIN CERTIFICATE-----)")
        return _context(pem)
    if local is not None and local.sha256 is not None:
        return pinned(local.sha256)
    if service_url.is_local:
        # Trusts the self-signed certificate of the local daemon if its directory is readable.
        try:
            pem = (directory / "tls" / "tls-cert.pem").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return _system()
        return _context(pem) if _PEM.search(pem) else _system()
    return _system()


def _system() -> ssl.SSLContext:
    # The certificates of httpx and those of this machine: each is missing on some systems.
    context = httpx.create_ssl_context(trust_env=False)
    context.load_default_certs()
    return context


def _context(pem: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(f"the certificate to trust is damaged: {error}") from error
    # Trusts the certificates themselves, also those that are not authorities.
    context.verify_flags |= _PARTIAL_CHAIN
    return context


def _local_key(service_url: ServiceUrl, directory: Path, local: Optional[_LocalService]) -> str:
    """The key of the local daemon, which is sent to this machine only."""
    how = "set SANDBOXD_API_KEY or the argument api_key"
    if local is None and not service_url.is_local:
        raise ConfigurationError(f"no API key for {service_url.url('')}; {how}")
    file = directory / "local.key"
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = (
            f"no API key; {how}. The key of the local daemon cannot be read: {file}; "
            "wait for 'sandboxd is ready' if the daemon is starting for the first time, "
            "set SANDBOXD_DATA_DIR if the daemon has another data directory, "
            "and SANDBOXD_URL for a service on another machine"
        )
        raise ConfigurationError(message) from error


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {file}") from error
