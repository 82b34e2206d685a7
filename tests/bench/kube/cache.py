# SPDX-License-Identifier: Apache-2.0
"""What one watch event and one cached object cost.

Prints: µs to decode an event into a row, store bytes per 5 KiB object, milliseconds of a full garbage collection with
100,000 rows.
"""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from time import perf_counter
from typing import Any

import orjson

from multikueue.kube.cache.store import Store, read_row
from multikueue.kube.rest.watch import decode
from tests.bench.figure import FigureShape

_EVENTS = 20_000
_ROWS = 100_000
_SIZED = 10_000


def workload(number: int) -> bytes:
    """A Workload of about 5 KiB: two pod sets, three conditions, an admission, managed fields."""
    container: dict[str, Any] = {
        "name": "main",
        "image": "registry.example/team/train:v1",
        "args": ["--epochs=10"] * 30,
    }
    container["resources"] = {"requests": {"cpu": "2", "memory": "4Gi"}}
    pod_set = {"count": 4, "template": {"spec": {"containers": [container, container], "restartPolicy": "Never"}}}
    condition = {"status": "True", "reason": "Ready", "message": "m" * 80, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    managed = {"manager": "kueue-admission", "operation": "Apply", "fieldsV1": {f"f:{n}": {} for n in range(60)}}
    body = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": f"job-train-{number:06}",
            "namespace": f"team-{number % 50}",
            "uid": f"{number:08}-aaaa-bbbb-cccc-dddddddddddd",
            "resourceVersion": str(1_000_000 + number),
            "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kueue.x-k8s.io/job-uid": f"{number:08}"},
            "managedFields": [managed, managed],
        },
        "spec": {"queueName": "main", "podSets": [pod_set | {"name": "a"}, pod_set | {"name": "b"}]},
        "status": {"conditions": [condition | {"type": name} for name in ("QuotaReserved", "Admitted", "PodsReady")]},
    }
    return bytes(memoryview(orjson.dumps(body)))


def decode_microseconds() -> float:
    """CPU of line → event → row, nothing retained."""
    lines = [b'{"type":"MODIFIED","object":' + workload(number) + b"}" for number in range(200)]
    start = perf_counter()
    for number in range(_EVENTS):
        read_row(decode(lines[number % len(lines)], request="bench").raw)
    return (perf_counter() - start) / _EVENTS * 1e6


def filled(rows: int) -> Store:
    """A store of that many distinct objects."""
    store = Store()
    for number in range(rows):
        store.put(read_row(workload(number)))
    return store


def bytes_per_object() -> tuple[int, int]:
    """Memory of a store per object, and the size of its JSON."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    store = filled(_SIZED)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used // len(store), len(workload(0))


def collection_milliseconds() -> float:
    """One full collection while the store holds its rows."""
    store = filled(_ROWS)
    gc.collect()
    start = perf_counter()
    gc.collect()
    took = (perf_counter() - start) * 1e3
    assert len(store) == _ROWS
    return took


FIGURES = (
    FigureShape("decode_us_per_event", "µs", 25),
    FigureShape("store_bytes_per_object", "bytes", 6144),
    FigureShape("full_gc_ms_at_100k_rows", "ms", 100),
)


def main() -> dict[str, float]:
    """The figures."""
    per_object, size = bytes_per_object()
    return {
        "decode_us_per_event": round(decode_microseconds(), 1),
        "object_bytes": size,
        "store_bytes_per_object": per_object,
        "full_gc_ms_at_100k_rows": round(collection_milliseconds(), 1),
    }


if __name__ == "__main__":
    json.dump(main(), sys.stdout, indent=2)
