"""Trust in one certificate, by its SHA-256 fingerprint."""

from __future__ import annotations

import hashlib
import ssl
from typing import Any, Optional


def pinned(sha256: str) -> ssl.SSLContext:
    """A context that accepts exactly the certificate with this fingerprint, in hexadecimal digits, for any host name."""

    def check(certificate: Optional[bytes]) -> None:
        found = hashlib.sha256(certificate or b"").hexdigest()
        if found != sha256:
            raise ssl.SSLCertVerificationError(f"the certificate has the fingerprint sha256:{found}")

    # Both checks are part of the handshake, so that no byte of a request is sent before them.
    class PinnedObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            check(self.getpeercert(binary_form=True))

    class PinnedSocket(ssl.SSLSocket):
        def do_handshake(self, *arguments: Any, **keywords: Any) -> None:
            super().do_handshake(*arguments, **keywords)
            check(self.getpeercert(binary_form=True))

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.sslobject_class = PinnedObject
    context.sslsocket_class = PinnedSocket
    return context
