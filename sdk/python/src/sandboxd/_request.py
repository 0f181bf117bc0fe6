"""The parts of requests: paths, queries, headers and ids."""

from __future__ import annotations

import re
import secrets
from datetime import datetime, timezone
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Union
from urllib.parse import quote

from ._errors import ConfigurationError, argument_error

QueryValue = Union[None, str, bool, int, Sequence[str]]
LARGEST_PAGE = 100
"""The largest page size of the service."""
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_OPAQUE = 20
_SHOWN_BYTES = 4096


def random_id(prefix: str) -> str:
    """A random id with a prefix such as `key_`."""
    return prefix + "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in secrets.token_bytes(_OPAQUE))


def time_text(time: Union[None, str, datetime]) -> Optional[str]:
    """The time as the service takes it. A `datetime` without a zone is a local time."""
    if not isinstance(time, datetime):
        return time
    text = time.astimezone(timezone.utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def query_string(query: Mapping[str, QueryValue]) -> str:
    """The query of a URL with its question mark, or an empty string. Absent values are omitted, and several values repeat the name."""
    pairs: List[str] = []
    for name, value in query.items():
        pairs.extend(f"{quote(name, safe='')}={quote(each, safe='')}" for each in _texts(value))
    return "?" + "&".join(pairs) if pairs else ""


def _texts(value: QueryValue) -> Iterable[str]:
    if value is None:
        return ()
    if isinstance(value, bool):
        return ("true" if value else "false",)
    if isinstance(value, (str, int)):
        return (str(value),)
    return value


def given(**fields: Any) -> Dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def key_headers(key: Optional[str]) -> Dict[str, str]:
    """The header of an idempotency key, by default a new one."""
    if key is None:
        key = random_id("key_")
    if not re.fullmatch(r"[\x21-\x7e]{1,255}", key):
        raise ConfigurationError("an Idempotency-Key is 1 to 255 visible ASCII characters")
    return {"idempotency-key": key}


def run_headers(run_id: Optional[str]) -> Dict[str, str]:
    """The header of a run."""
    if run_id is None:
        return {}
    return {"x-run-id": checked_run_id(run_id)}


def checked_run_id(run_id: str) -> str:
    """The run id, if it can be sent."""
    if not re.fullmatch(r"[\x21-\x7e]{1,128}", run_id):
        raise ConfigurationError(f"invalid run id {run_id!r}: a run id is 1 to 128 visible ASCII characters")
    return run_id


def checked_id(argument: str, prefix: str, text: str) -> str:
    """The id, if it can be a part of a path."""
    _check_text(argument, text)
    if not re.fullmatch(prefix + "[0-9a-z]+", text):
        raise argument_error(argument, f"{text!r} is not an id that begins with {prefix!r}")
    return text


def checked_reference(argument: str, prefix: str, text: str) -> str:
    """The id or the name of a snapshot or a template, which can be any text."""
    _check_text(argument, text)
    # An id of something else is a mistake, not a name.
    if re.match("(sb|snap|tpl|ex)_", text):
        return checked_id(argument, prefix, text)
    if text in ("", ".", ".."):
        raise argument_error(argument, f"{text!r} is neither an id nor a name")
    return text


def checked_sandbox(argument: str, text: str) -> str:
    """The id or the name of a sandbox, if it can be a part of a path."""
    _check_text(argument, text)
    if text.startswith("sb_"):
        return checked_id(argument, "sb_", text)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", text):
        raise argument_error(argument, f"{text!r} is neither a sandbox id nor a name")
    return text


def _check_text(argument: str, value: object) -> None:
    """Refuses an object in place of its id. The caller may have ignored the type."""
    if not isinstance(value, str):
        raise argument_error(argument, f"{argument} is of the type {type(value).__name__}; expected text: pass the id of the object")


def shown(command: str) -> str:
    """The command text, truncated for an event."""
    return command.encode(errors="replace")[:_SHOWN_BYTES].decode(errors="ignore")
