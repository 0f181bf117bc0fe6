"""Whether and when a failed call is retried. Pure functions; the transport passes the fault and a random number."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Optional, Union

FIRST_WAIT = 0.1
GROWTH = 4
LONGEST_WAIT = 5.0
MAX_RETRY_WAIT = 600.0
"""Seconds that a call may wait for limits by default: enough for a hundred creates at the rate of the specification."""
RATE_LIMITED = "RATE_LIMITED"
LIMITS = frozenset((RATE_LIMITED, "RESOURCE_EXHAUSTED"))
"""The codes of requests that were refused because of a limit, before they had any effect. `Retry-After` says when to try again."""


class Safety(enum.Enum):
    """What a second attempt may cause."""

    REPEATABLE = "repeatable"
    """Nothing beyond the first: reads, terminating, and requests whose Idempotency-Key is stored together with their effect."""
    COMMAND = "command"
    """A command with an Idempotency-Key: a retry returns the result of the first attempt. Responses 500 and 502 are not stored."""
    AFTER_ANSWER = "after_answer"
    """Safe after an error response; after a lost response the state may have changed."""
    ONLY_UNSTARTED = "only_unstarted"
    """Safe only if the first attempt did not start."""


class Failed(enum.Enum):
    """An attempt that failed without an error response."""

    NOT_SENT = "not_sent"
    """No connection was established."""
    LOST = "lost"
    """The request was sent, perhaps partially, without a response."""
    NO_CONTENT = "no_content"
    """The source of the body failed."""
    KILLED = "killed"
    """The service started the command and killed it, because there was no memory for its output."""


@dataclass(frozen=True)
class Answered:
    """An attempt that got an error response."""

    status: int
    code: str


Fault = Union[Failed, Answered]


@dataclass(frozen=True)
class Policy:
    """Limits of retries, in seconds."""

    retries: int = 2
    max_retry_wait: float = MAX_RETRY_WAIT
    """The longest `Retry-After` to wait for."""


def may_repeat(safety: Safety, fault: Fault) -> bool:
    """Whether the call may be retried."""
    if fault is Failed.NOT_SENT:
        return True
    if fault is Failed.LOST:
        return safety in (Safety.REPEATABLE, Safety.COMMAND)
    if isinstance(fault, Failed):
        return False
    if fault.code in LIMITS:
        return True
    # A full disk stays full.
    if fault.code == "DISK_FULL":
        return False
    return fault.status >= 500 and safety in (Safety.REPEATABLE, Safety.AFTER_ANSWER)


def had_no_effect(fault: Fault) -> bool:
    """Whether the attempt certainly changed nothing, so that a cancelled call need not be undone."""
    return fault is Failed.NOT_SENT or (isinstance(fault, Answered) and fault.code in LIMITS)


def wait(policy: Policy, number: int, retry_after: Optional[float], random: float) -> Optional[float]:
    """The delay before a retry, counted from 1, or None to give up. `random` is between 0 and 1."""
    if number > policy.retries:
        return None
    grown = min(FIRST_WAIT * float(GROWTH) ** min(number - 1, 10), LONGEST_WAIT)
    # Jitter, so that clients that failed together do not retry together.
    own = grown * (0.5 + min(max(random, 0.0), 1.0) / 2)
    if retry_after is None:
        return own
    if retry_after > policy.max_retry_wait:
        return None
    return retry_after + own / 4


def limit_wait(left: float, number: int, retry_after: float, random: float) -> Optional[float]:
    """
    The delay before a retry after a limit, or None to give up. Limits end by themselves, so the number of retries is not bounded, but
    the time is: `left` are the seconds that the call may still wait.
    """
    return wait(Policy(retries=number, max_retry_wait=left), number, retry_after, random)
