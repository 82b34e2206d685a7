# SPDX-License-Identifier: Apache-2.0
"""Validation of names: objects, labels, resources.

Each function yields the problems of a name, with the messages of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PATTERN: Final = re.compile(r"[-a-z0-9.*?]+")
METRIC_LABEL: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")
MAX_LABEL: Final = 63
MAX_SUBDOMAIN: Final = 253
MAX_PATTERNS: Final = 256
"""How many patterns one list of them may have."""


def dns_label(name: str) -> Iterator[str]:
    """A DNS-1123 label, as pod set and namespace names are."""
    if len(name) > MAX_LABEL:
        yield f"must be no more than {MAX_LABEL} characters"
    if not _LABEL.fullmatch(name):
        yield (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-',"
            " and must start and end with an alphanumeric character"
        )


def dns_subdomain(name: str) -> Iterator[str]:
    """A DNS-1123 subdomain, as most object names are."""
    if len(name) > MAX_SUBDOMAIN:
        yield f"must be no more than {MAX_SUBDOMAIN} characters"
    if not _SUBDOMAIN.fullmatch(name):
        yield (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
            " and must start and end with an alphanumeric character"
        )


def label_key(key: str) -> Iterator[str]:
    """A qualified name: the key of a label or annotation, the name of a resource."""
    prefix, slash, name = key.rpartition("/")
    if slash:
        for problem in dns_subdomain(prefix):
            yield f"prefix part {problem}"
    if len(name) > MAX_LABEL:
        yield f"name part must be no more than {MAX_LABEL} characters"
    if not _QUALIFIED.fullmatch(name):
        yield (
            "name part must consist of alphanumeric characters, '-', '_' or '.',"
            " and must start and end with an alphanumeric character"
        )


def label_value(value: str) -> Iterator[str]:
    """The value of a label; it may be empty."""
    if len(value) > MAX_LABEL:
        yield f"must be no more than {MAX_LABEL} characters"
    if value and not _QUALIFIED.fullmatch(value):
        yield (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
            " and must start and end with an alphanumeric character"
        )


def name_pattern(pattern: str) -> Iterator[str]:
    """A pattern of object names with the wildcards `*` for any characters and `?` for one."""
    if len(pattern) > MAX_SUBDOMAIN:
        yield f"must be no more than {MAX_SUBDOMAIN} characters"
    if not _PATTERN.fullmatch(pattern):
        yield "a pattern must consist of lower case alphanumeric characters, '-', '.', '*' or '?'"
