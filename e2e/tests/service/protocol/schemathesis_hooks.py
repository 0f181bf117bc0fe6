"""Adapts generated requests to rules that the OpenAPI document cannot express."""

import itertools
import json
import pathlib
import re

import schemathesis

SHORT = 200
WORD = re.compile(r"[!-~]{1,512}")
NAME = re.compile(r"(?!sb_)[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
SNAPSHOT = re.compile(r"snap_[0-9a-z]{20}")
HOUR_MS = 3_600_000
EMPTY_TAR_BYTES = 1024
DOCKERFILE = "FROM ubuntu:24.04\nRUN true\n"
LONGEST_JOINED = 200
DOCUMENT = json.loads(pathlib.Path("openapi.json").read_text())
FIELDS = {name for schema in DOCUMENT["components"]["schemas"].values() for name in schema.get("properties", {})}
TEMPLATE = DOCUMENT["components"]["schemas"]["TemplateBody"]["properties"]
SHORT_NAME = 4
"""A longer generated name is hardly ever within two edits of a field."""
_numbers = itertools.count()


@schemathesis.serializer("application/x-tar")
def archive(context, value):
    """An empty archive instead of random text, which is not a valid archive."""
    return bytes(EMPTY_TAR_BYTES) if isinstance(value, (str, bytes)) else str(value).encode()


@schemathesis.hook
def before_call(context, case, kwargs):
    """Replaces well-formed values that the service refuses for other reasons, or that expire, by usable ones."""
    headers = case.headers or {}
    query = case.query or {}
    for name in ("path", "from", "to"):
        # Too long with the working directory as prefix, or in bytes of UTF-8.
        if "/files" in case.path and len(str(query.get(name, ""))) > LONGEST_JOINED and is_text(query[name], parameter(case, name)):
            query[name] = "name"
    for name, value in list(headers.items()):
        # A key that was used with another body is refused: make each key unique.
        if name.lower() == "idempotency-key" and isinstance(value, str) and len(value) <= SHORT and WORD.fullmatch(value):
            headers[name] = f"{value}-{next(_numbers)}"
    body = case.body
    for part in body if isinstance(body, list) else [body]:
        # An unknown field is refused if its name could be a mistyped one.
        for name in list(part) if isinstance(part, dict) else []:
            if len(name) <= SHORT_NAME and name not in FIELDS:
                del part[name]
    if not isinstance(body, dict):
        return
    if (case.method.upper(), case.path) == ("POST", "/v1/templates"):
        buildable(body)
    if case.path == "/v1/sandboxes/{id}/rollback" and SNAPSHOT.fullmatch(str(body.get("snapshotId"))):
        # A snapshot of another sandbox is refused.
        body["snapshotId"] = "snap_00000000000000000000"
    if (case.method.upper(), case.path) in (("POST", "/v1/sandboxes"), ("POST", "/v1/sandboxes/{id}/fork")):
        free_name(body)
    if (case.method.upper(), case.path) != ("POST", "/v1/sandboxes"):
        return
    # The name is not in the catalogue.
    if isinstance(body.get("image"), str) and WORD.fullmatch(body["image"]):
        body["image"] = "ubuntu:24.04"
    # A lifetime that could end before the next request.
    lifetime = body.get("timeoutMs")
    if isinstance(lifetime, (int, float)) and not isinstance(lifetime, bool) and 0 < lifetime < HOUR_MS:
        body["timeoutMs"] = HOUR_MS


def free_name(body):
    """A name that no other sandbox has. Several forks have none."""
    if isinstance(body.get("name"), str) and NAME.fullmatch(body["name"]):
        body["name"] = f"n{next(_numbers)}"
        if body.get("count", 1) != 1:
            del body["name"]


def parameter(case, name):
    """The schema of a parameter."""
    described = DOCUMENT["paths"][case.path][case.method.lower()]["parameters"]
    return next(each["schema"] for each in described if each["name"] == name)


def buildable(body):
    """A Dockerfile that can be built instead of random text, and none of a context that was not uploaded."""
    dockerfile, context = TEMPLATE["dockerfile"], TEMPLATE["context"]
    if "dockerfile" in body:
        if "dockerfilePath" not in body and is_text(body["dockerfile"], dockerfile):
            body["dockerfile"] = DOCKERFILE
            if is_text(body.get("context"), context):
                del body["context"]
    elif is_text(body.get("context"), context) and is_text(body.get("dockerfilePath", "x"), TEMPLATE["dockerfilePath"]):
        del body["context"]
        body.pop("dockerfilePath", None)
        body["dockerfile"] = DOCKERFILE


def is_text(value, schema):
    """Whether the schema allows the value."""
    return (
        isinstance(value, str)
        and schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
        and re.search(schema["pattern"].replace("$", r"\Z"), value) is not None
    )
