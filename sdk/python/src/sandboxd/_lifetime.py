"""Whether a sandbox, as far as its object knows, ends before a command does."""

from __future__ import annotations

from datetime import datetime
from typing import Optional

from . import models


NEGLIGIBLE = 5.0
"""Seconds by which a sandbox may end before a command without a warning."""
NEGLIGIBLE_PART = 0.05
"""The same as a part of the command's timeout: who gives both the same timeout creates the sandbox first."""


def early_end(view: Optional[models.Sandbox], timeout: float, now: datetime) -> Optional[str]:
    """The warning that the sandbox ends before the `timeout` of a command in seconds, or None."""
    if view is None or view.expires_at is None:
        return None
    try:
        left = (datetime.fromisoformat(view.expires_at.replace("Z", "+00:00")) - now).total_seconds()
    except (ValueError, TypeError):
        return None
    # A sandbox that should have ended was paused since, or got another timeout: its end is unknown.
    if left <= 0 or timeout - left <= max(NEGLIGIBLE, NEGLIGIBLE_PART * timeout):
        return None
    ends = "is paused" if view.on_timeout == "pause" else "ends"
    return f"the sandbox {ends} in {left:.0f} s, before the command's timeout of {timeout:g} s; set_timeout() extends it"
