"""What schemathesis cannot know of the service by its description."""

import itertools
import re

import schemathesis

SHORT = 200
WORD = re.compile(r"[!-~]{1,512}")
NAMELESS = re.compile(r"(^|/)\.{0,2}/*\Z")
HOUR_MS = 3_600_000
EMPTY_TAR_BYTES = 1024
LONGEST_PATH = 4095
LONGEST_JOINED = 200
_numbers = itertools.count()


@schemathesis.serializer("application/x-tar")
def archive(context, value):
    """Any archive, which a random text is not: the empty one. What is no content at all stays what it is."""
    return bytes(EMPTY_TAR_BYTES) if isinstance(value, (str, bytes)) else str(value).encode()


@schemathesis.hook
def before_call(context, case, kwargs):
    """Turns values that are well-formed, and refused or run out for reasons of their own, into ones that are not."""
    headers = case.headers or {}
    # The tester takes its pattern to allow nothing at all.
    if headers.get("Last-Event-ID") == "":
        del headers["Last-Event-ID"]
    query = case.query or {}
    for name in ("path", "from", "to"):
        # One whose name is longer than any name of a file, or that is too long with the working directory before it.
        if "/files" in case.path and isinstance(query.get(name), str) and LONGEST_JOINED < len(query[name]) <= LONGEST_PATH:
            query[name] = query[name][:LONGEST_JOINED]
        # Nothing can be moved from or to where no name is.
        if case.path.endswith("/files/move") and query.get(name) and NAMELESS.search(str(query[name])):
            query[name] = f"{query[name]}/name"
    for name, value in list(headers.items()):
        # One that went with another body is rightly refused: each gets a number of its own.
        if name.lower() == "idempotency-key" and isinstance(value, str) and len(value) <= SHORT and WORD.fullmatch(value):
            headers[name] = f"{value}-{next(_numbers)}"
    body = case.body
    if (case.method.upper(), case.path) != ("POST", "/v1/sandboxes") or not isinstance(body, dict):
        return
    # A name that is not in the catalogue.
    if isinstance(body.get("image"), str) and WORD.fullmatch(body["image"]):
        body["image"] = "ubuntu:24.04"
    # A lifetime that is over before the next request looks for the sandbox.
    lifetime = body.get("timeoutMs")
    if isinstance(lifetime, (int, float)) and not isinstance(lifetime, bool) and 0 < lifetime < HOUR_MS:
        body["timeoutMs"] = HOUR_MS
