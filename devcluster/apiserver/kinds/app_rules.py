# SPDX-License-Identifier: Apache-2.0
"""What Deployments, replica sets, stateful sets and daemon sets must not have."""

from __future__ import annotations

import re
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import pod_spec, selector_rules

_AT_LEAST_ZERO: Final = "must be greater than or equal to 0"
_PERCENT: Final = re.compile(r"[0-9]+%")
_PERCENT_TEXT: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)
_MAY_CHANGE: Final = (
    *("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit"),
    *("persistentVolumeClaimRetentionPolicy", "minReadySeconds"),
)
_WITH_WRONG_SELECTOR: Final = {"deployment": "invalid label selector", "statefulset": ""}
"""What a server adds to the problems of a selector, by kind; nothing for others."""
_COUNTS: Final = ("minReadySeconds", "replicas", "revisionHistoryLimit")


def problems(spec: JsonObject, *, kind: str) -> list[StatusCause]:
    """The problems that all of these kinds can have; `kind` is named in the message about a selector."""
    found = [
        field_errors.invalid(f"spec.{name}", amount, _AT_LEAST_ZERO)
        for name in _COUNTS
        if isinstance(amount := spec.get(name), int)
        and amount < 0
        and (kind, name) != ("statefulset", "revisionHistoryLimit")  # not checked by a real server
    ]
    return found + _selector_problems(spec, kind) + _template_problems(documents.child(spec, "template", "spec"))


def _selector_problems(spec: JsonObject, kind: str) -> list[StatusCause]:
    selector = spec.get("selector")
    if selector is None:
        return [field_errors.required("spec.selector")]
    if not selector:
        return [field_errors.invalid("spec.selector", {}, f"empty selector is invalid for {kind}")]
    found = selector_rules.problems(selector, "spec.selector")
    if found:
        if kind in _WITH_WRONG_SELECTOR:
            shown = selector_rules.shown(selector)
            found.append(field_errors.invalid("spec.selector", shown, _WITH_WRONG_SELECTOR[kind]))
        return found
    labels = documents.strings(documents.child(spec, "template", "metadata").get("labels"))
    if selector_rules.selects(selector, labels):
        return []
    detail = "`selector` does not match template `labels`"
    return [field_errors.invalid("spec.template.metadata.labels", labels, detail)]


def _template_problems(pod: JsonObject) -> list[StatusCause]:
    path = "spec.template.spec"
    found = pod_spec.validate_spec(pod, path)
    if pod.get("restartPolicy") in ("Never", "OnFailure"):
        found.append(field_errors.not_supported(f"{path}.restartPolicy", pod["restartPolicy"], ["Always"]))
    if pod.get("activeDeadlineSeconds") is not None:
        text = "activeDeadlineSeconds in ReplicaSet is not Supported"
        found.append(field_errors.forbidden(f"{path}.activeDeadlineSeconds", text))
    return found


def deployment_problems(spec: JsonObject) -> list[StatusCause]:
    """The problems of a Deployment's strategy and deadline."""
    strategy = documents.child(spec, "strategy")
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    path = "spec.strategy"
    found = []
    if kind == "Recreate":
        if rolling is not None:
            text = "may not be specified when strategy `type` is 'Recreate'"
            found.append(field_errors.forbidden(f"{path}.rollingUpdate", text))
    elif kind != "RollingUpdate":
        shown: JsonObject = {"Type": kind, "RollingUpdate": rolling}
        found.append(field_errors.not_supported(path, shown, ["Recreate", "RollingUpdate"]))
    elif isinstance(rolling, dict):
        found += _limit_problems(rolling, f"{path}.rollingUpdate")
    deadline = spec.get("progressDeadlineSeconds")
    if isinstance(deadline, int) and deadline < 0:
        found.append(field_errors.invalid("spec.progressDeadlineSeconds", deadline, _AT_LEAST_ZERO))
    if isinstance(deadline, int) and deadline <= int(str(spec.get("minReadySeconds", 0))):
        text = "must be greater than minReadySeconds"
        found.append(field_errors.invalid("spec.progressDeadlineSeconds", deadline, text))
    return found


def _limit_problems(rolling: JsonObject, path: str) -> list[StatusCause]:
    surge, unavailable = rolling.get("maxSurge"), rolling.get("maxUnavailable")
    found = _amount_problems(unavailable, f"{path}.maxUnavailable") + _amount_problems(surge, f"{path}.maxSurge")
    if found:
        return found
    if surge in (0, "0%") and unavailable in (0, "0%"):
        text = "may not be 0 when `maxSurge` is 0"
        return [field_errors.invalid(f"{path}.maxUnavailable", unavailable, text)]
    if isinstance(unavailable, str) and int(unavailable.removesuffix("%")) > 100:
        return [field_errors.invalid(f"{path}.maxUnavailable", unavailable, "must not be greater than 100%")]
    return []


