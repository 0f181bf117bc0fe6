"""Messages of the service, which name fields, name the arguments of the library, too."""

from __future__ import annotations

import pytest

from sandboxd._argument_names import with_argument
from sandboxd._errors import of_fields


@pytest.mark.parametrize(
    ("message", "addition"),
    [
        ("resources.memoryMb is 512; allowed: 2048 to 16384", " (argument memory, in MB here)"),
        ("timeoutMs is 0; allowed: 1 to 300000", " (argument timeout, in milliseconds here)"),
        ("idleTimeoutMs is -1; allowed: 0 to 86400000", " (argument idle_timeout, in milliseconds here)"),
        ("it was closed, or the execution was started without 'openStdin'", " (argument open_stdin)"),
        ("the directory '/a' does not exist; parents=true creates it", " (argument parents=True)"),
        ("contextId: not with language", " (argument context)"),
        ("network.egress.allow has 300 entries", ""),
        ("image is 'x'", ""),
        ("mytimeoutMs, timeoutMsx", ""),
    ],
)
def test_the_argument_of_a_field_is_named(message: str, addition: str) -> None:
    assert with_argument(message) == message + addition
    assert of_fields({"code": "INVALID_CONFIG", "message": message}).message == message + addition
