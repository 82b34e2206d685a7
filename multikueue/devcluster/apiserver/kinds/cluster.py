# SPDX-License-Identifier: Apache-2.0
"""What a cluster itself consists of: namespaces, nodes, services, events, custom resource definitions."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from multikueue.core.timestamps import parse_time
from multikueue.devcluster.apiserver import documents, words
from multikueue.devcluster.apiserver.documents import JsonObject, JsonValue
from multikueue.devcluster.apiserver.errors import Cause
from multikueue.devcluster.apiserver.kinds import eventrules, servicerules
from multikueue.devcluster.apiserver.kinds.batch import selector_text
from multikueue.devcluster.apiserver.kinds.behaviour import Behaviour, Occasion, age
from multikueue.devcluster.apiserver.schema.values import quoted

_NAME_LABEL: Final = "kubernetes.io/metadata.name"
_FINALIZER: Final = "kubernetes"
_ROLE: Final = "node-role.kubernetes.io/"


class NamespaceBehaviour(Behaviour):
    """Namespaces."""

    has_status = True

    def default(self, value: JsonObject) -> None:
        """A namespace says its name in a label."""
        name = value["metadata"].get("name")
        if name:
            labels = value["metadata"].setdefault("labels", {})
            if labels is None:
                labels = value["metadata"]["labels"] = {}
            labels[_NAME_LABEL] = name

    def prepare_create(self, value: JsonObject, occasion: Occasion) -> None:
        """It stays until it has been emptied."""
        self.default(value)
        value["status"] = {"phase": "Active"}
        finalizers = value.setdefault("spec", {}).setdefault("finalizers", [])
        if _FINALIZER not in finalizers:
            finalizers.append(_FINALIZER)

    def prepare_update(self, value: JsonObject, old: JsonObject, occasion: Occasion) -> None:
        """Only `finalize` changes its finalizers."""
        super().prepare_update(value, old, occasion)
        if occasion.subresource != "finalize":
            value["spec"] = old.get("spec", {})

    def fields(self, value: JsonObject) -> dict[str, str]:
        """What field selectors may ask for."""
        return {"status.phase": documents.child(value, "status").get("phase", ""), "name": value["metadata"]["name"]}

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names that `fields` knows."""
        return ("status.phase", "name")

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Status, Age."""
        return [value["metadata"]["name"], documents.child(value, "status").get("phase", ""), age(value, now)]


_EFFECTS: Final = ["NoSchedule", "PreferNoSchedule", "NoExecute"]


def _amount_problems(amounts: JsonObject, path: str) -> list[Cause]:
    return [
        words.bad_value(f"{path}.{name}", str(amount), "must be greater than or equal to 0")
        for name, amount in sorted(amounts.items())
        if str(amount).startswith("-")
    ]


class NodeBehaviour(Behaviour):
    """Nodes."""

    has_status = True

    def default(self, value: JsonObject) -> None:
        """Without a word about it, pods may have all that there is."""
        status = documents.child(value, "status")
        if status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])

    def prepare_create(self, value: JsonObject, occasion: Occasion) -> None:
        """A kubelet may report a status when it registers; a node that does not is not ready."""
        spec = value.setdefault("spec", {})
        if isinstance(spec, dict) and spec.get("podCIDR") and not spec.get("podCIDRs"):
            spec["podCIDRs"] = [spec["podCIDR"]]
        if isinstance(spec, dict) and not any(
            taint.get("key") == "node.kubernetes.io/not-ready" for taint in documents.items(spec, "taints")
        ):
            taints = spec.get("taints") or []
            spec["taints"] = [*taints, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]

    def prepare_update(self, value: JsonObject, old: JsonObject, occasion: Occasion) -> None:
        """Spec and metadata through the node, status through its subresource."""
        if occasion.subresource == "status":
            value["spec"] = old.get("spec", {})
        else:
            value["status"] = old.get("status", {})

    def validate(self, value: JsonObject, old: JsonObject | None, occasion: Occasion) -> list[Cause]:
        """What is wrong with it."""
        spec = documents.child(value, "spec")
        found = []
        seen: set[tuple[str, str]] = set()
        for index, taint in enumerate(documents.items(spec, "taints")):
            key, effect, where = taint.get("key", ""), taint.get("effect", ""), f"metadata.taints[{index}]"
            if effect not in _EFFECTS:
                found.append(words.one_of(f"{where}.effect", effect, _EFFECTS))
            if (key, effect) in seen:
                shown = {"Key": key, "Value": taint.get("value", ""), "Effect": effect}
                shown["TimeAdded"] = taint.get("timeAdded")
                text = f"Duplicate value: {quoted(shown)}: taints must be unique by key and effect pair"
                found.append(Cause("FieldValueDuplicate", text, where))
            seen.add((key, effect))
        if old is not None:
            known = documents.child(old, "spec").get("providerID")
            if known and known != spec.get("providerID"):
                text = 'node updates may not change providerID except from "" to valid'
                found.append(words.forbidden("spec.providerID", text))
        for field in ("capacity", "allocatable"):
            found += _amount_problems(documents.child(value, "status", field), f"status.{field}")
        return found

    def fields(self, value: JsonObject) -> dict[str, str]:
        """What field selectors may ask for."""
        return {"spec.unschedulable": "true" if documents.child(value, "spec").get("unschedulable") else "false"}

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names that `fields` knows."""
        return ("spec.unschedulable",)

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Status, Roles, Age, Version, Internal-IP, External-IP, OS, Kernel, Runtime."""
        status = documents.child(value, "status")
        info = documents.child(status, "nodeInfo")
        ready = "Unknown"
        for condition in documents.items(status, "conditions"):
            if condition.get("type") == "Ready":
                ready = "Ready" if condition.get("status") == "True" else "NotReady"
        if documents.child(value, "spec").get("unschedulable"):
            ready += ",SchedulingDisabled"
        labels = documents.strings(value["metadata"].get("labels"))
        roles = sorted(label.removeprefix(_ROLE) for label in labels if label.startswith(_ROLE) and label != _ROLE)
        addresses = {entry.get("type"): entry.get("address") for entry in documents.items(status, "addresses")}
        return [
            value["metadata"]["name"],
            ready,
            ",".join(roles) or "<none>",
            age(value, now),
            info.get("kubeletVersion", ""),
            addresses.get("InternalIP") or "<none>",
            addresses.get("ExternalIP") or "<none>",
            info.get("osImage") or "<unknown>",
            _kernel(info),
            info.get("containerRuntimeVersion") or "<unknown>",
        ]


def _kernel(info: JsonObject) -> str:
    found, architecture = info.get("kernelVersion") or "<unknown>", info.get("architecture")
    return f"{found} ({architecture})" if architecture else found


class ServiceBehaviour(Behaviour):
    """Services; addresses are handed out by the caller of `prepare_create` as the name says it."""

    has_status = True

    def default(self, value: JsonObject) -> None:
        """Fill in what clients may leave out."""
        spec = value.setdefault("spec", {})
        spec.setdefault("sessionAffinity", "None")
        spec.setdefault("type", "ClusterIP")
        if spec["sessionAffinity"] == "ClientIP":
            settings = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
            settings.setdefault("timeoutSeconds", _AFFINITY_SECONDS)
        elif spec["sessionAffinity"] == "None":
            spec.pop("sessionAffinityConfig", None)
        if spec["type"] != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")
        for port in documents.items(spec, "ports"):
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))
        if spec["type"] in _OUTSIDE:
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if spec["type"] == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)

    def prepare_create(self, value: JsonObject, occasion: Occasion) -> None:
        """Give it an address that its name decides."""
        value["status"] = {"loadBalancer": {}}
        spec = value["spec"]
        if spec["type"] != "ExternalName":
            number = sum(byte * 31**index for index, byte in enumerate(value["metadata"]["uid"].encode())) % 65_000 + 10
            address = spec.get("clusterIP") or f"10.96.{number // 256}.{number % 256}"
            spec.update({"clusterIP": address, "clusterIPs": [address]})
            if spec["type"] in _OUTSIDE and spec.get("allocateLoadBalancerNodePorts") is not False:
                for index, port in enumerate(documents.items(spec, "ports")):
                    port.setdefault("nodePort", _NODE_PORTS[0] + (number + index) % _NODE_PORTS[1])
            spec.setdefault("ipFamilies", ["IPv4"])
            spec.setdefault("ipFamilyPolicy", "SingleStack")

    def prepare_update(self, value: JsonObject, old: JsonObject, occasion: Occasion) -> None:
        """Its address stays."""
        super().prepare_update(value, old, occasion)
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if name in old["spec"]:
                value["spec"].setdefault(name, old["spec"][name])
        if value["spec"].get("type") in _OUTSIDE:
            kept = {(port.get("port"), port.get("protocol")): port for port in documents.items(old, "spec", "ports")}
            for port in documents.items(value, "spec", "ports"):
                before = kept.get((port.get("port"), port.get("protocol")), {})
                if before.get("nodePort"):
                    port.setdefault("nodePort", before["nodePort"])

    def validate(self, value: JsonObject, old: JsonObject | None, occasion: Occasion) -> list[Cause]:
        """What is wrong with it."""
        return servicerules.problems(value["spec"], new=old is None)

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Type, Cluster-IP, External-IP, Ports, Age, Selector."""
        spec = documents.child(value, "spec")
        ports = [_port(port) for port in documents.items(spec, "ports")]
        selector = spec.get("selector")
        return [
            value["metadata"]["name"],
            spec.get("type", ""),
            spec.get("clusterIP") or "<none>",
            _outside(spec, documents.child(value, "status")),
            ",".join(ports) or "<none>",
            age(value, now),
            selector_text({"matchLabels": selector}) if selector else "<none>",
        ]


