# SPDX-License-Identifier: Apache-2.0
"""The answer of each webhook: requests in, answers out, with the caches for look-ups.

Owns which function of `api.defaulting` and `api.validation` serves which path. Promises not to use the network, except
to check whether a user may adopt, read logs, name an owner or start a pod; a follower answers as well as the leader,
since its caches are warm.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from manager.cache.ancestors import Ancestry, ancestry, may_be_left
from manager.cache.caches import Caches
from manager.cache.indexes import NAMESPACE_INDEX
from manager.cache.queue_targets import QueueTarget, checks_of, cluster_queue_of, misplaced, queue_target
from manager.namespaces import ManagedNamespaces
from manager.seals import Seals
from manager.webhooks.access import AccessReviewer
from manager.webhooks.configurations import (
    KUEUE_HOOKS,
    LOG_REQUEST_HOOK,
    Hook,
    adoption_hooks,
    gate_hooks,
    job_hooks,
    owner_hooks,
    resize_hook,
)
from manager.webhooks.external_kinds import KindFinder
from manager.webhooks.owner_rights import OwnerRights
from manager.webhooks.resizes import ResizeLimits
from manager.webhooks.review import AdmissionRequest, ReviewAnswer
from multikueue.api import admission, defaulting
from multikueue.api.configuration import Configuration
from multikueue.api.constants import (
    ADMISSION_SCHEDULING_GATE,
    ADOPT_VERB,
    ADOPTS_ANNOTATION,
    ADOPTS_SEAL_ANNOTATION,
    DEFAULT_LOCAL_QUEUE,
    DEFAULT_PRIORITY_CLASS,
    LOG_REQUEST_SEAL_ANNOTATION,
    PREBUILT_WORKLOAD_LABEL,
)
from multikueue.api.defaulting import JobSurroundings
from multikueue.api.featuregates import Gate
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    JOB_LOG_REQUESTS,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.printable import excerpt
from multikueue.dispatch.protocol.annotations import adoption_of
from multikueue.dispatch.protocol.job_logs import MAX_REQUESTS
from multikueue.jobs.framework.admission import defaulted, refusals
from multikueue.jobs.framework.capabilities import UpdatedKind
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.jobs.framework.traits import Hold
from multikueue.jobs.framework.workloads import prebuilt_name

Handler = Callable[[AdmissionRequest], ReviewAnswer | Awaitable[ReviewAnswer]]
_KUEUE_KINDS: Final = frozenset(hook.resource for hook in KUEUE_HOOKS)


class Handlers:
    """One handler for each hook, by the path it is served at."""

    def __init__(
        self,
        *,
        configuration: Configuration,
        caches: Caches,
        registry: JobRegistry,
        namespaces: ManagedNamespaces,
        jobs: bool,
        seals: Seals,
        access: AccessReviewer,
        owners: OwnerRights,
        kinds: KindFinder,
    ) -> None:
        """`jobs` is off when another controller manages jobs; `kinds` finds those of external frameworks."""
        self._configuration = configuration
        self._caches = caches
        self._registry = registry
        self._namespaces = namespaces
        self._seals = seals
        self._access = access
        self._owners = owners
        self._kinds = kinds
        enabled: tuple[JobIntegration, ...] = tuple(registry) if jobs else ()
        self._by_resource = {integration.resource: integration for integration in enabled}
        labels = configuration.managed_jobs_namespace_selector
        selector = labels.model_dump(mode="json", by_alias=True, exclude_none=True) if labels is not None else None
        self._owner_hooks = owner_hooks(enabled, namespace_selector=selector)
        self._gate_hooks = gate_hooks(enabled, namespace_selector=selector)
        self._resize_hook = resize_hook(
            enabled,
            external=[name.partition(".")[0] for name in configuration.integrations.external_frameworks],
            namespace_selector=selector,
        )
        self._resizes = ResizeLimits(registry, caches, manage_unqueued=configuration.manage_jobs_without_queue_name)
        followed = (registry if jobs else JobRegistry.configured(configuration)).followed
        self._adoptions = adoption_hooks(followed)
        self.hooks: tuple[Hook, ...] = (
            *KUEUE_HOOKS,
            LOG_REQUEST_HOOK,
            *self._adoptions,
            *job_hooks(enabled, namespace_selector=selector),
            *self._owner_hooks,
            *self._gate_hooks,
            *((self._resize_hook,) if enabled else ()),
        )

    def by_path(self) -> Mapping[str, tuple[Hook, Handler]]:
        """The handler of each path."""
        return {hook.path: (hook, self._handler(hook)) for hook in self.hooks}

    def _handler(self, hook: Hook) -> Handler:
        if hook in self._adoptions:
            return self._confirm_adoption
        if hook == LOG_REQUEST_HOOK:
            return self._confirm_log_request
        if hook == self._resize_hook:
            return self._confirm_resize
        if hook in self._gate_hooks:
            return self._confirm_start
        if hook in self._owner_hooks:
            return partial(self._confirm_owner, self._by_resource[hook.resource])
        gate = self._configuration.gate
        if hook.resource in _KUEUE_KINDS:
            return _defaulted(hook.resource, gate) if hook.mutates else _validated(hook.resource, gate)
        integration = self._by_resource[hook.resource]
        return partial(self._default_job if hook.mutates else self._validate_job, integration)

    def is_cached(self, hook: Hook, request: AdmissionRequest) -> bool:
        """Whether the caches have the namespace, the queue, and all it refers to, of a job that is being created.

        A user may create all of them within a moment, and `managedBy` cannot be changed later.
        """
        job = request.object
        if job is None or not request.creates or hook.resource not in self._by_resource or hook in self._adoptions:
            return True
        if not self._namespaces.has(request.namespace):
            return False
        if not hook.mutates:
            return True
        if self._ancestry(hook.resource, request, job).missing is not None:
            return False
        queue = defaulting.queue_of_job(job, self._surroundings(hook.resource, request, job))
        if not queue or not self._namespaces.manages(request.namespace):
            return True
        cluster_queue = cluster_queue_of(self._caches, namespace=request.namespace, queue=queue)
        checks = self._caches.view(ADMISSION_CHECKS)
        return cluster_queue is not None and all(
            checks.get(Key("", entry["name"])) is not None for entry in checks_of(cluster_queue)
        )

    def _default_job(self, integration: JobIntegration, request: AdmissionRequest) -> ReviewAnswer:
        job = request.object
        if job is None or not request.creates:
            return self._complete_update(integration, request)
        holder = self._ancestry(integration.resource, request, job).holder
        if holder is not None and integration.traits.hold is Hold.GATE:
            managed = self._namespaces.manages(request.namespace)
            return ReviewAnswer(object=defaulting.default_held(job) if managed else None)
        surroundings = self._surroundings(integration.resource, request, job)
        queue = defaulting.queue_of_job(job, surroundings)
        target = queue_target(self._caches, namespace=request.namespace, queue=queue) if queue else None
        surroundings = replace(surroundings, multikueue=target is QueueTarget.WORKERS)
        return ReviewAnswer(object=defaulted(job, integration, surroundings, gate=self._configuration.gate))

    def _complete_update(self, integration: JobIntegration, request: AdmissionRequest) -> ReviewAnswer:
        job, old = request.object, request.old_object
        if job is None or old is None or request.subresource or not isinstance(integration, UpdatedKind):
            return ReviewAnswer()
        if not self._namespaces.manages(request.namespace):
            return ReviewAnswer()
        return ReviewAnswer(object=integration.updated(job, old))

    def _surroundings(self, kind: Resource, request: AdmissionRequest, job: JsonObject) -> JobSurroundings:
        return JobSurroundings(
            namespace_managed=self._namespaces.manages(request.namespace),
            namespace_queue=self._namespaces.queue_of(request.namespace),
            default_queue=self._local_queue(request.namespace, DEFAULT_LOCAL_QUEUE) is not None,
            default_priority_class=self._caches.view(WORKLOAD_PRIORITY_CLASSES).get(Key("", DEFAULT_PRIORITY_CLASS))
            is not None,
            owner_managed=self._ancestry(kind, request, job).is_managed,
            manage_unqueued=self._configuration.manage_jobs_without_queue_name,
        )

    def _ancestry(self, kind: Resource, request: AdmissionRequest, job: JsonObject) -> Ancestry:
        named = {"metadata": {**(job.get("metadata") or {}), "namespace": request.namespace}}
        unqueued = self._configuration.manage_jobs_without_queue_name
        return ancestry(named, self._registry, self._caches, kind=kind, manage_unqueued=unqueued)

    async def _confirm_owner(self, integration: JobIntegration, request: AdmissionRequest) -> ReviewAnswer:
        """Refuse an owner in whose place an object would not be queued, unless its writer may name that owner.

        Whether the owner is queued now does not matter: it may be queued later.
        """
        job = request.object
        owner = None if job is None else controller_of(job)
        if job is None or owner is None or self._owners.trusts(request.user_info):
            return ReviewAnswer()
        version, kind = str(owner.get("apiVersion") or ""), str(owner.get("kind") or "")
        above = self._registry.for_kind(version, kind)
        external = self._registry.is_external(version, kind)
        if not external and (above is None or not may_be_left(integration.resource, above)):
            return ReviewAnswer()
        held = above is not None and above.traits.holds_pods and self._namespaces.manages(request.namespace)
        alone = replace(self._surroundings(integration.resource, request, job), owner_managed=False)
        if not held and not defaulting.is_queued(job, alone):
            return ReviewAnswer()
        if above is not None and not external:
            resource = above.resource
        else:
            group, _, number = version.rpartition("/")
            try:
                resource = await self._kinds.resource(group=group, version=number, kind=kind)
            except BadInput as error:
                return ReviewAnswer(forbidden=f"metadata.ownerReferences: {kind} {excerpt(owner.get('name'))}: {error}")
        namespace = request.namespace
        return ReviewAnswer(
            forbidden=await self._owners.refusal(request.user_info, owner=owner, resource=resource, namespace=namespace)
        )

    async def _confirm_start(self, request: AdmissionRequest) -> ReviewAnswer:
        """Refuse to remove the gate of a pod to a user who may not admit Workloads either."""
        if not self._namespaces.manages(request.namespace):
            return ReviewAnswer()
        attributes = {
            "verb": "patch",
            "group": WORKLOADS.group,
            "version": WORKLOADS.version,
            "resource": WORKLOADS.plural,
            "subresource": "status",
            "namespace": request.namespace,
        }
        refusal = await self._access.refusal(request.user_info, attributes)
        if not refusal:
            return ReviewAnswer()
        return ReviewAnswer(
            forbidden=f"spec.schedulingGates: the gate {ADMISSION_SCHEDULING_GATE} is removed by the manager when the"
            f" pod is admitted; to remove it by hand needs the right to patch {WORKLOADS.qualified}/status: {refusal}"
        )

    def _confirm_resize(self, request: AdmissionRequest) -> ReviewAnswer:
        """Refuse that a pod which uses quota outgrows it, whoever resizes it."""
        pod, old = request.object, request.old_object
        if pod is None or old is None or not self._namespaces.manages(request.namespace):
            return ReviewAnswer()
        return ReviewAnswer(forbidden=self._resizes.refusal(pod, old, namespace=request.namespace))

    async def _confirm_adoption(self, request: AdmissionRequest) -> ReviewAnswer:
        """Seal a request to adopt a remote job that already runs, if the user may request that.

        A job that adopts a remote job starts without free quota, on a cluster of its choice, and takes over what may
        belong to another user.
        """
        obj = request.object
        if obj is None:
            return ReviewAnswer()
        metadata: JsonObject = obj.get("metadata") or {}
        annotations: dict[str, str] = metadata.get("annotations") or {}
        value, name = annotations.get(ADOPTS_ANNOTATION, ""), str(metadata.get("name") or "")
        wanted = adoption_of(annotations)
        if wanted is None or not name:
            field = f"metadata.annotations[{ADOPTS_ANNOTATION}]: Invalid value: {excerpt(value)}"
            form = "CLUSTER MANAGER-UID JOB-UID EPOCH, on an object with a name"
            return ReviewAnswer(refusals=(f"{field}: expected {form}",))
        attributes = {
            "verb": ADOPT_VERB,
            "group": MULTIKUEUE_CLUSTERS.group,
            "version": MULTIKUEUE_CLUSTERS.version,
            "resource": MULTIKUEUE_CLUSTERS.plural,
            "name": wanted.cluster,
        }
        refusal = await self._access.refusal(request.user_info, attributes)
        if refusal:
            return ReviewAnswer(
                forbidden=f"annotation {ADOPTS_ANNOTATION}: {refusal} {ADOPT_VERB} {MULTIKUEUE_CLUSTERS.qualified}"
                f" {excerpt(wanted.cluster)}; the verb {ADOPT_VERB!r} is for administrators who recover a hub"
            )
        namespace = request.namespace or str(metadata.get("namespace") or "")
        seal = self._seals.adoption_seal(kind=str(obj.get("kind")), namespace=namespace, name=name, value=value)
        sealed = {**metadata, "annotations": {**annotations, ADOPTS_SEAL_ANNOTATION: seal}}
        return ReviewAnswer(object={**obj, "metadata": sealed})

    async def _confirm_log_request(self, request: AdmissionRequest) -> ReviewAnswer:
        """Seal a request for logs of a worker cluster, if the user may read logs in that namespace."""
        obj = request.object
        if obj is None or not request.creates:
            return ReviewAnswer()
        metadata: JsonObject = obj.get("metadata") or {}
        name, namespace = str(metadata.get("name") or ""), request.namespace
        if not name:
            return ReviewAnswer(refusals=("metadata.name: Required value: generateName is not supported",))
        try:
            seal = self._seals.log_request_seal(namespace=namespace, name=name, spec=obj.get("spec") or {})
        except BadInput as error:
            return ReviewAnswer(refusals=(str(error),))
        attributes = {"verb": "get", "version": "v1", "resource": "pods", "subresource": "log", "namespace": namespace}
        refusal = await self._access.refusal(request.user_info, attributes)
        if refusal:
            return ReviewAnswer(forbidden=f"{refusal} get pods/log in namespace {excerpt(namespace)}")
        others = self._caches.view(JOB_LOG_REQUESTS).indexed(NAMESPACE_INDEX, namespace)
        if len(others) >= MAX_REQUESTS:
            return ReviewAnswer(
                refusals=(
                    f"namespace {excerpt(namespace)} has {MAX_REQUESTS} JobLogRequests already, which are removed"
                    " two minutes after they were last used; wait, or delete those that are not needed",
                )
            )
        annotations: dict[str, str] = metadata.get("annotations") or {}
        sealed = {**metadata, "annotations": {**annotations, LOG_REQUEST_SEAL_ANNOTATION: seal}}
        return ReviewAnswer(object={**obj, "metadata": sealed})

    def _validate_job(self, integration: JobIntegration, request: AdmissionRequest) -> ReviewAnswer:
        job = request.object
        if job is None or not self._namespaces.manages(request.namespace):
            return ReviewAnswer()
        if request.subresource and not self._is_queued(integration, request):
            return ReviewAnswer()
        answer = ReviewAnswer(
            refusals=refusals(
                job,
                request.old_object,
                integration,
                has_default_queue=bool(self._namespaces.queue_of(request.namespace))
                or self._local_queue(request.namespace, DEFAULT_LOCAL_QUEUE) is not None,
                gate=self._configuration.gate,
            )
        )
        taken = self._taken_workload(integration, request)
        warning = "" if answer.refusals else self._misplaced(integration, request)
        if warning:
            answer = replace(answer, warnings=(*answer.warnings, warning))
        return replace(answer, refusals=(*answer.refusals, taken)) if taken else answer

    def _is_queued(self, integration: JobIntegration, request: AdmissionRequest) -> bool:
        """Whether the job of which a subresource is written is queued."""
        job = self._caches.view(integration.resource).object(Key(request.namespace, request.name))
        return job is not None and bool(integration.queue_name(job))

    def _taken_workload(self, integration: JobIntegration, request: AdmissionRequest) -> str:
        """Why a new job cannot have the Workload that it names; empty when it can, or when that is not known yet.

        A job of the same name may have been deleted and created again; the job reconciler distinguishes them by uid.
        """
        job = request.object
        if job is None or not request.creates:
            return ""
        name = prebuilt_name(job, integration)
        workload = self._caches.view(WORKLOADS).object(Key(request.namespace, name)) if name else None
        for owner in ((workload or {}).get("metadata") or {}).get("ownerReferences") or ():
            named = job.get("apiVersion"), job.get("kind"), (job.get("metadata") or {}).get("name")
            if owner.get("controller") and (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != named:
                return (
                    f"metadata.labels[{PREBUILT_WORKLOAD_LABEL}]: Invalid value: {excerpt(name)}: the Workload belongs"
                    f" to {owner['kind']} {excerpt(owner['name'])}, and a Workload has one owner"
                )
        return ""

    def _local_queue(self, namespace: str, name: str) -> JsonObject | None:
        return self._caches.view(LOCAL_QUEUES).object(Key(namespace, name))

    def _misplaced(self, integration: JobIntegration, request: AdmissionRequest) -> str:
        """The warning for a user who gives a job to a queue that cannot run it."""
        job, old = request.object, request.old_object
        if job is None or old is None or not integration.traits.has_managed_by:
            return ""
        queue = integration.queue_name(job)
        if not queue or queue == integration.queue_name(old) or integration.finished(job) is not None:
            return ""
        target = queue_target(self._caches, namespace=request.namespace, queue=queue)
        named = {"metadata": {"namespace": request.namespace, "name": request.name}}
        return misplaced(
            named, kind=integration.resource.kind, queue=queue, managed_by=integration.managed_by(job), target=target
        )


def _defaulted(resource: Resource, gate: Gate) -> Handler:
    def handle(request: AdmissionRequest) -> ReviewAnswer:
        if request.object is None:
            return ReviewAnswer()
        return ReviewAnswer(object=admission.default(resource, request.object, gate=gate))

    return handle


def _validated(resource: Resource, gate: Gate) -> Handler:
    def handle(request: AdmissionRequest) -> ReviewAnswer:
        if request.object is None:
            return ReviewAnswer()
        return ReviewAnswer(refusals=admission.refusals(resource, request.object, request.old_object, gate=gate))

    return handle
