# SPDX-License-Identifier: Apache-2.0
"""Jobs and cron jobs: defaults, selector and labels of the pods, what may change, table cells."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from multikueue.core.errors import BadInput
from multikueue.core.selectors import LabelSelector, Requirement
from multikueue.core.timestamps import parse_time
from multikueue.devcluster.apiserver import documents, words
from multikueue.devcluster.apiserver.documents import JsonObject, JsonValue
from multikueue.devcluster.apiserver.errors import Cause
from multikueue.devcluster.apiserver.kinds import jobrules, jobstatusrules, podspec
from multikueue.devcluster.apiserver.kinds.behaviour import Behaviour, Occasion, age

_LABELS: Final = {
    "batch.kubernetes.io/controller-uid": "uid",
    "batch.kubernetes.io/job-name": "name",
    "controller-uid": "uid",
    "job-name": "name",
}
_RETRIES: Final = 6
_UNLIMITED: Final = 2**31 - 1


class JobBehaviour(Behaviour):
    """What jobs do of their own."""

    has_status = True
    generation = True

    def default(self, value: JsonObject) -> None:
        """Fill in what clients may leave out."""
        spec = value.setdefault("spec", {})
        default_spec(spec)
        labels = documents.child(spec, "template", "metadata").get("labels")
        metadata = value.get("metadata")
        if labels and isinstance(metadata, dict) and not metadata.get("labels"):
            # One and the same map, as in a real server: what a new job's template gets, the job gets.
            metadata["labels"] = labels

    def prepare_create(self, value: JsonObject, occasion: Occasion) -> None:
        """Give the pods a selector of their own."""
        value["status"] = {}
        metadata, spec = value["metadata"], value["spec"]
        metadata["generation"] = 1
        if not spec.get("manualSelector"):
            marks = {"uid": metadata["uid"], "name": metadata["name"]}
            template = spec.setdefault("template", {})
            labels = template.setdefault("metadata", {}).setdefault("labels", {})
            if labels is None:
                labels = template["metadata"]["labels"] = {}
            for label, mark in _LABELS.items():
                labels[label] = marks[mark]
            selector = spec.get("selector") or {}
            own = {"batch.kubernetes.io/controller-uid": metadata["uid"]}
            spec["selector"] = {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **own}}
        spec.setdefault("manualSelector", False)
        # The job's own labels were defaulted from an empty template; a real server shows the template's there.
        if not metadata.get("labels"):
            metadata["labels"] = dict(documents.child(spec, "template", "metadata").get("labels") or {})
            if not metadata["labels"]:
                del metadata["labels"]

    def prepare_update(self, value: JsonObject, old: JsonObject, occasion: Occasion) -> None:
        """Keep what this write may not change, and count changes."""
        super().prepare_update(value, old, occasion)
        value.setdefault("status", {})

    def validate(self, value: JsonObject, old: JsonObject | None, occasion: Occasion) -> list[Cause]:
        """What is wrong with it."""
        if occasion.subresource == "status":
            return [] if old is None else jobstatusrules.problems(value, old)
        spec = value["spec"]
        found = _spec_problems(spec, "spec")
        return found + (_selector_problems(value) if old is None else _changed(spec, old))

    def fields(self, value: JsonObject) -> dict[str, str]:
        """What field selectors may ask for."""
        return {"status.successful": str(documents.child(value, "status").get("succeeded", 0))}

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names that `fields` knows."""
        return ("status.successful",)

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Status, Completions, Duration, Age, Containers, Images, Selector."""
        spec, status = documents.child(value, "spec"), documents.child(value, "status")
        done = status.get("succeeded", 0)
        completions, parallelism = spec.get("completions"), spec.get("parallelism", 0)
        if completions is not None:
            shown = f"{done}/{completions}"
        else:
            shown = f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"
        start, end = status.get("startTime"), status.get("completionTime")
        lasted = ""
        if start:
            lasted = words.duration(start, parse_time(end) if end else now)
        return [
            value["metadata"]["name"],
            _state(value),
            shown,
            lasted,
            age(value, now),
            *template_cells(documents.child(spec, "template")),
            selector_text(spec.get("selector")),
        ]


def _state(value: JsonObject) -> str:
    conditions = {
        condition.get("type")
        for condition in documents.items(value, "status", "conditions")
        if condition.get("status") == "True"
    }
    for state in ("Complete", "Failed"):
        if state in conditions:
            return state
    if value["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for state in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if state in conditions:
            return state
    return "Running"


def template_cells(template: JsonObject) -> list[JsonValue]:
    """The containers and images columns."""
    containers = documents.items(template, "spec", "containers")
    return [",".join(c.get("name", "") for c in containers), ",".join(c.get("image", "") for c in containers)]


def selector_text(selector: JsonValue) -> str:
    """A label selector as tables show it."""
    if not isinstance(selector, dict):
        return "<none>"
    parts = [f"{key}={value}" for key, value in sorted(documents.strings(selector.get("matchLabels")).items())]
    for expression in documents.items(selector, "matchExpressions"):
        key, operator, values = expression.get("key", ""), expression.get("operator"), expression.get("values") or []
        listed = f"({','.join(values)})"
        parts.append(
            {"In": f"{key} in {listed}", "NotIn": f"{key} notin {listed}", "Exists": key}.get(str(operator), f"!{key}")
        )
    return ",".join(parts) or "<none>"


_CRON_FIELDS: Final = 5


class CronJobBehaviour(Behaviour):
    """What cron jobs do of their own."""

    has_status = True
    generation = True

    def default(self, value: JsonObject) -> None:
        """Fill in what clients may leave out."""
        spec = value.setdefault("spec", {})
        spec.setdefault("concurrencyPolicy", "Allow")
        spec.setdefault("suspend", False)
        spec.setdefault("successfulJobsHistoryLimit", 3)
        spec.setdefault("failedJobsHistoryLimit", 1)
        template = spec.setdefault("jobTemplate", {}).setdefault("spec", {}).setdefault("template", {})
        podspec.default_template(template)

    def validate(self, value: JsonObject, old: JsonObject | None, occasion: Occasion) -> list[Cause]:
        """What is wrong with it."""
        schedule = documents.child(value, "spec").get("schedule")
        if not schedule:
            return [words.required("spec.schedule")]
        parts = str(schedule).split()
        if len(parts) == _CRON_FIELDS or str(schedule).startswith(("@", "TZ=", "CRON_TZ=")):
            return []
        text = f"expected exactly {_CRON_FIELDS} fields, found {len(parts)}: [{' '.join(parts)}]"
        return [words.bad_value("spec.schedule", schedule, text)]

    def prepare_create(self, value: JsonObject, occasion: Occasion) -> None:
        """A new one has no status."""
        super().prepare_create(value, occasion)
        value["status"] = {}

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Schedule, Timezone, Suspend, Active, Last Schedule, Age, Containers, Images, Selector."""
        spec, status = documents.child(value, "spec"), documents.child(value, "status")
        last = status.get("lastScheduleTime")
        return [
            value["metadata"]["name"],
            spec.get("schedule", ""),
            spec.get("timeZone") or "<none>",
            "True" if spec.get("suspend") else "False",
            len(documents.items(status, "active")),
            words.duration(last, now) if last else "<none>",
            age(value, now),
            *template_cells(documents.child(spec, "jobTemplate", "spec", "template")),
            "<none>",
        ]


