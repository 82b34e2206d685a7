# SPDX-License-Identifier: Apache-2.0
"""The unit-level cases of docs/spec/multikueue.md §2.4: the test of each, or why there is none.

`file::test` below tests/; a class stands for all tests in it. `test_catalogue.py` holds that each of them exists.
"""

from __future__ import annotations

from typing import Final

_PLAN: Final = "unit/dispatch/hub/test_plan.py::"
_STOPPING: Final = "unit/dispatch/hub/test_stopping.py::"
_FENCING: Final = "unit/dispatch/hub/test_fencing.py::"
_DISPATCHERS: Final = "unit/dispatch/dispatchers/test_dispatchers.py::"
_HEALTH: Final = "unit/dispatch/hub/test_health.py::"
_FILES: Final = "unit/manager/dispatch/transport/test_kubeconfigs.py::"
_JOBS: Final = "component/scenarios/test_jobs.py::"
_ROLES: Final = "component/scenarios/test_roles.py::"
_CLUSTERS: Final = "component/scenarios/test_clusters.py::"
_SENDERS: Final = "component/scenarios/test_dispatchers.py::"
_PUSH: Final = "component/dispatch/test_push.py::"
_MAILBOXES: Final = "component/dispatch/test_dispatch.py::"
_GATES: Final = "unit/dispatch/hub/test_preemption_gates.py::"
_BATCH: Final = "unit/jobs/kinds/test_batch_job.py::"
_STATUS: Final = "unit/jobs/kinds/test_job_status.py::"
_STEP: Final = "unit/dispatch/worker/test_assignment_state.py::"
_OF_PLAN: Final = f"{_PLAN}test_rules_without_a_status_write"
_SLICES: Final = "unit/manager/dispatch/transport/test_job_slices.py::"
_QUOTA: Final = "unit/dispatch/protocol/test_quota_automation.py::"

