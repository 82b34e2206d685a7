# SPDX-License-Identifier: Apache-2.0
"""Which programs of containers are known, and how they live and answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from devcluster.kubelet.behaviour import behaviour_of
from devcluster.kubelet.containers.netexec import ExitRequest, HttpAnswer, HttpRequest, respond
from devcluster.kubelet.containers.programs import FOREVER, http_program, program_of
from multikueue.core.errors import BadInput

AGNHOST = "registry.k8s.io/e2e-test-images/agnhost:2.53"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def container(*args: str, image: str = AGNHOST, command: list[str] | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"name": "c", "image": image, "args": list(args)}
    return {**made, "command": command} if command is not None else made


def pod(*containers: dict[str, Any], job: bool = True, **annotations: str) -> dict[str, Any]:
    owners = [{"kind": "Job", "name": "j", "uid": "u", "controller": True}] if job else []
    told = {f"multikueue.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
    metadata = {"name": "p", "namespace": "n", "uid": "u", "annotations": told, "ownerReferences": owners}
    return {"metadata": metadata, "spec": {"containers": list(containers)}, "status": {}}


@pytest.mark.parametrize(
    ("made", "want"),
    [
        pytest.param(container("netexec"), "netexec", id="netexec"),
        pytest.param(container("entrypoint-tester", "a"), "entrypoint-tester", id="entrypoint-tester"),
        pytest.param(container("pause"), "pause", id="pause"),
        pytest.param(container(), "pause", id="nothing is pause"),
        pytest.param(container("netexec", command=["/agnhost"]), "netexec", id="by its command"),
        pytest.param(container(command=["/agnhost", "pause"]), "pause", id="all in the command"),
        pytest.param(container("netexec", command=["/bin/sh"]), None, id="another command"),
        pytest.param(container("netexec", image="busybox"), None, id="another image"),
        pytest.param(container("netexec", image="x/agnhost@sha256:00"), "netexec", id="an image by its digest"),
        pytest.param(container("netexec", image="host:5000/agnhost"), "netexec", id="a registry with a port"),
        pytest.param(container("dns-suffix"), None, id="a subcommand that is not known"),
        pytest.param(container(image="registry.k8s.io/pause:3.10"), "pause", id="the image pause"),
    ],
)
def test_a_program_is_known_by_image_and_arguments(made: dict[str, Any], want: str | None) -> None:
    found = program_of(made)
    assert (found.name if found is not None else None) == want


def test_the_pod_of_a_job_lives_as_its_program_does() -> None:
    serves, prints, waits = (behaviour_of(pod(container(name))) for name in ("netexec", "entrypoint-tester", "pause"))
    assert (serves.run_for, serves.exit_code, serves.stop_code) == (FOREVER, 0, 0)
    assert (prints.run_for, prints.exit_code) == (0.0, 0)
    assert (waits.run_for, waits.stop_code) == (FOREVER, 2)


def test_annotations_count_for_more_than_programs() -> None:
    assert behaviour_of(pod(container("netexec"), run_for="3s", exit_code="4")).run_for == 3.0


def test_one_container_that_is_not_known_makes_the_pod_an_ordinary_one() -> None:
    assert behaviour_of(pod(container("netexec"), container("x", image="busybox"))).run_for == 2.0


def test_a_pod_lives_as_long_as_the_longest_of_its_programs() -> None:
    assert behaviour_of(pod(container("entrypoint-tester"), container("pause"))).run_for == FOREVER


def test_netexec_delays_its_shutdown() -> None:
    found = behaviour_of(pod(container("netexec", "--delay-shutdown=7")))
    assert (found.stop_after, found.stop_code) == (7.0, 0)


@pytest.mark.parametrize("args", [("--http-port=90",), ("--http-port", "90"), ("-http-port=90",)])
def test_netexec_listens_on_its_configured_port(args: tuple[str, ...]) -> None:
    made = pod(container("netexec", *args))
    assert http_program(made, 90) is not None
    assert http_program(made, 8080) is None


@pytest.mark.parametrize("port", ["x", "-1", "65536", ""])
def test_an_invalid_port_is_refused_and_not_listened_on(port: str) -> None:
    made = pod(container("netexec", f"--http-port={port}"))
    with pytest.raises(BadInput, match="http-port"):
        behaviour_of(made)
    assert http_program(made, 8080) is None


def ask(path: str, **query: str) -> HttpAnswer | ExitRequest:
    request = HttpRequest(method="GET", path=path, query=query, client="10.244.0.9", headers={"x-a": "b"})
    return respond(request, pod(container("netexec")), port=8080, now=NOW)


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (ask("/healthz"), HttpAnswer(200)),
        (ask("/readyz"), HttpAnswer(200)),
        (ask("/hostname"), HttpAnswer(200, "p")),
        (ask("/clientip"), HttpAnswer(200, "10.244.0.9:0")),
        (ask("/echo", msg="hi", code="404"), HttpAnswer(404, "hi")),
        (ask("/header", key="X-A"), HttpAnswer(200, "b")),
        (ask("/redirect", location="/x\r\nEvil: 1"), HttpAnswer(302, "", {"Location": "/xEvil: 1"})),
        (ask("/exit", code="3"), ExitRequest(3, 0.0, answers=False)),
        (ask("/exit", code="3", timeout="2s", wait="1s"), ExitRequest(3, 1.0, answers=True)),
        (ask("/exit", wait="999999h"), ExitRequest(0, 300.0, answers=False)),
        (ask("/exit", code="-1"), ExitRequest(255, 0.0, answers=False)),
        (ask("/shutdown"), ExitRequest(0, 0.0, answers=False)),
    ],
)
def test_netexec_answers_as_the_real_one(found: object, want: object) -> None:
    assert found == want


@pytest.mark.parametrize(("name", "value"), [("code", "9" * 400), ("code", "x"), ("wait", "soon"), ("timeout", "1y")])
def test_netexec_reports_invalid_arguments_and_continues(name: str, value: str) -> None:
    found = ask("/exit", **{name: value})
    assert isinstance(found, HttpAnswer)
    assert f"argument '{name}' must be" in found.body


def test_a_pod_that_is_to_end_is_not_ready() -> None:
    made = pod(container("netexec"))
    made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    request = HttpRequest(method="GET", path="/readyz", query={}, client="", headers={})
    assert respond(request, made, port=8080, now=NOW) == HttpAnswer(503)
