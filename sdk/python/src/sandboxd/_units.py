"""Amounts with units: durations such as `"90m"` and sizes such as `"4g"`."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from fractions import Fraction
from typing import Optional, Union, cast

from ._errors import argument_error

Duration = Union[int, float, str, timedelta]
"""Seconds as a number, a text with units such as `"90s"`, `"5 minutes"` or `"1h30m"` (without a unit: seconds), or a `timedelta`."""
Size = Union[int, str]
"""MB as a number, or a text with a unit such as `"4g"` or `"2048m"`. 1 GB has 1024 MB."""
_NUMBER = r"(\d+(?:\.\d+)?)"
_SECONDS = {
    "ms": Fraction(1, 1000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), Fraction(1)),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), Fraction(60)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), Fraction(3600)),
    **dict.fromkeys(("d", "day", "days"), Fraction(86_400)),
}
_DURATION_PART = re.compile(rf"{_NUMBER}\s*({'|'.join(sorted(_SECONDS, reverse=True))})(?![a-z])\s*")
_MEGABYTES = {"b": Fraction(1, 1 << 20), "k": Fraction(1, 1024), "m": Fraction(1), "g": Fraction(1024), "t": Fraction(1 << 20)}
_SIZE = re.compile(rf"{_NUMBER}\s*(?:(b)|([kmgt])(?:i?b)?)?", re.IGNORECASE)


def seconds(duration: Duration, argument: str = "timeout") -> float:
    """The duration in seconds. `argument` is the name in the error of a malformed one."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, str):
        return _parsed_seconds(duration, argument)
    # The caller may have ignored the type.
    is_number = isinstance(cast(object, duration), (int, float)) and not isinstance(duration, bool)
    if not is_number or not math.isfinite(duration):
        raise _duration_error(duration, argument)
    return float(duration)


def milliseconds(duration: Optional[Duration], argument: str = "timeout") -> Optional[int]:
    """The duration as the service takes it."""
    return None if duration is None else round(seconds(duration, argument) * 1000)


def megabytes(size: Optional[Size], argument: str) -> Optional[int]:
    """The size as the service takes it."""
    if size is None:
        return None
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    match = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    if match is None:
        expected = 'MB as a number, or a text with a unit such as "4g" or "2048m"'
        raise argument_error(argument, f"{argument} is {size!r}; expected {expected}")
    amount = Fraction(match[1]) * _MEGABYTES[(match[2] or match[3] or "m").lower()]
    if amount.denominator != 1:
        raise argument_error(argument, f"{argument} is {size!r}, which is not a whole number of MB")
    return amount.numerator


def chosen_megabytes(size: Optional[Size], number: Optional[int], argument: str) -> Optional[int]:
    """The size in MB of two arguments of which one may be given, such as `memory` and `memory_mb`."""
    if size is not None and number is not None:
        raise argument_error(argument, f"{argument} and {argument}_mb are both set; set one of them")
    return number if size is None else megabytes(size, argument)


def _parsed_seconds(text: str, argument: str) -> float:
    text = text.strip()
    if re.fullmatch(_NUMBER, text):
        return float(text)
    total, position = Fraction(0), 0
    while match := _DURATION_PART.match(text, position):
        total += Fraction(match[1]) * _SECONDS[match[2]]
        position = match.end()
    if position == 0 or position < len(text):
        raise _duration_error(text, argument)
    return float(total)


def _duration_error(duration: object, argument: str) -> Exception:
    expected = 'seconds as a number, a timedelta, or a text with units such as "90s", "90m" or "1h30m"'
    return argument_error(argument, f"{argument} is {duration!r}; expected {expected}")
