# SPDX-License-Identifier: Apache-2.0
"""What dispatch takes for the job of a Workload."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from manager.cache.views import View
from manager.dispatch.assignments import fingerprint, forwarded_digest
from manager.dispatch.gather import CheckSources, ClusterFactsSource, Gathered, Gatherer, Hub, load_job, with_forwarding
from multikueue.api.configuration import Configuration
from multikueue.api.constants import AVOIDED_ANNOTATION
from multikueue.api.remoteassignment import Intent
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.dispatch.hub import messages
from multikueue.dispatch.hub.actions import Assign, ChangeUpdate, Rule
from multikueue.dispatch.hub.facts import ClusterFacts, DispatchFacts
from multikueue.dispatch.hub.plan import plan
from multikueue.dispatch.policy.dispatch_policy import PolicyVerdict
from multikueue.dispatch.protocol.annotations import avoided_text
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.jobs.kinds.batch_job import BATCH_JOB, BatchJob
from tests.unit.dispatch.builders import NOW, facts, granted, running
from tests.unit.jobs.declared.builders import widget, widget_kind

KEY = Key("team", "job")


def found(job_uid: str, *, owner_uid: str | None) -> dict[str, Any] | None:
    """What is loaded for a Workload of that owner, while the Job of its name has that uid."""
    job = {"metadata": {"namespace": KEY.namespace, "name": KEY.name, "uid": job_uid}}
    view = SimpleNamespace(object=lambda key: job if key == KEY else None)
    context = SimpleNamespace(caches=SimpleNamespace(view=lambda resource: view))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": KEY.name, "uid": owner_uid, "controller": True}
    workload = {"metadata": {"ownerReferences": [] if owner_uid is None else [owner]}}
    gathered = Gathered(facts=DispatchFacts(workload=None), workload=workload, integration=BatchJob(), job=KEY)
    return load_job(cast(Hub, context), gathered)


def test_the_job_is_the_one_that_owns_the_workload() -> None:
    job = found("first", owner_uid="first")
    assert job is not None
    assert job["metadata"]["uid"] == "first"


@pytest.mark.parametrize("owner_uid", ["first", None], ids=["of the former one", "of no job"])
def test_a_job_that_was_created_again_with_its_name_is_not_the_job_of_a_workload(owner_uid: str | None) -> None:
    assert found("second", owner_uid=owner_uid) is None


def withheld(found: DispatchFacts) -> str:
    """Why the hub does not forward a change."""
    assert found.workload is not None
    return found.workload.withheld


class TestForwarding:
    """The change of a field that is forwarded, while the job runs."""

    CHANGED = facts(running("w1", fingerprint="new"), granted("w1"))

    def test_a_change_is_sent_to_the_cluster_if_the_policies_allow_it(self) -> None:
        found = with_forwarding(self.CHANGED, PolicyVerdict)
        assert withheld(found) == ""
        assert Assign("w1", Intent.RUN) in plan(found, NOW).actions

    @pytest.mark.parametrize(
        "verdict",
        [
            pytest.param(PolicyVerdict(everywhere="the hub forbids it"), id="of the hub"),
            pytest.param(PolicyVerdict(clusters={"w1": "the cluster forbids it"}), id="of the cluster"),
        ],
    )
    def test_a_change_that_a_policy_forbids_is_not_sent_and_what_runs_is_not_touched(
        self, verdict: PolicyVerdict
    ) -> None:
        found = with_forwarding(self.CHANGED, lambda: verdict)
        assert withheld(found) == verdict.on("w1")
        decision = plan(found, NOW)
        assert not any(isinstance(action, Assign) for action in decision.actions)
        assert decision.check is None
        assert decision.change_forwarded == ChangeUpdate(
            "ForbiddenByPolicy", messages.not_forwarded("w1", verdict.on("w1"))
        )

    def test_what_another_cluster_forbids_does_not_matter(self) -> None:
        assert withheld(with_forwarding(self.CHANGED, lambda: PolicyVerdict(clusters={"w2": "no"}))) == ""

    def test_a_job_that_did_not_change_is_not_judged(self) -> None:
        def verdict() -> PolicyVerdict:
            raise AssertionError("a running workload is not judged")

        same = facts(running("w1"), granted("w1"))
        assert with_forwarding(same, verdict) == same

    def test_only_forwarded_fields_change_what_counts_as_sent(self) -> None:
        kind = widget_kind(remote={"forwarded": ["$.spec.config"]})
        sent: dict[str, Any] = {"spec": {}, "status": {}}

        def of(job: dict[str, Any]) -> str:
            return fingerprint(sent, forwarded=forwarded_digest(kind, job))

        assert of(widget(config="one")) == of(widget(config="one", size=9))
        assert of(widget(config="one")) != of(widget(config="two"))
        assert forwarded_digest(BATCH_JOB, {}) == forwarded_digest(None, {}) == forwarded_digest(kind, None) == ""
        assert fingerprint(sent, forwarded="") == fingerprint(sent)


class TestResting:
    """A Workload of which nothing is anywhere, and which is sent nowhere now."""

    @staticmethod
    def gathered(*conditions: str, explains: bool = False, avoided: str = "") -> Gathered | None:
        """What is gathered of it, where the facts of clusters cannot be had."""
        shown = [
            {
                "type": each,
                "status": "True",
                "reason": each,
                "message": "",
                "lastTransitionTime": "2026-03-01T08:00:00Z",
            }
            for each in conditions
        ]
        check = {"name": "check", "state": "Pending", "lastTransitionTime": "2026-03-01T08:00:00Z"}
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": KEY.name, "uid": "j", "controller": True}
        workload = {
            "metadata": {
                "namespace": KEY.namespace,
                "name": "w",
                "uid": "u",
                "ownerReferences": [owner],
                "annotations": {AVOIDED_ANNOTATION: avoided},
            },
            "spec": {"queueName": "q", "podSets": []},
            "status": {"conditions": shown, "admissionChecks": [check]},
        }

        def inside(name: str, *, check: str) -> ClusterFacts:
            raise LookupError(name)

        configuration = Configuration()
        clock = ManualClock()
        caches = SimpleNamespace(view=lambda resource: View(resource, clock=clock))
        gatherer = Gatherer(
            cast(
                Hub,
                SimpleNamespace(
                    caches=caches, configuration=configuration, seals=SimpleNamespace(adoption_of=lambda obj: None)
                ),
            ),
            checks=cast(CheckSources, SimpleNamespace(source=lambda name: SimpleNamespace(clusters=("w1",)))),
            clusters=cast(ClusterFactsSource, SimpleNamespace(inside=inside, fences=lambda name: True)),
            registry=JobRegistry.configured(configuration),
        )
        return gatherer.gather(Key(KEY.namespace, "w"), workload, {}, now=NOW, explains=explains)

    def test_clusters_that_failed_it_are_remembered_for_an_hour(self) -> None:
        ends = {name: NOW - timedelta(minutes=minutes) for name, minutes in (("w1", -1), ("w2", 59), ("w3", 60))}
        found = self.gathered(avoided=avoided_text(ends))
        assert found is not None
        assert set(found.facts.avoided) == {"w1", "w2"}

    def test_of_one_that_has_finished_there_is_nothing_to_plan(self) -> None:
        assert self.gathered("QuotaReserved", "Finished") is None

    def test_of_one_without_quota_no_cluster_is_looked_at_and_nothing_is_planned(self) -> None:
        found = self.gathered()
        assert found is not None
        assert found.facts.clusters == ()
        decision = plan(found.facts, NOW)
        assert (decision.rule, decision.actions, decision.check) == (Rule.FINISHED_OR_NO_QUOTA, (), None)

    @pytest.mark.parametrize(
        ("conditions", "explains"),
        [
            pytest.param(("QuotaReserved",), False, id="with quota"),
            pytest.param(("QuotaReserved", "Finished"), True, id="an explanation of one that has finished"),
            pytest.param((), True, id="an explanation of one without quota"),
        ],
    )
    def test_else_its_clusters_are_looked_at(self, conditions: tuple[str, ...], explains: bool) -> None:
        with pytest.raises(LookupError, match="w1"):
            self.gathered(*conditions, explains=explains)
