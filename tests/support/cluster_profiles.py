# SPDX-License-Identifier: Apache-2.0
"""ClusterProfiles on a hub, and a credential plug-in that reads a Secret there.

Owns the definition of the kind as much as the manager reads of it, and the program that the Configuration names.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import orjson

from devcluster.cluster import Cluster
from multikueue.api.resource import CLUSTER_PROFILES
from tests.support.managers import Object
from tests.support.push_workers import SYSTEM
from tests.support.scenes import settings

READER: Final = "secretreader"
SLOW: Final = "slow"
_STATUS: Final[Object] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION: Final[Object] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{CLUSTER_PROFILES.plural}.{CLUSTER_PROFILES.group}"},
    "spec": {
        "group": CLUSTER_PROFILES.group,
        "names": {"kind": CLUSTER_PROFILES.kind, "plural": CLUSTER_PROFILES.plural},
        "scope": "Namespaced",
        "versions": [
            {
                "name": CLUSTER_PROFILES.version,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _STATUS, "status": _STATUS}}},
            }
        ],
    },
}
_PLUGIN: Final = """\
import base64, json, os, sys
import anyio
from multikueue.api.resource import SECRETS
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient

async def main():
    wanted = json.loads(os.environ["KUBERNETES_EXEC_INFO"])["spec"]["cluster"]["config"]
    async with KubeClient(credentials.load(sys.argv[1])) as hub:
        secret = await hub.get_object(SECRETS, wanted["secret"], namespace=wanted["namespace"])
    token = base64.b64decode(secret["data"]["token"]).decode()
    print(json.dumps({"kind": "ExecCredential", "status": {"token": token}}))

anyio.run(main)
"""


def with_profiles(*providers: Object) -> str:
    """The Configuration of a manager that reads ClusterProfiles, with these access providers."""
    access = orjson.dumps({"accessProviders": list(providers)}).decode()
    return f"{settings(clusterProfile=access)}featureGates: {{MultiKueueClusterProfile: true}}\n"


def secret_reader(hub: Cluster, folder: Path) -> Object:
    """The access provider whose program finds the token in a Secret that the profile names."""
    program = folder / "secretreader.py"
    program.write_text(_PLUGIN)
    return {
        "name": READER,
        "execConfig": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(program), str(hub.kubeconfig)],
            "env": [{"name": "PYTHONPATH", "value": str(Path(__file__).parents[2])}],
            "interactiveMode": "Never",
            "provideClusterInfo": True,
        },
    }


def slow_program() -> Object:
    """The access provider whose program takes longer than any test."""
    return {
        "name": SLOW,
        "execConfig": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sleep",
            "args": ["600"],
            "interactiveMode": "Never",
        },
    }


def profile(name: str, *, namespace: str = SYSTEM) -> Object:
    """A ClusterProfile without a status."""
    return {
        "apiVersion": CLUSTER_PROFILES.api_version,
        "kind": CLUSTER_PROFILES.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterManager": {"name": "tests"}, "displayName": name},
    }


def access(server: str, *, secret: str, provider: str = READER) -> Object:
    """The status of a profile of a cluster at that URL, whose token is in that Secret."""
    told = {"name": "client.authentication.k8s.io/exec", "extension": {"secret": secret, "namespace": SYSTEM}}
    return {"accessProviders": [{"name": provider, "cluster": {"server": server, "extensions": [told]}}]}
