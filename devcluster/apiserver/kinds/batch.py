# SPDX-License-Identifier: Apache-2.0
"""Jobs and cron jobs: defaults, selector and labels of the pods, what may change, table cells."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents, times
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.codec.times import read_time
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import job_rules, job_status_rules, pod_spec, selector_rules
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext, age

_LABELS: Final = {
    "batch.kubernetes.io/controller-uid": "uid",
    "batch.kubernetes.io/job-name": "name",
    "controller-uid": "uid",
    "job-name": "name",
}
_RETRIES: Final = 6
_UNLIMITED: Final = 2**31 - 1


class JobBehaviour(KindBehaviour):
    """Jobs."""

    has_status = True
    generation = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        spec = value.setdefault("spec", {})
        default_spec(spec)
        labels = documents.child(spec, "template", "metadata").get("labels")
        metadata = value.get("metadata")
        if labels and isinstance(metadata, dict) and not metadata.get("labels"):
            # The same map, as in a real server: labels added to the template are added to the job.
            metadata["labels"] = labels

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Generate the selector and the labels of the pods."""
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
        # The job has no labels of its own, so a real server shows the template's.
        if not metadata.get("labels"):
            metadata["labels"] = dict(documents.child(spec, "template", "metadata").get("labels") or {})
            if not metadata["labels"]:
                del metadata["labels"]

    def prepare_update(self, value: JsonObject, old: JsonObject, request_context: RequestContext) -> None:
        """Keep what this write may not change, and update the generation."""
        super().prepare_update(value, old, request_context)
        value.setdefault("status", {})

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        if request_context.subresource == "status":
            return [] if old is None else job_status_rules.problems(value, old)
        spec = value["spec"]
        found = _spec_problems(spec, "spec")
        if old is not None:
            return found + _changed(spec, old)
        return found + _selector_problems(value) + job_rules.hostname_problems(value)

    def fields(self, value: JsonObject) -> dict[str, str]:
        """The fields that selectors can use."""
        return {"status.successful": str(documents.child(value, "status").get("succeeded", 0))}

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names of `fields`."""
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
            lasted = times.duration(start, read_time(end) if end else now)
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


_LONGEST_CRON_NAME: Final = 52
"""A Job adds eleven characters, and names of Jobs have at most 63."""


class CronJobBehaviour(KindBehaviour):
    """Cron jobs."""

    has_status = True
    generation = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        spec = value.setdefault("spec", {})
        spec.setdefault("concurrencyPolicy", "Allow")
        spec.setdefault("suspend", False)
        spec.setdefault("successfulJobsHistoryLimit", 3)
        spec.setdefault("failedJobsHistoryLimit", 1)
        template = spec.setdefault("jobTemplate", {}).setdefault("spec", {}).setdefault("template", {})
        pod_spec.default_template(template)

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        if request_context.subresource == "status":
            return []
        spec = documents.child(value, "spec")
        before = documents.child(old, "spec") if old is not None else documents.EMPTY
        template = {"completionMode": "NonIndexed", **documents.child(spec, "jobTemplate", "spec")}
        found = job_rules.cron_job_problems(spec, before) + _spec_problems(template, "spec.jobTemplate.spec")
        if old is None and len(value["metadata"].get("name", "")) > _LONGEST_CRON_NAME:
            text = f"must be no more than {_LONGEST_CRON_NAME} characters"
            found.append(field_errors.invalid("metadata.name", value["metadata"]["name"], text))
        return found

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Remove the status of a new one."""
        super().prepare_create(value, request_context)
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
            times.duration(last, now) if last else "<none>",
            age(value, now),
            *template_cells(documents.child(spec, "jobTemplate", "spec", "template")),
            "<none>",
        ]


def default_spec(spec: JsonObject) -> None:
    """Set the defaults of a job's spec."""
    pod_spec.default_template(spec.setdefault("template", {}))
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


def _spec_problems(spec: JsonObject, path: str) -> list[StatusCause]:
    found = []
    for name in ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"):
        amount = spec.get(name)
        if isinstance(amount, int) and amount < 0:
            found.append(field_errors.invalid(f"{path}.{name}", amount, "must be greater than or equal to 0"))
    mode = spec.get("completionMode")
    if mode not in ("NonIndexed", "Indexed"):
        found.append(field_errors.not_supported(f"{path}.completionMode", mode, ["NonIndexed", "Indexed"]))
    if mode == "Indexed" and spec.get("completions") is None:
        found.append(field_errors.required(f"{path}.completions", "when completion mode is Indexed"))
    found += job_rules.job_problems(spec, path)
    template = documents.child(spec, "template", "spec")
    found += pod_spec.validate_spec(template, f"{path}.template.spec")
    policy = template.get("restartPolicy")
    where = f"{path}.template.spec.restartPolicy"
    if policy == "Always":
        found.append(field_errors.required(where, 'valid values: "OnFailure", "Never"'))
    if spec.get("podFailurePolicy") and policy == "OnFailure":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        found.append(field_errors.invalid(where, policy, detail))
    return found


def _selector_problems(value: JsonObject) -> list[StatusCause]:
    spec = value["spec"]
    selector, labels = spec.get("selector"), documents.child(spec, "template", "metadata").get("labels")
    found = []
    generated = {"matchLabels": {"batch.kubernetes.io/controller-uid": value["metadata"]["uid"]}}
    if not selector:
        found.append(field_errors.required("spec.selector"))
    elif not spec.get("manualSelector") and selector != generated:
        found.append(field_errors.invalid("spec.selector", selector, "`selector` not auto-generated"))
    wrong = selector_rules.problems(selector, "spec.selector")
    found += wrong
    if not selector or not (wrong or selector_rules.selects(selector, documents.strings(labels))):
        where = "spec.template.metadata.labels"
        found.append(field_errors.invalid(where, labels, "`selector` does not match template `labels`"))
    return found


def _changed(spec: JsonObject, old: JsonObject) -> list[StatusCause]:
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
        if spec.get(name) != before.get(name):
            found.append(field_errors.immutable(f"spec.{name}", spec.get(name)))
    if spec.get("completions") != before.get("completions") and not (
        spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    ):
        found.append(field_errors.immutable("spec.completions", spec.get("completions")))
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
            found.append(field_errors.immutable(where, spec["template"]))
    return found