def default_spec(spec: JsonObject) -> None:
    """Fill in what a job's specification leaves out."""
    podspec.default_template(spec.setdefault("template", {}))
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
    if spec.get("backoffLimit") is None:
        spec["backoffLimit"] = _UNLIMITED if spec.get("backoffLimitPerIndex") is not None else _RETRIES
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    if "podReplacementPolicy" not in spec:
        spec["podReplacementPolicy"] = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    for rule in documents.items(spec, "podFailurePolicy", "rules"):
        for pattern in documents.items(rule, "onPodConditions"):
            pattern.setdefault("status", "True")


def _spec_problems(spec: JsonObject, path: str) -> list[Cause]:
    found = []
    for name in ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"):
        amount = spec.get(name)
        if isinstance(amount, int) and amount < 0:
            found.append(words.bad_value(f"{path}.{name}", amount, "must be greater than or equal to 0"))
    mode = spec.get("completionMode")
    if mode not in ("NonIndexed", "Indexed"):
        found.append(words.one_of(f"{path}.completionMode", mode, ["NonIndexed", "Indexed"]))
    if mode == "Indexed" and spec.get("completions") is None:
        found.append(words.required(f"{path}.completions", "when completion mode is Indexed"))
    found += jobrules.problems(spec, path)
    template = documents.child(spec, "template", "spec")
    found += podspec.validate_spec(template, f"{path}.template.spec")
    policy = template.get("restartPolicy")
    where = f"{path}.template.spec.restartPolicy"
    if policy == "Always":
        found.append(words.required(where, 'valid values: "OnFailure", "Never"'))
    if spec.get("podFailurePolicy") and policy == "OnFailure":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        found.append(words.bad_value(where, policy, detail))
    return found


