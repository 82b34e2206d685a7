# SPDX-License-Identifier: Apache-2.0
"""The list of prices: what is sent, what follows from rounds, and servers that answer with errors."""

from __future__ import annotations

import itertools
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tests.bench.apiserver.raw import Address
from tests.bench.prices import batches
from tests.bench.prices.conditions import definitions
from tests.bench.prices.kinds import CONFIG_MAP, JOB, KINDS, WORKLOAD, WrittenKind
from tests.bench.prices.meter import API_SERVER, Meter, Sample
from tests.bench.prices.price import Condition, price_of
from tests.bench.prices.table import tables
from tests.bench.prices.writes import PricedWrite, Verb, writes_of

CREATE = PricedWrite(JOB, Verb.CREATE)
LAST: dict[str, Any] = {
    "apiVersion": "v1",
    "metadata": {"name": "o", "uid": "u-1", "resourceVersion": "7"},
    "spec": {"a": 1},
}


def body_of(text: bytes) -> Any:
    """The JSON that a request sends."""
    return json.loads(text.partition(b"\r\n\r\n")[2])


def sample(milliseconds: float, *, etcd: float | None = None, calls: int = 100, reviews: int = 0) -> Sample:
    """A round in which each call took so much."""
    cpu = {API_SERVER: milliseconds * calls / 1000}
    return Sample(calls, cpu if etcd is None else cpu | {"etcd": etcd * calls / 1000}, 1.0, reviews)


@contextmanager
def server(answer: bytes) -> Iterator[Address]:
    """A server that answers one request with these bytes, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Address(f"http://127.0.0.1:{listening.getsockname()[1]}")
        finally:
            thread.join()


def test_a_batch_has_so_many_assignments_and_so_many_statuses() -> None:
    create, _, status, _ = batches.writes(8)
    one, _, _, _ = batches.writes(1)
    sent = body_of(create.bytes("o", 0, {}))
    assert sent["spec"]["assignments"] == body_of(one.bytes("o", 0, {}))["spec"]["assignments"] * 8
    assert len(body_of(status.bytes("o", 3, LAST))[1]["value"]["assignments"]) == 8
    assert body_of(status.bytes("o", 3, LAST)) != body_of(status.bytes("o", 4, LAST))
    schema = batches.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    assert "jobStatus" in schema["status"]["properties"]["assignments"]["items"]["properties"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_update_repeats_the_one_before(kind: WrittenKind) -> None:
    for write in writes_of(kind):
        if write.verb not in (Verb.CREATE, Verb.DELETE):
            sent = [write.bytes("o", number, LAST) for number in range(1, 6)]
            assert all(former != later for former, later in itertools.pairwise(sent)), write.name


def test_an_update_sends_the_object_as_it_was_answered_last() -> None:
    sent = body_of(PricedWrite(JOB, Verb.UPDATE).bytes("o", 3, LAST))
    assert sent["metadata"] == LAST["metadata"] | {"annotations": {"bench": "3"}}
    assert sent["spec"] == {"a": 1}


def test_a_json_patch_is_for_the_object_with_that_uid() -> None:
    test, change = body_of(PricedWrite(WORKLOAD, Verb.JSON, status=True).bytes("o", 3, LAST))
    assert test == {"op": "test", "path": "/metadata/uid", "value": "u-1"}
    assert (change["op"], change["path"]) == ("add", "/status")


def test_an_apply_of_a_status_sends_nothing_else() -> None:
    sent = body_of(PricedWrite(WORKLOAD, Verb.APPLY, status=True).bytes("o", 3, LAST))
    assert sent.keys() == {"apiVersion", "kind", "metadata", "status"}
    assert sent["metadata"] == {"name": "o"}


def test_a_kind_without_a_status_has_no_writes_of_it() -> None:
    assert [write.verb for write in writes_of(CONFIG_MAP)] == list(Verb)
    with pytest.raises(ValueError, match="ConfigMap has no status"):
        PricedWrite(CONFIG_MAP, Verb.MERGE, status=True).bytes("o", 1, LAST)


def test_the_definitions_begin_with_one_version_each() -> None:
    found = definitions()
    assert [each["metadata"]["name"] for each in found] == [
        "clusterreports.multikueue.io",
        "remoteassignments.multikueue.io",
        "workloads.kueue.x-k8s.io",
    ]
    assert all(len(each["spec"]["versions"]) == 1 and "conversion" not in each["spec"] for each in found)


def test_the_price_is_that_of_the_cheapest_round() -> None:
    rounds = [
        sample(3.0, etcd=0.7, reviews=100),
        sample(9.0, calls=300, reviews=300),
        sample(4.0, etcd=0.2, reviews=100),
    ]
    price = price_of(CREATE, Condition(part="webhooks", under="validating"), rounds)
    assert price.cpu == pytest.approx({API_SERVER: 3.0, "etcd": 0.7})
    assert (price.median, price.highest, price.wall) == pytest.approx((4.0, 9.0, 10.0))
    assert (price.calls, price.reviews) == (500, 1.0)
    assert price.name == "Job: create, validating"


def test_a_table_has_verbs_or_conditions_in_its_columns() -> None:
    prices = [
        price_of(CREATE, Condition(part="verbs"), [sample(3.0, etcd=0.5)]),
        price_of(PricedWrite(CONFIG_MAP, Verb.MERGE), Condition(part="verbs"), [sample(1.0, etcd=0.25)]),
        price_of(CREATE, Condition(part="webhooks", under="validating"), [sample(4.0, reviews=100)]),
    ]
    assert tables(prices).splitlines() == [
        "| verbs | create | merge patch |",
        "|---|---|---|",
        "| Job | 3.00 + 0.50 | – |",
        "| ConfigMap | – | 1.00 + 0.25 |",
        "",
        "| webhooks | validating |",
        "|---|---|",
        "| Job: create | 4.00 (1.0 reviews) |",
    ]


@pytest.mark.parametrize("status", [409, 422, 429, 500, 503])
def test_an_error_of_the_server_ends_the_measurement_with_its_message(status: int) -> None:
    answer = b"HTTP/1.1 %d Status\r\nContent-Length: 7\r\n\r\nbecause" % status
    with server(answer) as address:
        with closing(Meter(address, {API_SERVER: os.getpid()}, calls=1, reviews=lambda: 0)) as meter:
            with pytest.raises(RuntimeError, match=f"{status}: b'because'"):
                meter.measure(CREATE)


def test_a_server_that_closes_ends_the_measurement() -> None:
    with server(b"") as address:
        with closing(Meter(address, {API_SERVER: os.getpid()}, calls=1, reviews=lambda: 0)) as meter:
            with pytest.raises(ConnectionError, match="the server closed the connection"):
                meter.measure(CREATE)
