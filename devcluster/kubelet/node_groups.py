# SPDX-License-Identifier: Apache-2.0
"""The virtual nodes of each cluster of a federation: parsed from options or a file, validated, stored as JSON.

Errors are `BadInput` with the option or the position in the file. Imports no slow modules, as `mkctl up` uses it before
it starts a supervisor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from multikueue.api.names import dns_label, label_key, label_value
from multikueue.core.errors import BadInput
from multikueue.core.parsing import parse_unsigned
from multikueue.core.printable import excerpt
from multikueue.core.quantity import Quantity

DEFAULT_PREFIX: Final = "node"
MAX_NODES: Final = 1000
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MAX_PREFIX: Final = 50  # with its number it is the value of the label kubernetes.io/hostname
_FIELDS: Final = ("cluster", "name", "count", "labels", "taints", "resources")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTaint:
    """A taint of a virtual node."""

    key: str
    value: str
    effect: str

    @classmethod
    def parse(cls, text: str, *, where: str) -> NodeTaint:
        """Parse `key=value:Effect` or `key:Effect` as in kubectl. Raises `BadInput`, which includes `where`."""
        name, colon, effect = text.rpartition(":")
        key, _, value = name.partition("=")
        if not colon or not key:
            raise BadInput(f"{where}: expected a taint such as key=value:NoSchedule, found {excerpt(text)}")
        if effect not in _EFFECTS:
            raise BadInput(f"{where}: expected one of the effects {', '.join(_EFFECTS)}, found {excerpt(effect)}")
        _raise_first(label_key(key), f"{where}: taint key {excerpt(key)}")
        _raise_first(label_value(value), f"{where}: taint value {excerpt(value)}")
        return cls(key=key, value=value, effect=effect)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTraits:
    """Labels, taints and resources of nodes besides the defaults."""

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[NodeTaint] = ()
    resources: Mapping[str, str] = field(default_factory=dict)

    def with_more(self, more: NodeTraits) -> NodeTraits:
        """Merged with `more`, which overrides the same label, resource, or taint key and effect."""
        taints = {(taint.key, taint.effect): taint for taint in (*self.taints, *more.taints)}
        return NodeTraits(
            labels={**self.labels, **more.labels},
            taints=tuple(taints.values()),
            resources={**self.resources, **more.resources},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualNodeGroup:
    """Equal nodes, named `prefix-1` and so on; groups with the same prefix are numbered consecutively."""

    prefix: str = DEFAULT_PREFIX
    count: int = 1
    traits: NodeTraits = field(default_factory=NodeTraits)

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> VirtualNodeGroup:
        """The inverse of `to_json`."""
        traits: dict[str, Any] = dict(value["traits"])
        taints = tuple(NodeTaint(**taint) for taint in traits.pop("taints"))
        return cls(prefix=value["prefix"], count=value["count"], traits=NodeTraits(taints=taints, **traits))


NodeGroups = Mapping[str, Sequence[VirtualNodeGroup]]
"""The groups of nodes of each cluster."""


def alike(clusters: Iterable[str], *, count: int) -> NodeGroups:
    """`count` default nodes in each cluster."""
    return {cluster: (VirtualNodeGroup(count=count),) for cluster in clusters}


def with_options(
    groups_of: NodeGroups, *, labels: Iterable[str] = (), resources: Iterable[str] = (), taints: Iterable[str] = ()
) -> NodeGroups:
    """The groups with the options `KEY=VALUE` and `key=value:Effect` added, for one cluster if `CLUSTER:` comes first.

    Raises `BadInput` for malformed text and for an unknown cluster.
    """
    added = {cluster: NodeTraits() for cluster in groups_of}

    def add(option: str, cluster: str, traits: NodeTraits) -> None:
        if cluster and cluster not in added:
            raise BadInput(f"{option}: there is no cluster {excerpt(cluster)} with nodes, only {', '.join(added)}")
        for each in [cluster] if cluster else list(added):
            added[each] = added[each].with_more(traits)

    for text in labels:
        option = f"--node-label {text}"
        cluster, key, value = _assignment(text, option)
        add(option, cluster, NodeTraits(labels=dict([_label(key, value, option)])))
    for text in resources:
        option = f"--node-resource {text}"
        cluster, key, value = _assignment(text, option)
        add(option, cluster, NodeTraits(resources=dict([_resource(key, value, option)])))
    for text in taints:
        option = f"--node-taint {text}"
        cluster, rest = text.split(":", 1) if text.count(":") == 2 else ("", text)
        add(option, cluster, NodeTraits(taints=(NodeTaint.parse(rest, where=option),)))
    return {
        cluster: tuple(replace(group, traits=group.traits.with_more(added[cluster])) for group in groups)
        for cluster, groups in groups_of.items()
    }


def read(path: Path, clusters: Sequence[str]) -> NodeGroups:
    """The groups that a YAML file defines for these clusters; a cluster without a group has no nodes.

    The file is a list of groups: `count`, and optionally `cluster` (every one without it), `name` (of the nodes),
    `labels`, `taints` (as `key=value:Effect`) and `resources`. Raises `BadInput`.
    """
    import yaml

    try:
        document = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as error:
        raise BadInput(f"--nodes {path}: neither a number nor a file that can be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"--nodes {path}: not YAML: {error}") from error
    if not isinstance(document, list):
        raise BadInput(f"--nodes {path}: expected a list of groups of nodes, found {excerpt(document)}")
    found: dict[str, list[VirtualNodeGroup]] = {cluster: [] for cluster in clusters}
    for number, entry in enumerate(document):
        where = f"--nodes {path}: group {number}"
        cluster, group = _group(entry, where)
        if cluster and cluster not in found:
            raise BadInput(f"{where}: there is no cluster {excerpt(cluster)} with nodes, only {', '.join(clusters)}")
        for each in [cluster] if cluster else clusters:
            found[each].append(group)
    for cluster, groups in found.items():
        total = sum(group.count for group in groups)
        if total > MAX_NODES:
            raise BadInput(f"--nodes {path}: {cluster} would have {total} nodes, {MAX_NODES} is the most")
    return found


def _group(entry: object, where: str) -> tuple[str, VirtualNodeGroup]:
    if not isinstance(entry, dict):
        raise BadInput(f"{where}: expected a mapping with a count, found {excerpt(entry)}")
    unknown = [key for key in entry if key not in _FIELDS]
    if unknown:
        raise BadInput(f"{where}: there is no field {excerpt(unknown[0])}, only {', '.join(_FIELDS)}")
    prefix = str(entry.get("name", DEFAULT_PREFIX))
    _raise_first(dns_label(prefix), f"{where}: name {excerpt(prefix)}")
    if len(prefix) > _MAX_PREFIX:
        raise BadInput(f"{where}: name {excerpt(prefix)} must be no more than {_MAX_PREFIX} characters")
    if "count" not in entry:
        raise BadInput(f"{where}: count is missing")
    traits = NodeTraits()
    for key, value in _mapping(entry, "labels", where):
        traits = traits.with_more(NodeTraits(labels=dict([_label(key, value, f"{where}: labels")])))
    for key, value in _mapping(entry, "resources", where):
        traits = traits.with_more(NodeTraits(resources=dict([_resource(key, value, f"{where}: resources")])))
    taints = entry.get("taints") or []
    if not isinstance(taints, list):
        raise BadInput(f"{where}: taints: expected a list such as [key=value:NoSchedule], found {excerpt(taints)}")
    for taint in taints:
        if not isinstance(taint, str):
            raise BadInput(f"{where}: taints: expected a taint such as key=value:NoSchedule, found {excerpt(taint)}")
        traits = traits.with_more(NodeTraits(taints=(NodeTaint.parse(taint, where=f"{where}: taints"),)))
    count = parse_unsigned(entry["count"], field=f"{where}: count", maximum=MAX_NODES)
    return str(entry.get("cluster") or ""), VirtualNodeGroup(prefix=prefix, count=count, traits=traits)


def _mapping(entry: Mapping[str, object], name: str, where: str) -> Iterator[tuple[str, str]]:
    value = entry.get(name) or {}
    if not isinstance(value, dict):
        raise BadInput(f"{where}: {name}: expected a mapping, found {excerpt(value)}")
    for key, each in value.items():
        if isinstance(each, bool) or not isinstance(each, str | int | float):
            raise BadInput(f"{where}: {name}: {key}: expected text or a number, found {excerpt(each)}")
        yield str(key), str(each)


def _assignment(text: str, option: str) -> tuple[str, str, str]:
    """The cluster, if one is named, the key and the value of `[CLUSTER:]KEY=VALUE`."""
    name, equals, value = text.partition("=")
    cluster, _, key = name.rpartition(":")
    if not equals or not key:
        raise BadInput(f"{option}: expected KEY=VALUE, or CLUSTER:KEY=VALUE for one cluster")
    return cluster, key, value


def _label(key: str, value: str, where: str) -> tuple[str, str]:
    _raise_first(label_key(key), f"{where}: label {excerpt(key)}")
    _raise_first(label_value(value), f"{where}: value {excerpt(value)}")
    return key, value


def _resource(key: str, value: str, where: str) -> tuple[str, str]:
    _raise_first(label_key(key), f"{where}: resource {excerpt(key)}")
    try:
        amount = Quantity.parse(value)
    except BadInput as error:
        raise BadInput(f"{where}: {key}: {error}") from error
    if amount < Quantity.of(0):
        raise BadInput(f"{where}: {key}: expected an amount that is not negative, found {excerpt(value)}")
    if "/" in key and Quantity.of(amount.ceil()) != amount:
        raise BadInput(f"{where}: {key}: an extended resource comes in whole numbers, found {excerpt(value)}")
    return key, value


def _raise_first(problems: Iterable[str], subject: str) -> None:
    for problem in problems:
        raise BadInput(f"{subject}: {problem}")