def _selector_problems(value: JsonObject) -> list[Cause]:
    spec = value["spec"]
    selector, labels = spec.get("selector"), documents.child(spec, "template", "metadata").get("labels")
    found = []
    generated = {"matchLabels": {"batch.kubernetes.io/controller-uid": value["metadata"]["uid"]}}
    if not selector:
        found.append(words.required("spec.selector"))
    elif not spec.get("manualSelector") and selector != generated:
        found.append(words.bad_value("spec.selector", selector, "`selector` not auto-generated"))
    if not selector or not _selects(selector, labels or {}):
        where = "spec.template.metadata.labels"
        found.append(words.bad_value(where, labels, "`selector` does not match template `labels`"))
    return found


def _selects(selector: JsonObject, labels: JsonObject) -> bool:
    expressions = documents.items(selector, "matchExpressions")
    try:
        more = [Requirement(e["key"], e["operator"], tuple(e.get("values") or ())) for e in expressions]
    except BadInput:
        return False
    of_labels = LabelSelector.of(documents.strings(selector.get("matchLabels"))).requirements
    return LabelSelector((*of_labels, *more)).matches(labels)


def _changed(spec: JsonObject, old: JsonObject) -> list[Cause]:
    before = old["spec"]
    found = []
    for name in (
        "selector",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ):
        if spec.get(name) != before.get(name) and not (name == "managedBy" and before.get("suspend")):
            found.append(words.immutable(f"spec.{name}", spec.get(name)))
    if spec.get("completions") != before.get("completions") and not (
        spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    ):
        found.append(words.immutable("spec.completions", spec.get("completions")))
    if spec.get("template") != before.get("template"):
        template, earlier = documents.copy(spec["template"]), documents.copy(before["template"])
        where = "spec.template"
        if before.get("suspend") and not documents.child(old, "status").get("startTime"):
            where = "spec.template.spec"
            for side in (template, earlier):
                for name in ("nodeSelector", "affinity", "tolerations", "schedulingGates"):
                    side.get("spec", {}).pop(name, None)
                for name in ("labels", "annotations"):
                    side.get("metadata", {}).pop(name, None)
                for container in documents.items(side, "spec", "containers"):
                    container.pop("resources", None)
                for container in documents.items(side, "spec", "initContainers"):
                    container.pop("resources", None)
                if not side.get("metadata"):
                    side.pop("metadata", None)
        if template != earlier:
            found.append(words.immutable(where, spec["template"]))
    return found
