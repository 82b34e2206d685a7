# SPDX-License-Identifier: Apache-2.0
"""The string formats that schemas of custom resources can require; others are ignored."""

from __future__ import annotations

import ipaddress
import re
from base64 import b64decode
from binascii import Error as Base64Error
from typing import Final
from urllib.parse import urlsplit

from devcluster.apiserver.codec.times import is_date, is_date_time

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
    """Whether a string has a format."""
    try:
        match format:
            case "date-time":
                return is_date_time(value)
            case "date":
                return is_date(value)
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