CASES: Final = {
    # Workload reconcile
    "deleted workload, missing workload": _OF_PLAN,
    "missing but in deleted-cache: removes remotes": f"{_ROLES}test_g1_",
    "same with worker reconnecting": f"{_JOBS}test_j4_",
    "no check ignored": _OF_PLAN,
    "no parent, unsupported kind, not managedBy rejected": f"{_PLAN}test_an_owner_that_cannot_be_remote_is_rejected",
    "error reading a worker": f"{_PUSH}test_a_fault_over_one_cluster_does_not_end_the_others",
    "reconnecting clients skipped": f"{_PLAN}test_s7_",
    "no reservation clears, also with a worker that reconnects": _OF_PLAN,
    "creates only the missing": f"{_PLAN}test_an_existing_remote_job_is_not_made_again",
    "remote reserved but not admitted keeps others": f"{_ROLES}test_p2_",
    "admitted deletes others": f"{_JOBS}test_j1_",
    "OutOfSync → Retry": f"{_PLAN}test_j2_",
    "OutOfSync already Retry idempotent": f"{_PLAN}test_out_of_sync_is_idempotent_once_the_check_is_retry",
    "evicted on manager": f"{_STOPPING}test_the_granted_one_is_asked_to_stop_and_the_others_are_removed",
    "evicted on worker": f"{_PLAN}test_j9_",
    "finished requires ownership": f"{_PLAN}test_an_end_does_not_count",
    "finished copies and completes": f"{_PLAN}test_j1_",
    "finished removes remotes": _OF_PLAN,
    "lost < timeout stays Ready": f"{_PLAN}test_j7_",
    "lost > timeout Retry": f"{_PLAN}test_j6_",
    "loss grace applies whatever the cause": f"{_PLAN}test_every_cause_is_judged_alike",
    "reconnecting not evicted despite an old check timestamp": f"{_HEALTH}test_a_bad_secret_counts_",
    "reachable but gone → immediate Retry": f"{_PLAN}test_an_assignment_removed_by_hand_is_retried_at_once",
    "Ready without cluster → Retry": f"{_PLAN}test_ready_without_a_cluster_is_retried",
    "reconnect after requeue deletes remotes": f"{_JOBS}test_j6_",
    "elastic: four cases": f"{_SLICES}test_a_slice_that_has_taken_the_quota_over_has_the_assignment",
    "gates: create gated": "component/scenarios/test_preemption_gates.py::test_h5_q5_",
    "gates: open first": f"{_GATES}test_the_oldest_signal_is_first_and_the_others_wait",
    "gates: open second after timeout, not before": f"{_GATES}test_whose_gate_is_opened",
    "gates: not if unneeded": f"{_GATES}test_no_cluster_preempts_when_one_has_quota_without",
    "orphan cleaned after reconnect": f"{_JOBS}test_j4_",
    "metric counted once, not on Retry/Rejected": f"{_JOBS}test_j9_",
    "deferred sync → short requeue": f"{_STATUS}test_a_running_status_waits_until_the_local_job_is_started",
    # Nomination
    "clone to all": f"{_PLAN}test_clones_to_all_connected_clusters_sorted",
    "reversed set makes no patch": f"{_PLAN}test_the_same_set_in_another_order_makes_no_write",
    "external none/two/all/not connected": f"{_PLAN}test_an_external_dispatcher_is_followed",
    # Handlers
    "config changed": f"{_SENDERS}test_d8_",
    "check without its config": f"{_CLUSTERS}test_a_check_without_its_config_is_bad",
    # Clusters
    "add, update, invalid, missing (Secret)": f"{_CLUSTERS}test_s1_",
    "add, update, invalid (path)": f"{_FILES}test_s2_",
    "retry count, reset on success, in the condition text": f"{_PUSH}test_q2_",
    "insecure": f"{_FILES}test_s4_s5_",
    "profile ok / unsupported / not found / gate off / bad rest config": f"{_FILES}test_s11_s16_",
    "GC: keep existing, delete missing, ignore unrelated": "component/worker_agent/test_agent.py::",
    "kubeconfig validation": f"{_HEALTH}test_a_kubeconfig_that_is_refused",
    "slow cluster does not block others": f"{_PUSH}test_q2_",
    "path rules": f"{_FILES}test_s6_",
    "config change during a run": f"{_PUSH}test_other_credentials_are_taken_up_without_a_gap",
    # Incremental
    "1, 2, 3, 15 remotes; step 2": f"{_DISPATCHERS}test_a_round_that_takes_all_waits_for_none",
    "next set on expiry": f"{_DISPATCHERS}test_after_a_round_the_next_step_is_added_and_the_round_is_kept",
    "keep during a round": f"{_DISPATCHERS}test_during_a_round_nothing_is_added",
    "all nominated (no error here)": f"{_DISPATCHERS}test_when_all_are_nominated_it_waits_without_an_error",
    "config order": f"{_DISPATCHERS}test_the_first_round_takes_the_first_clusters_of_the_config",
    "alphabetical when the order gate is off": "none: the order of the config is always kept here",
    # Quota
    "multiple resources": f"{_QUOTA}test_quota_is_the_sum_over_the_workers_of_each_resource",
    "unrelated queues and inactive workers ignored": f"{_QUOTA}test_queues_behind_other_local_queues_",
    "a worker that is not connected": f"{_QUOTA}test_a_lost_worker_",
    "many LocalQueues of one queue counted once": f"{_QUOTA}test_a_queue_behind_several_local_queues_",
    "multi-flavor workers": f"{_QUOTA}test_all_flavors_of_a_worker_count",
    "subset of resources": f"{_QUOTA}test_only_resources_of_the_hubs_queue_count_",
    "not requested, not a MultiKueue queue, config missing": f"{_QUOTA}test_where_nothing_is_asked_for_",
    "multi-flavor manager unsupported": f"{_QUOTA}test_only_one_group_of_one_flavor_can_follow",
    "missing resources unsupported": f"{_QUOTA}test_a_queue_without_resources_is_not_supported",
    # Adapters: batch/v1 Job
    "create missing remote": f"{_BATCH}test_the_remote_job_is_started_marked_and_free_of_what_is_not_for_workers",
    "copy status, also while local is suspended": f"{_STATUS}test_the_status_is_synced",
    "delete remote": f"{_STEP}test_a_job_whose_assignment_is_gone_is_deleted_once",
    "missing or wrong managedBy": f"{_ROLES}test_a_job_that_another_controller_is_to_run_is_rejected",
    # KEP-693, and what upstream does not test
    "worker lacks the namespace": f"{_MAILBOXES}test_a_refusal_by_all_is_shown_in_the_check",
    "a worker rejects the job": f"{_MAILBOXES}test_a_refusal_after_the_grant_",
    "the job finishes with an error": f"{_BATCH}test_the_end",
    "a worker deletes the job": f"{_PLAN}test_a_job_removed_by_hand_is_retried_at_once",
    "winner/loser race across a disconnection": f"{_MAILBOXES}test_a_late_reserver_",
    "cluster removed from config while running": f"{_MAILBOXES}test_a_cluster_taken_out_",
    "deleted MultiKueueCluster still listed": f"{_MAILBOXES}test_a_deleted_cluster_that_is_still_",
    "mass loss and reconnect": f"{_FENCING}test_work_moves_unless_most_of_three_or_more_were_lost_at_once",
    "clock skew": f"{_HEALTH}test_what_an_agents_clock_is_assumed_when_nothing_else_is_known",
    "two managers on one worker": "component/worker_agent/test_agent.py::",
    "TTL before sync": f"{_BATCH}test_the_remote_job_is_started_marked_and_free_of_what_is_not_for_workers",
    "stale active after loss": f"{_STATUS}test_a_running_status_is_declared_stopped",
    "credential rotation during a run": f"{_PUSH}test_other_credentials_are_taken_up_without_a_gap",
    "many Jobs under faults": "e2e/test_faults.py::test_300_jobs_",
}