def _amount_problems(amount: JsonValue, path: str) -> list[StatusCause]:
    if isinstance(amount, str) and not _PERCENT.fullmatch(amount):
        return [field_errors.invalid(path, amount, _PERCENT_TEXT)]
    if isinstance(amount, int) and amount < 0:
        return [field_errors.invalid(path, amount, _AT_LEAST_ZERO)]
    return []


def daemon_set_problems(spec: JsonObject) -> list[StatusCause]:
    """The problems of a DaemonSet's update strategy: exactly one of its two limits is not 0."""
    strategy = documents.child(spec, "updateStrategy")
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    path = "spec.updateStrategy"
    if kind == "OnDelete":
        return []
    if kind != "RollingUpdate":
        shown: JsonObject = {"Type": kind, "RollingUpdate": rolling}
        return [field_errors.not_supported(path, shown, ["RollingUpdate", "OnDelete"])]
    limits = documents.child(strategy, "rollingUpdate")
    found = []
    for name in ("maxUnavailable", "maxSurge"):
        amount, where = limits.get(name), f"{path}.rollingUpdate.{name}"
        found += _amount_problems(amount, where)
        if isinstance(amount, str) and _PERCENT.fullmatch(amount) and _count_of(amount) > 100:
            found.append(field_errors.invalid(where, amount, "must not be greater than 100%"))
    surge, unavailable = limits.get("maxSurge"), limits.get("maxUnavailable")
    if _count_of(surge) and _count_of(unavailable):
        text = "may not be set when maxUnavailable is non-zero"
        found.append(field_errors.invalid(f"{path}.rollingUpdate.maxSurge", surge, text))
    elif not _count_of(surge) and not _count_of(unavailable):
        text = "cannot be 0 when maxSurge is 0"
        found.append(field_errors.required(f"{path}.rollingUpdate.maxUnavailable", text))
    return found


def _count_of(amount: JsonValue) -> int:
    """The number, or that of the percentage; 0 for what is neither."""
    if isinstance(amount, str):
        return int(amount.removesuffix("%")) if _PERCENT.fullmatch(amount) else 0
    return amount if isinstance(amount, int) else 0


def stateful_set_problems(spec: JsonObject, old: JsonObject | None) -> list[StatusCause]:
    """The problems of a StatefulSet's policies and ordinals, and of a change of other fields of its spec."""
    found = []
    policy = spec.get("podManagementPolicy")
    if policy not in ("OrderedReady", "Parallel"):
        text = "must be 'OrderedReady' or 'Parallel'"
        found.append(field_errors.invalid("spec.podManagementPolicy", policy, text))
    found += _update_problems(documents.child(spec, "updateStrategy"))
    start = documents.child(spec, "ordinals").get("start")
    if isinstance(start, int) and start < 0:
        found.append(field_errors.invalid("spec.ordinals.start", start, _AT_LEAST_ZERO))
    retention = documents.child(spec, "persistentVolumeClaimRetentionPolicy")
    for when in ("whenDeleted", "whenScaled"):
        if retention.get(when) not in (None, "Retain", "Delete"):
            where = f"spec.persistentVolumeClaimRetentionPolicy.{when}"
            found.append(field_errors.not_supported(where, retention[when], ["Retain", "Delete"]))
    if old is not None:
        names = (spec.keys() | old.keys()) - set(_MAY_CHANGE)
        if any(spec.get(name) != old.get(name) for name in names):
            quoted = [f"'{name}'" for name in _MAY_CHANGE]
            listed = f"{', '.join(quoted[:-1])} and {quoted[-1]}"
            text = f"updates to statefulset spec for fields other than {listed} are forbidden"
            found.append(field_errors.forbidden("spec", text))
    return found


def _update_problems(strategy: JsonObject) -> list[StatusCause]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    path = "spec.updateStrategy"
    if kind == "OnDelete":
        if isinstance(rolling, dict):
            shown: JsonObject = {"Partition": rolling.get("partition"), "MaxUnavailable": None}
            text = "only allowed for updateStrategy 'RollingUpdate'"
            return [field_errors.invalid(f"{path}.rollingUpdate", shown, text)]
        return []
    if kind != "RollingUpdate":
        whole: JsonObject = {"Type": kind, "RollingUpdate": rolling}
        return [field_errors.invalid(path, whole, "must be 'RollingUpdate' or 'OnDelete'")]
    partition = documents.child(strategy, "rollingUpdate").get("partition")
    if isinstance(partition, int) and partition < 0:
        return [field_errors.invalid(f"{path}.rollingUpdate.partition", partition, _AT_LEAST_ZERO)]
    return []
