# SPDX-License-Identifier: Apache-2.0
"""docs/first-hour.md has the commands of the README, and each failure of a first day with the next command.

`tests/e2e/test_newcomer.py` plays the page. What of a failure is proved elsewhere is named here and not played again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support.sessions import COLUMNS, ROOT, Step, Terminal, normal, steps_of, with_outputs

TEXT: Final = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")
STEPS: Final = steps_of(TEXT)
NOT_PLAYED: Final = frozenset({"make demo", "make test"})
"""Of the README: they start federations and tests of their own, and CI runs both."""


EXCERPTS: Final = frozenset({"mkctl status", "mkctl explain job large -n team-a", "mkctl explain job held -n team-a"})
"""The commands whose output other pages show in part."""


class Failure(NamedTuple):
    """A command of the page, a part of its output that has the next step, and the tests of the same elsewhere."""

    command: str
    next_step: str
    tests: tuple[str, ...]


FAILURES: Final = {
    "a refused removal of a cluster": Failure(
        "mkctl cluster remove worker-1 --force",
        "kubectl edit multikueueconfig workers",
        ("tests/component/cli/test_refused_commands.py::test_the_only_cluster_of_a_config_is_not_removed",),
    ),
    "a finished Job, explained": Failure(
        "mkctl explain job waits -n team-a",
        "succeeded on worker-",
        ("tests/unit/cli/inspect/test_headline.py::test_finished_work_has_its_cluster_times_and_result",),
    ),
    "checks without a status, simulated": Failure(
        "mkctl simulate -f deploy/examples/two-teams/",
        "Reserved",
        ("tests/unit/simulation/test_simulate.py::test_a_check_is_active_in_a_simulation_unless_its_status_is_false",),
    ),
    "examples that differ from what is stored": Failure(
        "kubectl diff -f deploy/examples/two-teams/",
        "",
        ("tests/component/cli/test_examples.py::test_every_example_is_stored_as_it_is_written",),
    ),
    "explain with a tenant's rights": Failure(
        "mkctl explain job long",
        "Not shown, because you lack the permission:",
        ("tests/component/cli/test_tenants.py::test_a_tenant_sees_its_own_work",),
    ),
    "timeline with a tenant's rights": Failure(
        "mkctl timeline job long",
        "# left out: events; needs permission to list events",
        ("tests/component/cli/test_tenants.py::test_a_tenant_sees_its_own_work",),
    ),
    "other options for a federation": Failure(
        "mkctl up --workers 3",
        "to use the stored options: mkctl up --name default",
        ("tests/e2e/test_first_day.py::test_options_data_and_names_of_a_federation_last",),
    ),
    "names in kubeconfigs": Failure(
        "kubectl config get-contexts -o name",
        "hub",
        ("tests/e2e/test_first_day.py::test_options_data_and_names_of_a_federation_last",),
    ),
    "a Job without its label": Failure(
        "kubectl get events -n team-a --field-selector reason=QueueNameMissing",
        "Put the label kueue.x-k8s.io/queue-name: NAME on the Job; delete it and create it again",
        ("tests/component/manager/test_queue_hints.py::test_work_that_is_not_queued_gets_an_event",),
    ),
    "a Job in the wrong queue": Failure(
        "kubectl label job moved",
        "kubectl delete job moved -n team-a && kubectl create -n team-a -f FILE",
        ("tests/component/scenarios/test_queue_labels.py::test_a_job_that_was_rejected_runs",),
    ),
    "a Job that can never fit": Failure(
        "mkctl explain job large -n team-a",
        "Next: reduce the requests of the job, or raise the quota of ClusterQueue team-a",
        ("tests/component/cli/test_waiting_jobs.py::test_a_job_that_can_never_fit_is_shown_as_suspended",),
    ),
    "a waiting Job in kubectl": Failure(
        "kubectl get jobs",
        "Suspended",
        ("tests/component/cli/test_waiting_jobs.py::test_a_job_that_can_never_fit_is_shown_as_suspended",),
    ),
    "a held queue": Failure(
        "mkctl explain job held -n team-a",
        'kubectl patch clusterqueue team-a --type merge -p \'{"spec":{"stopPolicy":"None"}}\'',
        ("tests/component/cli/test_waiting_jobs.py::test_a_job_of_a_held_queue_is_suspended",),
    ),
    "no cluster for a Job": Failure(
        "mkctl explain job waits -n team-a",
        "mkctl cluster uncordon worker-1",
        ("tests/component/cli/test_waiting_jobs.py::test_a_job_that_waits_for_a_cluster_is_suspended",),
    ),
    "a process that hangs": Failure(
        "mkctl status",
        "kill -CONT ",
        ("tests/e2e/test_first_day.py::test_options_data_and_names_of_a_federation_last",),
    ),
    "a configuration with mistakes": Failure(
        "mkctl up --config manager.yaml",
        "are not supported by this manager, only batch/job",
        ("tests/unit/cli/local/test_shape_options.py::test_settings_that_cannot_be_are_refused_by_file_and_field",),
    ),
    "a Workload left behind": Failure(
        "-o jsonpath='{.status.conditions",
        "to delete it: kubectl delete workloads.kueue.x-k8s.io job-long-",
        ("tests/component/manager/test_gone_owner.py::test_a_workload_that_its_job_left_behind_reports_that",),
    ),
    "pods that run no containers": Failure(
        "mkctl up --help",
        "see docs/reference/virtual-pods.md",
        ("tests/unit/devcluster/kubelet/test_virtual_pods_page.py::test_the_help_of_up_leads_to_the_page",),
    ),
    "descriptions in kubectl explain": Failure(
        "kubectl explain workload.spec.queueName",
        "The LocalQueue, in the same namespace",
        ("tests/e2e/test_first_day.py::test_options_data_and_names_of_a_federation_last",),
    ),
    "kubectl top": Failure(
        "kubectl top nodes",
        "Metrics API not available",
        ("tests/unit/devcluster/kubelet/test_virtual_pods_page.py::test_the_page_explains_why_kubectl_top",),
    ),
    "a Job that does not exist": Failure(
        "mkctl explain job nothing -n team-a",
        "kubectl get jobs,workloads -n team-a",
        ("tests/unit/cli/inspect/test_live_explanation.py::test_of_several_workloads_of_a_job_the_newest_is_meant",),
    ),
    "a cluster that does not exist": Failure(
        "mkctl cluster drain worker-9",
        "`mkctl cluster list`",
        ("tests/component/cli/test_refused_commands.py::test_a_command_with_bad_input_changes_nothing",),
    ),
}
"""Pods that cannot start and logs of failed Jobs are not here: their commands and messages have their own tests."""


def readme_commands() -> list[str]:
    """The commands of the README, without comments; a loop is one command."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found: list[str] = []
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        loop = False
        for line in (re.sub(r"\s+#.*", "", each) for each in block.splitlines()):
            if loop:
                found[-1] += f"\n{line}"
                loop = line != "done"
            else:
                found.append(line)
                loop = line.startswith("for ")
    return found


