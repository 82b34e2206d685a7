# SPDX-License-Identifier: Apache-2.0
"""The webhooks of a bench, in a process of its own: `python -m tests.bench.prices.hook CERTIFICATE KEY`.

`/allow` and `/excluded` admit everything, `/label` adds a label, `/probe` admits as well and shows that a configuration
is in force, `/convert` converts as the manager does. `/counts` has the number of requests so far by path.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import orjson
from aiohttp import web

from devcluster.pki import Authority
from devcluster.ports import LOOPBACK
from manager.webhooks.review import convert_review
from multikueue.api import conversion
from multikueue.api.crds import CONVERSION_PATH

ALLOW: Final = "/allow"
EXCLUDED: Final = "/excluded"
LABEL: Final = "/label"
PROBE: Final = "/probe"
_COUNTS: Final = "/counts"
_LARGEST: Final = 32 * 1024 * 1024


class HookProcess:
    """The running process."""

    def __init__(self, *, pid: int, url: str, authority: Authority) -> None:
        self.pid = pid
        self.url = url
        self.ca_bundle = base64.b64encode(authority.certificate).decode()
        self._context = ssl.create_default_context(cadata=authority.certificate.decode())

    def counts(self) -> Counter[str]:
        """Requests so far, by path."""
        with urllib.request.urlopen(f"{self.url}{_COUNTS}", context=self._context, timeout=30) as answer:
            return Counter(orjson.loads(answer.read()))

    def reviews(self) -> int:
        """Requests so far, but those of probes."""
        counts = self.counts()
        return counts.total() - counts[PROBE]


@contextmanager
def running_hook(folder: Path) -> Iterator[HookProcess]:
    """The process, ready, with its certificate in `folder`."""
    authority = Authority.create("bench-hook")
    certificate, key = authority.serving("hook", hosts=[LOOPBACK]).write(folder, name="hook")
    command = [sys.executable, "-m", "tests.bench.prices.hook", str(certificate), str(key)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            if not port:
                raise RuntimeError("the process of the webhooks ended before it was ready")
            yield HookProcess(pid=process.pid, url=f"https://{LOOPBACK}:{port}", authority=authority)
        finally:
            process.kill()


def _application() -> web.Application:
    counts: Counter[str] = Counter()
    calls = 0

    async def admit(request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        counts[request.path] += 1
        review = orjson.loads(await request.read())
        answer: dict[str, object] = {"uid": review["request"]["uid"], "allowed": True}
        if request.path == LABEL:
            operation = {"op": "add", "path": "/metadata/labels/bench-hook", "value": str(calls)}
            answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps([operation])).decode()}
        body = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}
        return web.Response(body=orjson.dumps(body), content_type="application/json")

    async def convert(request: web.Request) -> web.Response:
        counts[request.path] += 1
        body = convert_review(await request.read(), conversion.convert)
        return web.Response(body=body, content_type="application/json")

    async def counted(_: web.Request) -> web.Response:
        return web.Response(body=orjson.dumps(counts), content_type="application/json")

    app = web.Application(client_max_size=_LARGEST)
    for path in (ALLOW, EXCLUDED, LABEL, PROBE):
        app.router.add_post(path, admit)
    app.router.add_post(CONVERSION_PATH, convert)
    app.router.add_get(_COUNTS, counted)
    return app


async def _serve(certificate: str, key: str) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    # An API server keeps its connections for 90 seconds.
    runner = web.AppRunner(_application(), access_log=None, keepalive_timeout=120.0)
    await runner.setup()
    site = web.TCPSite(runner, LOOPBACK, 0, ssl_context=context)
    await site.start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2]))
