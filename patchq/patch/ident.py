"""Who made a patch and when, in the form that a git commit object can hold."""

from __future__ import annotations

import calendar
import re

NOBODY = "patchq <patchq@invalid>"

_ANGLED = re.compile(r"([^<]*)<([^<>]*)>")
_COMMENTED = re.compile(r"(\S+@\S+)\s+\(([^()]*)\)\s*$")
_CONTROL = re.compile(r"[\0-\x1f\x7f]")
_CRUD = " .,:;<>\"\\'\t"
_MONTHS = {name: n for n, name in enumerate(calendar.month_abbr) if name}
_OFFSET = r"\s*(?P<sign>[+-])(?P<zh>\d\d):?(?P<zm>\d\d)\b"
_TIME = r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d))?"
_YEAR, _NAME, _NUMBER = r"(?P<year>\d{4})", r"(?P<name>[A-Za-z]{3})", r"(?P<day>\d{1,2})"
_ISO_DAY = _YEAR + r"-(?P<month>\d\d)-(?P<day>\d\d)"
_DATES = (
    re.compile(rf"(?:[A-Za-z]{{3}},?\s+)?{_NUMBER}\s+{_NAME}\s+{_YEAR}\s+{_TIME}{_OFFSET}"),
    re.compile(rf"[A-Za-z]{{3}}\s+{_NAME}\s+{_NUMBER}\s+{_TIME}\s+{_YEAR}{_OFFSET}"),
    re.compile(rf"{_ISO_DAY}[T ]{_TIME}(?:\.\d{{1,9}})?{_OFFSET}"),
)
_DAY = re.compile(_ISO_DAY + r"\s*$")
_DAYS_IN = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def clean_author(value: str) -> str:
    """`value` as `Name <mail>`, without anything that would break a commit object (git's ident.c)."""
    text = _CONTROL.sub(" ", value).encode("utf-8", "replace").decode("utf-8")
    angled, commented = _ANGLED.search(text), _COMMENTED.match(text.strip())
    if angled:
        name, mail = angled.groups()
    elif commented:
        mail, name = commented.groups()
    else:
        name, mail = text, text if "@" in text and " " not in text.strip() else "patchq@invalid"
    mail = re.sub(r"[\s<>]", "", mail).strip(_CRUD) or "patchq@invalid"
    name = " ".join(re.sub(r"[<>]", " ", name).split()).strip(_CRUD) or mail
    return f"{name} <{mail}>"


def parse_date(value: str) -> tuple[int, str] | None:
    """Seconds since the epoch and the offset ("+0100") of a date with a numeric offset; None for any other.

    Read are the forms of mail (RFC 5322), `git log` and ISO 8601. Zone names depend on the machine: refused.
    """
    found = next((match for pattern in _DATES if (match := pattern.match(value.strip()))), None)
    if not found:
        return None
    zone_hour, zone_minute = int(found["zh"]), int(found["zm"])
    if zone_hour > 14 or zone_minute > 59:
        return None
    offset = (zone_hour * 60 + zone_minute) * (-60 if found["sign"] == "-" else 60)
    seconds = _seconds(found)
    if seconds is None or seconds - offset < 0:
        return None
    return seconds - offset, f"{found['sign']}{found['zh']}{found['zm']}"


def parse_day(value: str) -> tuple[int, str] | None:
    """Like `parse_date` for `YYYY-MM-DD`, at midnight UTC."""
    found = _DAY.match(value.strip())
    seconds = _seconds(found) if found else None
    return None if seconds is None or seconds < 0 else (seconds, "+0000")


def _seconds(found: re.Match[str]) -> int | None:
    """The fields as if they were UTC; None where there is no such day or time."""
    parts = found.groupdict()
    name = str(parts.get("name") or "").capitalize()
    month = _MONTHS.get(name, 0) if name else int(parts["month"])
    year, day = int(parts["year"]), int(parts["day"])
    hour, minute, second = (int(parts.get(key) or 0) for key in ("hour", "minute", "second"))
    if not 1 <= month <= 12 or not 1 <= day <= _DAYS_IN[month - 1] or year < 1:
        return None
    if (month == 2 and day == 29 and not calendar.isleap(year)) or hour > 23 or minute > 59 or second > 60:
        return None
    return calendar.timegm((year, month, day, hour, minute, second))
