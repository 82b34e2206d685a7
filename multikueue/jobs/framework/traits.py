# SPDX-License-Identifier: Apache-2.0
"""What sets job kinds apart, as data: how a job is held, and who may be kept from running it.

Controllers ask the traits of a kind, never its name. A trait that has a default may be left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from multikueue.api.resource import Resource


class Hold(StrEnum):
    """How a job is kept from running until it is admitted."""

    SUSPEND = "Suspend"
    """A field of its spec."""
    GATE = "Gate"
    """A scheduling gate: the job is a pod, which cannot be stopped once it runs, only deleted."""
    PODS = "Pods"
    """Not at all: its pods are queued, each or as a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTraits:
    """The traits of one job kind."""

    hold: Hold = Hold.SUSPEND
    has_managed_by: bool = False
    """Whether a field of its spec names the controller that runs it.

    A job on the hub without such a field is held there for as long as its remote job runs.
    """
    grouped: bool = False
    """Whether several objects may share one Workload."""
    resizable: bool = False
    """Whether it may be elastic: its pod counts may change while it is admitted."""
    feature_gate: str = ""
    """The feature gate without which the kind is not served; empty if there is none."""
    dispatched: bool = True
    """Whether workers can run it for the hub."""
    sent_as: Resource | None = None
    """The kind of its remote job if that is another one: workers serve that kind, and not this one."""
    suspend_path: tuple[str, ...] = ("spec", "suspend")
    """The field that suspends it, with `Hold.SUSPEND`."""
    suspended_value: bool = True
    """The value of that field that means suspended."""
    managed_by_path: tuple[str, ...] = ("spec", "managedBy")
    """The field that names the controller that runs it, with `has_managed_by`."""
    own_controller: str = ""
    """The value of that field that means the kind's own controller, as an absent field does."""
    needs_managed_label: bool = False
    """Whether only objects with the label `kueue.x-k8s.io/managed: "true"` are jobs.

    Others make objects of such a kind too; the webhook sets the label on those that are to be queued.
    """
    reviewed_fields: tuple[str, ...] = ("spec",)
    """The fields of which a change is validated; labels and annotations always are."""
    pod_label: str = ""
    """The label by which its pods name it; empty if they are known by their owner references only.

    Of a kind that holds its pods, those count which also name its framework as the one that suspends them.
    """
    pods_are_jobs: bool = False
    """Whether it has no Workload: each of its pods is a job, and has one."""
    owns_pods_itself: bool = False
    """Whether each of its pods names it as an owner, or is the job: no other owner of a pod leads to it."""
    holds_pods: bool = False
    """Whether its pods are gated by the webhook and started with it, although they are objects of their own."""
    owns_only_pods: bool = False
    """Whether only pods are left to it as their owner: a job of another kind that names it as owner is queued."""
    makes: tuple[Resource, ...] = ()
    """The kinds of which its controller makes objects between it and its pods: with `owns_only_pods`, these are left
    to it as well."""
    reviewed_subresources: tuple[str, ...] = ()
    """The subresources whose writes are validated."""
    needs: tuple[str, ...] = ()
    """The frameworks that are enabled together with it."""
