# SPDX-License-Identifier: Apache-2.0
"""Generate `devcluster/apiserver/data/` from the built-in kinds of a real API server.

Starts etcd and kube-apiserver on the loopback interface, reads OpenAPI v3, discovery, table columns and the bootstrap
objects, and writes compact JSON. An API server does not serve the field numbers of the protobuf encoding; they are read
from the `.proto` files of the Go modules from which the server was built.

    hack/gen_builtin_tables.py [--modules FOLDER] [--check]
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from devcluster.pki import new_key
from devcluster.providers.binaries import acquire

DATA = Path(__file__).resolve().parent.parent / "devcluster/apiserver/data"
TOKEN = "generator"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
ORDERED = ("protobuf.json", "version.json")
INITIAL_OBJECTS = {
    "clusterroles": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "clusterrolebindings": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "roles": "/apis/rbac.authorization.k8s.io/v1/roles",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "priorityclasses": "/apis/scheduling.k8s.io/v1/priorityclasses",
}
COLUMN_DESCRIPTIONS = {
    "Name": "Name of the object, unique in its namespace.",
    "Age": "Time since the object was created.",
    "Created At": "Time at which the object was created.",
    "Access Modes": "How the volume can be mounted.",
    "Active": "Number of Jobs that run now.",
    "Allowed Disruptions": "Number of pods that can be evicted now.",
    "AllowVolumeExpansion": "Whether volumes of the class can grow.",
    "Attached": "Whether the volume is attached to the node.",
    "AttachRequired": "Whether volumes are attached before they are mounted.",
    "Attacher": "Driver that attaches the volume.",
    "Available": "Number or state of what is available.",
    "CIDRs": "Address ranges of the object.",
    "Claim": "Claim that the volume is bound to.",
    "Cluster-IP": "Address of the Service in the cluster.",
    "Completions": "Number of pods that succeeded, and how many must.",
    "Container-Runtime": "Container runtime of the node, and its version.",
    "Containers": "Names of the containers.",
    "Count": "How often the event occurred.",
    "Current": "Number of pods that exist now.",
    "Data": "Number of entries.",
    "Desired": "Number of pods that should exist.",
    "Drivers": "Number of CSI drivers on the node.",
    "Duration": "Time between the start and the end of the Job.",
    "External-IP": "Address from outside the cluster.",
    "First Seen": "Time since the event occurred first.",
    "Global-Default": "Whether pods without a priority class get this one.",
    "HandSize": "Number of queues that a flow can be put in.",
    "Holder": "Identity that holds the lease.",
    "Hosts": "Host names that the rules match.",
    "Images": "Images of the containers.",
    "IP": "Address of the pod.",
    "Last Schedule": "Time since a Job was created last.",
    "Last Seen": "Time since the event occurred last.",
    "MatchingPrecedence": "Order in which flow schemas are tried; the lowest comes first.",
    "MissingPL": "Whether the priority level does not exist.",
    "NominalConcurrencyShares": "Share of the requests that can be executed at once.",
    "Nominated Node": "Node on which pods are preempted for this one.",
    "ParamKind": "Kind of the parameters of the policy.",
    "ParamRef": "Parameters of the binding.",
    "Pod-Selector": "Selector of the pods that the policy applies to.",
    "Ports": "Ports of the object.",
    "Port(s)": "Ports of the Service.",
    "Readiness Gates": "Number of readiness gates that are true, and of all.",
    "Ready": "How many are ready.",
    "Replicas": "Number of replicas.",
    "Requestor": "User who asked for the certificate.",
    "RequestedDuration": "Lifetime that was asked for.",
    "Restarts": "How often containers of the pod were restarted.",
    "Roles": "Roles of the node, from its labels.",
    "Selector": "Label selector of the pods.",
    "Suspend": "Whether no Jobs are created.",
    "Up-to-date": "Number of pods of the newest template.",
    "Validations": "Number of validation rules.",
    "Webhooks": "Number of webhooks in the configuration.",
}
_FIELD = re.compile(
    r"^\s*(?:(?P<label>optional|repeated|required)\s+)?"
    r"(?P<type>map<\s*\w+\s*,\s*[\w.]+\s*>|[\w.]+)\s+(?P<name>\w+)\s*=\s*(?P<number>\d+)\s*;"
)


class Server:
    """One running API server."""

    def __init__(self, port: int) -> None:
        self._base = f"https://127.0.0.1:{port}"
        self._tls = ssl._create_unverified_context()

    def get(self, path: str, accept: str = "application/json") -> Any:
        """The decoded answer."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Accept": accept}
        request = urllib.request.Request(self._base + path, headers=headers)
        with urllib.request.urlopen(request, context=self._tls, timeout=30) as answer:
            return json.load(answer)

    def wait(self) -> None:
        """Wait until every post-start hook has run."""
        deadline = time.monotonic() + 120
        while True:
            request = urllib.request.Request(self._base + "/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
            try:
                with urllib.request.urlopen(request, context=self._tls, timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.3)


def main() -> int:
    """Write the tables, or compare them with what is checked in."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--modules", type=Path, default=Path.home() / "go/pkg/mod")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a table differs")
    arguments = parser.parse_args()
    binaries = acquire.find()
    if binaries is None:
        parser.error("no Kubernetes binaries; run `mkctl binaries`")
    with running(binaries.folder) as server:
        tables = {
            "definitions.json": definitions(server),
            "discovery.json": discovery(server),
            "columns.json": columns(server),
            "bootstrap.json": initial_objects(server),
            "version.json": server.get("/version"),
            "protobuf.json": protobuf(arguments.modules),
        }
    different = []
    for name, table in tables.items():
        text = json.dumps(table, separators=(",", ":"), sort_keys=name not in ORDERED) + "\n"
        path = DATA / name
        if not path.exists() or path.read_text() != text:
            different.append(name)
            if not arguments.check:
                path.write_text(text)
        print(f"{name}: {len(text):,} bytes{' (new)' if name in different else ''}")
    return 1 if arguments.check and different else 0


@contextmanager
def running(binaries: Path) -> Iterator[Server]:
    """A kube-apiserver on a separate etcd, stopped on exit."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        client, peer, port = free_port(), free_port(), free_port()
        (folder / "tokens.csv").write_text(f'{TOKEN},generator,generator,"system:masters"\n')
        (folder / "sa.key").write_bytes(new_key())
        etcd = [
            str(binaries / "etcd"),
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{client}",
            f"--advertise-client-urls=http://127.0.0.1:{client}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
            "--log-level=error",
        ]
        api = [
            str(binaries / "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{client}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={folder}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={folder / 'sa.key'}",
            f"--service-account-signing-key-file={folder / 'sa.key'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--endpoint-reconciler-type=none",
        ]
        for command in (etcd, api):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        server = Server(port)
        server.wait()
        yield server


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def definitions(server: Server) -> dict[str, Any]:
    """Every schema of every OpenAPI v3 document, once."""
    found: dict[str, Any] = {}
    for entry in server.get("/openapi/v3")["paths"].values():
        document = server.get(entry["serverRelativeURL"])
        for name, schema in document.get("components", {}).get("schemas", {}).items():
            kinds = schema.get("x-kubernetes-group-version-kind", [])
            if len(kinds) > 1:  # DeleteOptions and WatchEvent belong to all groups, and each document lists other ones
                schema = {**schema, "x-kubernetes-group-version-kind": []}
            found.setdefault(name, without_descriptions(schema))
    return found


def without_descriptions(schema: Any) -> Any:
    """The schema without descriptions, which are copyrighted; names, types and rules are facts."""
    if isinstance(schema, dict):
        return {
            key: without_descriptions(value)
            for key, value in schema.items()
            if not (key == "description" and isinstance(value, str))
        }
    return [without_descriptions(entry) for entry in schema] if isinstance(schema, list) else schema


def discovery(server: Server) -> dict[str, Any]:
    """The aggregated discovery documents."""
    return {"api": server.get("/api", DISCOVERY)["items"], "apis": server.get("/apis", DISCOVERY)["items"]}


def columns(server: Server) -> dict[str, Any]:
    """The table columns of each listable resource, described in our own words."""
    found = {}
    documents = discovery(server)
    for group in documents["api"] + documents["apis"]:
        name = group["metadata"].get("name", "")
        for version in group["versions"]:
            base = f"/apis/{name}/{version['version']}" if name else f"/api/{version['version']}"
            for resource in version["resources"]:
                if "list" in resource["verbs"]:
                    table = server.get(f"{base}/{resource['resource']}?limit=1", TABLE)
                    found[f"{base}/{resource['resource']}"] = described(table["columnDefinitions"])
    return found


def described(definitions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The columns with our own descriptions; names, types and priorities are kept."""
    return [
        {**column, "description": COLUMN_DESCRIPTIONS.get(column["name"], f"{column['name']} of the object.")}
        for column in definitions
    ]


def initial_objects(server: Server) -> dict[str, Any]:
    """The bootstrap objects of every cluster, without fields that a server sets."""
    found = {}
    for name, path in INITIAL_OBJECTS.items():
        answer = server.get(path)
        kind = answer["kind"].removesuffix("List")
        items = []
        for item in answer["items"]:
            for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"):
                item["metadata"].pop(field, None)
            items.append({"apiVersion": answer["apiVersion"], "kind": kind, **item})
        found[name] = items
    return found


def protobuf(modules: Path) -> dict[str, Any]:
    """Messages by full name; each a list of [number, JSON name, type, repeated, how it is shown].

    A `.proto` file has the numbers and types. Only the Go structs beside it tell the name in JSON and what an empty
    value means: `inline` (its fields are those of the message around it), `keep` (shown whenever it was sent) or `drop`
    (not shown if it is empty).
    """
    messages: dict[str, Any] = {}
    roots = [sorted(modules.glob(f"k8s.io/{module}@v0.*"))[-1] for module in MODULES]
    for root in roots:
        for path in sorted(root.rglob("generated.proto")):
            if "/testdata/" in str(path) or "example" in str(path) or "testapigroup" in str(path):
                continue
            tags = _go_tags(path.parent)
            for name, fields in _messages(path.read_text()):
                shown = tags.get(name.rpartition(".")[2], {})
                messages[name] = [
                    [number, *_shown(shown.get(number), field=field, kind=kind, repeated=repeated)]
                    for number, field, kind, repeated in fields
                ]
    return dict(sorted(messages.items()))


MODULES = ("api", "apimachinery", "apiextensions-apiserver", "kube-aggregator")
_GO_FIELD = re.compile(r"^\s+(?:\w+\s+)?(?P<type>\S+)\s+`(?P<tags>[^`]*)`")


def _shown(tag: tuple[str, str] | None, *, field: str, kind: str, repeated: bool) -> tuple[str, str, bool, str]:
    """JSON name, type, whether it is a list, and how an empty value is shown, from a field's Go type and JSON tag."""
    go_type, text = tag or ("", f"{field},omitempty")
    name, *options = text.split(",")
    plain = kind in _SCALARS or kind.startswith("map<") or repeated
    if not name:
        how = "inline"
    elif "omitzero" in options or ("omitempty" in options and plain and not go_type.startswith("*")):
        how = "drop"
    else:
        how = "keep"
    return (field if name in ("", "-") else name), kind, repeated, how


def _go_tags(package: Path) -> dict[str, dict[int, tuple[str, str]]]:
    """By struct and field number: the Go type and the JSON tag."""
    found: dict[str, dict[int, tuple[str, str]]] = {}
    for path in sorted(package.glob("*.go")):
        fields: dict[int, tuple[str, str]] | None = None
        for line in path.read_text().splitlines():
            if opened := re.match(r"^type (\w+) struct \{", line):
                fields = found.setdefault(opened[1], {})
            elif line.startswith("}"):
                fields = None
            elif fields is not None and (field := _GO_FIELD.match(line)):
                number = re.search(r'protobuf:"\w+,(\d+),', field["tags"])
                json_tag = re.search(r'json:"([^"]*)"', field["tags"])
                if number and json_tag:
                    fields[int(number[1])] = (field["type"], json_tag[1])
    return found


def _messages(text: str) -> Iterator[tuple[str, Any]]:
    package = re.search(r"^package\s+([\w.]+);", text, re.MULTILINE)
    if package is None:
        return
    current: list[list[Any]] | None = None
    name = ""
    for line in text.splitlines():
        if opened := re.match(r"^message\s+(\w+)\s*\{", line):
            name, current = f"{package[1]}.{opened[1]}", []
        elif line.startswith("}") and current is not None:
            yield name, current
            current = None
        elif current is not None and (field := _FIELD.match(line)):
            kind = field["type"].replace(" ", "")
            current.append([int(field["number"]), field["name"], _full(kind, package[1]), field["label"] == "repeated"])


_SCALARS = {"string", "bytes", "bool", "int32", "int64", "uint32", "uint64", "double", "float"}


def _full(kind: str, package: str) -> str:
    """The type with its package; scalars stay as they are."""
    if kind.startswith("map<"):
        key, _, value = kind[4:-1].partition(",")
        return f"map<{key},{_full(value, package)}>"
    if kind in _SCALARS:
        return kind
    return kind.lstrip(".") if "." in kind else f"{package}.{kind}"


if __name__ == "__main__":
    sys.exit(main())
