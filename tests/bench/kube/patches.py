# SPDX-License-Identifier: Apache-2.0
"""How many PATCH requests a second one client sends on one core.

The server is a stub in a process of its own that answers every request with the same 5 KiB object, so that the client
is the bottleneck. Prints requests per second of wall time and CPU µs of the client per request.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from time import perf_counter, process_time

from multikueue.api.resource import WORKLOADS
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.credentials import ClusterConfig
from multikueue.kube.rest.tls import TlsSource
from tests.bench.figure import Better, FigureShape
from tests.bench.kube.cache import workload

_REQUESTS = 20_000
_IN_FLIGHT = 32
_BODY = {"status": {"conditions": [{"type": "Admitted", "status": "True"}]}}


class Stub(asyncio.Protocol):
    """Answers each request on a connection; reads just enough HTTP to know where one ends."""

    answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.pending = b""

    def data_received(self, data: bytes) -> None:
        self.pending += data
        while (end := self.pending.find(b"\r\n\r\n")) >= 0:
            head = self.pending[:end].lower()
            start = head.index(b"content-length:") + 15
            length = int(head[start : head.find(b"\r\n", start) if b"\r\n" in head[start:] else None])
            if len(self.pending) < end + 4 + length:
                return
            self.pending = self.pending[end + 4 + length :]
            self.transport.write(self.answer)  # type: ignore[attr-defined]


async def serve() -> None:
    """The stub's process: prints its port and serves until killed."""
    body = workload(1)
    Stub.answer = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    ) + body
    server = await asyncio.get_running_loop().create_server(Stub, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def measure(port: int) -> dict[str, float]:
    """Send the requests, 32 at a time."""
    config = ClusterConfig(name="stub", server=f"http://127.0.0.1:{port}", tls=TlsSource())
    async with KubeClient(config) as client:

        async def send(count: int) -> None:
            for _ in range(count):
                await client.patch(WORKLOADS, "w", _BODY, namespace="ns", subresource="status")

        await send(200)
        start, cpu = perf_counter(), process_time()
        await asyncio.gather(*(send(_REQUESTS // _IN_FLIGHT) for _ in range(_IN_FLIGHT)))
        took, used = perf_counter() - start, process_time() - cpu
    return {
        "patch_per_second": round(_REQUESTS / took),
        "patch_per_cpu_second": round(_REQUESTS / used),
        "cpu_us_per_patch": round(used / _REQUESTS * 1e6, 1),
    }


FIGURES = (
    FigureShape("patch_per_second", "/s", 10_000, Better.HIGHER),
    FigureShape("cpu_us_per_patch", "µs"),
)


def main() -> dict[str, float]:
    """The figures."""
    command = [sys.executable, "-m", "tests.bench.kube.patches", "serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            return asyncio.run(measure(int(server.stdout.readline())))
        finally:
            server.kill()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
    else:
        json.dump(main(), sys.stdout, indent=2)