def on_page(command: str) -> str:
    """A command of the README as it is on the page, where names are variables."""
    return re.sub(r"\b(NAME|NAMESPACE|FOLDER)\b", r"$\1", command)


def test_every_command_of_the_readme_is_played_as_it_is_written() -> None:
    wanted = [on_page(each) for each in readme_commands() if each not in NOT_PLAYED]
    assert len(wanted) >= 11
    commands = [step.command for step in STEPS]
    assert [each for each in wanted if each not in commands] == []
    places = [commands.index(each) for each in wanted if not each.endswith("mkctl down")]
    assert places == sorted(places), "in the order of the README"


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
def test_a_failure_is_provoked_and_its_output_has_the_next_step(failure: Failure) -> None:
    outputs = [" ".join(step.shown.split()) for step in STEPS if failure.command in step.command]
    assert any(failure.next_step in output for output in outputs)


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
def test_the_tests_of_a_failure_exist(failure: Failure) -> None:
    for name in failure.tests:
        file, _, test = name.partition("::")
        assert f"def {test}" in (ROOT / file).read_text(encoding="utf-8")


def test_the_page_is_captured_at_80_columns() -> None:
    ours = [step for step in STEPS if "mkctl " in step.command and "kubectl" not in step.command]
    assert len(ours) > 20
    lines = [line for step in ours for line in step.shown.splitlines()]
    assert [
        line for line in lines if len(line) > COLUMNS and not line.lstrip().startswith(("kubectl ", "mkctl "))
    ] == []


@pytest.mark.parametrize("page", ["docs/reference/explain.md", "docs/operations/runbook.md"])
def test_excerpts_on_other_pages_are_of_this_page(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    steps = [step for step in steps_of(text) if step.command in EXCERPTS]
    assert steps, "there is an excerpt"
    ours = [line for step in STEPS for line in normal(step.shown)]
    assert [line for step in steps for line in normal(step.shown) if line not in ours] == []


def test_what_differs_from_run_to_run_is_not_compared() -> None:
    one = "hello-abcde  2026-01-01T00:00:00Z  took 3s\n────\nserver 127.0.0.1:20001   12 s ago\n\n"
    other = "hello-zyxwv     2027-12-31T23:59:59Z  took 1m2s\n──────\nserver 127.0.0.1:31999 4 s ago"
    assert normal(one) == normal(other)
    assert normal("hello-abcde is up") != normal("hello-abcde is down")


def test_a_terminal_keeps_variables_and_reports_what_the_page_has_not(tmp_path: Path) -> None:
    page = "```console\n$ A=one; export B='two words'\n$ echo $A $B\n> echo again\n$ false\nfailed\n```\n"
    terminal = Terminal(tmp_path)
    played = [terminal.play(step) for step in steps_of(page)]
    assert [each.output for each in played] == ["", "one two words\nagain\n", ""]
    assert [each.code for each in played] == [0, 0, 1]
    assert [bool(each.difference) for each in played] == [False, True, True]
    assert "-failed" in played[2].difference
    written = with_outputs(page, played)
    assert (
        written
        == "```console\n$ A=one; export B='two words'\n$ echo $A $B\n> echo again\none two words\nagain\n$ false\n```\n"
    )
    assert steps_of(written)[1] == Step(1, "echo $A $B\necho again", "one two words\nagain")


def test_a_terminal_has_80_columns(tmp_path: Path) -> None:
    played = Terminal(tmp_path).play(Step(0, "stty size <&1 2>/dev/null || echo; test -t 1 && echo $COLUMNS", ""))
    assert played.output.split()[-1] == "80"
