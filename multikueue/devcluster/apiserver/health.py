# SPDX-License-Identifier: Apache-2.0
"""`/healthz`, `/livez`, `/readyz`: a server that answers is well."""

from __future__ import annotations

from typing import Final

from multikueue.devcluster.apiserver.requests import Answer

_CHECKS: Final = ("ping", "log", "storage", "poststarthook/crd-informer-synced", "poststarthook/rbac/bootstrap-roles")
_TEXT: Final = "text/plain; charset=utf-8"


def check(path: str, *, verbose: bool) -> Answer:
    """The answer to a probe."""
    name, _, one = path.strip("/").partition("/")
    if one:
        return Answer(200, b"ok", _TEXT) if one in _CHECKS else Answer(404, b"404 page not found\n", _TEXT)
    if not verbose:
        return Answer(200, b"ok", _TEXT)
    lines = "".join(f"[+]{entry} ok\n" for entry in _CHECKS)
    return Answer(200, f"{lines}{name} check passed\n".encode(), _TEXT)
