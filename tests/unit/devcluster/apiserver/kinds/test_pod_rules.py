# SPDX-License-Identifier: Apache-2.0
"""Rules of pod specs that a Job's template must obey as on a real server; texts are compared in tests/conformance."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster.apiserver.kinds import pod_spec

_TOO_LARGE = 2**31


def _problems(spec: dict[str, Any] | None = None, **container: Any) -> dict[str, str]:
    """The messages of the causes by path, for a valid spec with these changes."""
    whole = {"containers": [{"name": "c", "image": "i", **container}], **(spec or {})}
    pod_spec.default_spec(whole)
    return {cause.field: cause.message for cause in pod_spec.validate_spec(whole, "spec")}


def _env(**source: Any) -> dict[str, Any]:
    return {"env": [{"name": "A", "valueFrom": source}]}


_PROBE = {"exec": {"command": ["true"]}}


@pytest.mark.parametrize(
    ("spec", "container", "paths"),
    [
        pytest.param({}, {}, set(), id="a plain pod"),
        pytest.param(
            {"securityContext": {"runAsUser": _TOO_LARGE, "fsGroup": -1, "supplementalGroups": [0, -1]}},
            {"securityContext": {"runAsGroup": _TOO_LARGE, "runAsUser": _TOO_LARGE - 1}},
            {
                "spec.securityContext.runAsUser",
                "spec.securityContext.fsGroup",
                "spec.securityContext.supplementalGroups[1]",
                "spec.containers[0].securityContext.runAsGroup",
            },
            id="users and groups out of range",
        ),
        pytest.param(
            {"serviceAccountName": "A", "hostname": "a.b", "subdomain": "ok", "priorityClassName": "a.b"},
            {},
            {"spec.serviceAccountName", "spec.hostname"},
            id="names",
        ),
        pytest.param(
            {},
            _env(secretKeyRef={"name": "", "key": ""}),
            {"spec.containers[0].env[0].valueFrom.secretKeyRef." + field for field in ("name", "key")},
            id="a secret without name and key",
        ),
        pytest.param(
            {},
            _env(configMapKeyRef={"name": "m", "key": ".."}),
            {"spec.containers[0].env[0].valueFrom.configMapKeyRef.key"},
            id="a bad key of a config map",
        ),
        pytest.param(
            {},
            {"envFrom": [{"secretRef": {}}, {"configMapRef": {"name": "A"}}, {"configMapRef": {"name": "m"}}]},
            {"spec.containers[0].envFrom[0].secretRef.name", "spec.containers[0].envFrom[1].configMapRef.name"},
            id="sources of an environment",
        ),
        pytest.param(
            {},
            {
                "livenessProbe": {**_PROBE, "successThreshold": 2},
                "readinessProbe": {**_PROBE, "successThreshold": 2, "initialDelaySeconds": -1},
                "startupProbe": {},
            },
            {
                "spec.containers[0].livenessProbe.successThreshold",
                "spec.containers[0].readinessProbe.initialDelaySeconds",
                "spec.containers[0].startupProbe",
            },
            id="probes",
        ),
    ],
)
def test_a_pod_spec_has_its_problems(spec: dict[str, Any], container: dict[str, Any], paths: set[str]) -> None:
    assert _problems(spec, **container).keys() == paths


def test_a_user_out_of_range_is_shown_with_the_range() -> None:
    found = _problems({"securityContext": {"runAsUser": _TOO_LARGE}})
    assert found == {
        "spec.securityContext.runAsUser": "Invalid value: 2147483648: must be between 0 and 2147483647, inclusive"
    }
