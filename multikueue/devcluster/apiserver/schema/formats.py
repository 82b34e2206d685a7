# SPDX-License-Identifier: Apache-2.0
"""The formats of strings that schemas of custom resources may ask for; others are not looked at."""

from __future__ import annotations

import ipaddress
import re
from base64 import b64decode
from binascii import Error as Base64Error
from datetime import date
from typing import Final
from urllib.parse import urlsplit

from multikueue.core.timestamps import parse_time

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_HOSTNAME: Final = re.compile(
    r"[A-Za-z0-9](?:[-A-Za-z0-9]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*"
)
_UNIT: Final = (
    r"(?:ns|nano|nanoseconds?|us|µs|micros?|microseconds?|ms|millis?|milliseconds?|s|secs?|seconds?|m|mins?|minutes?"
    r"|h|hrs?|hours?|d|days?|w|wks?|weeks?)"
)
_DURATION: Final = re.compile(rf"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)\s*{_UNIT}\s*)+|[-+]?0")


def has_format(value: str, format: str) -> bool:
    """Whether a string is what a format asks for."""
    try:
        match format:
            case "date-time":
                parse_time(value)
            case "date":
                return len(value) == 10 and date.fromisoformat(value) is not None
            case "duration":
                return _DURATION.fullmatch(value) is not None
            case "ipv4":
                ipaddress.IPv4Address(value)
            case "ipv6":
                ipaddress.IPv6Address(value)
            case "cidr":
                ipaddress.ip_network(value, strict=False)
                return "/" in value
            case "byte":
                b64decode(value, validate=True)
                return bool(value)
            case "uuid":
                return _UUID.fullmatch(value) is not None
            case "uri":
                return value.startswith("/") or bool(urlsplit(value).scheme)
            case "hostname":
                return len(value) <= 255 and _HOSTNAME.fullmatch(value) is not None
            case "email":
                return "@" in value
    except (ValueError, Base64Error):
        return False
    return True
