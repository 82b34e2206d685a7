# SPDX-License-Identifier: Apache-2.0
"""The manifests of an installed Kueue, as clients expect them. Pure.

They are created once; changes by clients are kept.
"""

from __future__ import annotations

from typing import Final

import yaml

from multikueue import __version__
from multikueue.api.constants import DEFAULT_NAMESPACE
from multikueue.api.meta import JsonObject

DEPLOYMENT: Final = "kueue-controller-manager"
SERVICE_ACCOUNT: Final = "kueue-controller-manager"
CONFIG_MAP: Final = "kueue-manager-config"
CONFIG_KEY: Final = "controller_manager_config.yaml"
WEBHOOK_SERVICE: Final = "kueue-webhook-service"
METRICS_SERVICE: Final = "kueue-controller-manager-metrics-service"
CONTAINER: Final = "manager"
SELECTOR: Final = {"control-plane": "controller-manager", "app.kubernetes.io/name": "kueue"}
CONTROL_PLANE_LABEL: Final = "node-role.kubernetes.io/control-plane"
_VOLUME: Final = "manager-config"


def manifests(*, node: str, configuration: JsonObject) -> list[JsonObject]:
    """All objects except the namespace and the definitions; the pods run on `node`."""
    return [
        _object("v1", "ServiceAccount", SERVICE_ACCOUNT, {}),
        _object("v1", "ConfigMap", CONFIG_MAP, {"data": {CONFIG_KEY: yaml.safe_dump(configuration, sort_keys=False)}}),
        _service(WEBHOOK_SERVICE, {"name": "https-webhook", "port": 443, "protocol": "TCP", "targetPort": 9443}),
        _service(METRICS_SERVICE, {"name": "http", "port": 8080, "protocol": "TCP", "targetPort": 8080}),
        _deployment(node),
    ]


def _deployment(node: str) -> JsonObject:
    container = {
        "name": CONTAINER,
        "image": f"multikueue/manager:{__version__}",
        "command": ["mk-manager"],
        "args": [f"--config=/{CONFIG_KEY}"],
        "ports": [
            {"name": "webhook-server", "containerPort": 9443, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 8080, "protocol": "TCP"},
        ],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": _VOLUME, "mountPath": f"/{CONFIG_KEY}", "subPath": CONFIG_KEY}],
    }
    template = {
        "metadata": {"labels": dict(SELECTOR)},
        "spec": {
            "serviceAccountName": SERVICE_ACCOUNT,
            # Bound without a scheduler: only this node runs local processes.
            "nodeName": node,
            "tolerations": [{"key": CONTROL_PLANE_LABEL, "operator": "Exists", "effect": "NoSchedule"}],
            "terminationGracePeriodSeconds": 10,
            "containers": [container],
            "volumes": [{"name": _VOLUME, "configMap": {"name": CONFIG_MAP}}],
        },
    }
    return _object(
        "apps/v1",
        "Deployment",
        DEPLOYMENT,
        {"spec": {"replicas": 1, "selector": {"matchLabels": dict(SELECTOR)}, "template": template}},
    )


def _service(name: str, port: JsonObject) -> JsonObject:
    return _object("v1", "Service", name, {"spec": {"selector": dict(SELECTOR), "ports": [port]}})


def _object(api_version: str, kind: str, name: str, content: JsonObject) -> JsonObject:
    metadata = {"name": name, "namespace": DEFAULT_NAMESPACE, "labels": dict(SELECTOR)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}