_AFFINITY_SECONDS: Final = 10_800
_OUTSIDE: Final = frozenset({"NodePort", "LoadBalancer"})
_NODE_PORTS: Final = (30_000, 2_768)
"""The first, and how many there are."""


def _port(port: JsonObject) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}"


def _outside(spec: JsonObject, status: JsonObject) -> str:
    """The External-IP column."""
    if spec.get("type") == "ExternalName":
        return spec.get("externalName") or "<none>"
    found = []
    if spec.get("type") == "LoadBalancer":
        for entry in documents.items(status, "loadBalancer", "ingress"):
            found.append(entry.get("ip") or entry.get("hostname") or "")
    found += spec.get("externalIPs") or []
    return ",".join(found) or ("<pending>" if spec.get("type") == "LoadBalancer" else "<none>")


class EventBehaviour(Behaviour):
    """Events, in both of their forms."""

    creates_on_update = True

    def default(self, value: JsonObject) -> None:
        """What has no default is shown as empty."""
        value.setdefault("eventTime", None)
        if "involvedObject" in value:
            value.setdefault("reportingComponent", "")
            value.setdefault("reportingInstance", "")

    def validate(self, value: JsonObject, old: JsonObject | None, occasion: Occasion) -> list[Cause]:
        """It stands in the namespace of what it tells about."""
        namespace = documents.child(value, "involvedObject").get("namespace")
        if old is None and namespace and namespace != value["metadata"].get("namespace"):
            return [words.bad_value("involvedObject.namespace", namespace, "does not match event.namespace")]
        return []

    def fields(self, value: JsonObject) -> dict[str, str]:
        """What field selectors may ask for."""
        about = documents.child(value, "involvedObject") or documents.child(value, "regarding")
        source = documents.child(value, "source").get("component") or value.get("reportingComponent", "")
        found = {f"involvedObject.{name}": about.get(name, "") for name in _ABOUT}
        found.update({f"regarding.{name}": about.get(name, "") for name in _ABOUT})
        return {
            **found,
            "reason": value.get("reason", ""),
            "reportingComponent": value.get("reportingComponent", "") or source,
            "reportingController": value.get("reportingController", "") or source,
            "source": source,
            "type": value.get("type", ""),
        }

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names that this form has."""
        return tuple(name for name in self.fields({}) if not name.startswith(("regarding.", "reportingController")))

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Last Seen, Type, Reason, Object, Subobject, Source, Message, First Seen, Count, Name."""
        about = documents.child(value, "involvedObject") or documents.child(value, "regarding")
        source = documents.child(value, "source") or documents.child(value, "deprecatedSource")
        first = value.get("firstTimestamp") or value.get("deprecatedFirstTimestamp") or value.get("eventTime")
        last = value.get("lastTimestamp") or value.get("deprecatedLastTimestamp") or first
        series = documents.child(value, "series")
        if series.get("lastObservedTime"):
            last = series["lastObservedTime"]
        component = source.get("component") or value.get("reportingComponent") or value.get("reportingController", "")
        host = source.get("host") or value.get("reportingInstance") or ""
        count = series.get("count") or value.get("count") or value.get("deprecatedCount") or 1
        return [
            _since(last, now),
            value.get("type", ""),
            value.get("reason", ""),
            f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
            about.get("fieldPath", ""),
            f"{component}, {host}" if host else component,
            str(value.get("message") or value.get("note") or "").strip(),
            _since(first, now),
            count,
            value["metadata"]["name"],
        ]


class NewEventBehaviour(EventBehaviour):
    """Events in their newer form, which asks for more."""

    def validate(self, value: JsonObject, old: JsonObject | None, occasion: Occasion) -> list[Cause]:
        """What is wrong with a new one."""
        return eventrules.problems(value) if old is None else []

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names that this form has."""
        older = ("involvedObject.", "reportingComponent", "source")
        return tuple(name for name in self.fields({}) if not name.startswith(older))


_ABOUT: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def _since(moment: JsonValue, now: datetime) -> str:
    if not isinstance(moment, str):
        return "<unknown>"
    return words.span((now - parse_time(moment)).total_seconds())
