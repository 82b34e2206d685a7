# SPDX-License-Identifier: Apache-2.0
"""What the cases of this folder write, and their requests in short."""

from __future__ import annotations

from typing import Any

from tests.conformance.harness import Exchange

MAPS = "/api/v1/namespaces/{ns}/configmaps"
NAMESPACES = "/api/v1/namespaces"
JOBS = "/apis/batch/v1/namespaces/{ns}/jobs"


def config_map(name: str = "a", **more: object) -> dict[str, Any]:
    """A small object."""
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"k": "v"}, **more}


def job(name: str = "j", **more: object) -> dict[str, Any]:
    """An object with a spec and a status."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    return {
        "kind": "Job",
        "apiVersion": "batch/v1",
        "metadata": {"name": name},
        "spec": {"suspend": True, "template": {"spec": pod}, **more},
    }


def post(path: str, body: object, **more: Any) -> Exchange:
    """POST."""
    return Exchange("POST", path, body, **more)


def put(path: str, body: object, **more: Any) -> Exchange:
    """PUT."""
    return Exchange("PUT", path, body, **more)


def get(path: str, **more: Any) -> Exchange:
    """GET."""
    return Exchange("GET", path, **more)


def delete(path: str, body: object = None, **more: Any) -> Exchange:
    """DELETE."""
    return Exchange("DELETE", path, body, **more)
