# SPDX-License-Identifier: Apache-2.0
"""`python -m devcluster.apiserver`: one API server as a process."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path

from devcluster.apiserver.http.audit import AuditFile
from devcluster.apiserver.http.listener import Listener, Serving
from devcluster.apiserver.http.requests import MASTERS, User
from devcluster.apiserver.server import ApiServer
from devcluster.apiserver.storage.durable import SqliteJournal
from devcluster.apiserver.storage.store import NoJournal


def main() -> None:
    """Serve until a signal ends it."""
    parser = argparse.ArgumentParser(prog="apiserver", description="A Kubernetes API server in pure Python.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--signing-key", type=Path, required=True, help="P-256 key of service-account tokens")
    parser.add_argument("--data", type=Path, help="keep objects in this file; in memory without it")
    parser.add_argument("--certificate", type=Path)
    parser.add_argument("--key", type=Path)
    parser.add_argument("--client-ca", type=Path)
    parser.add_argument("--token", action="append", default=[], metavar="TOKEN=USER[,GROUP...]")
    parser.add_argument("--service", action="append", default=[], metavar="NAMESPACE/NAME=HOST:PORT")
    parser.add_argument("--audit", type=Path, help="append an event for each request to this file")
    options = parser.parse_args()
    asyncio.run(_serve(options))


async def _serve(options: argparse.Namespace) -> None:
    audit = AuditFile(options.audit) if options.audit else None
    tokens = {}
    for entry in options.token:
        token, _, rest = entry.partition("=")
        name, *groups = rest.split(",")
        tokens[token] = User(name, (*groups, "system:authenticated"))
    api = ApiServer(
        signing_key=options.signing_key.read_bytes(),
        journal=SqliteJournal(options.data) if options.data else NoJournal(first=time.time_ns() // 1_000_000),
        static_tokens=tokens,
        services=dict(entry.split("=", 1) for entry in options.service),
        audit=audit,
        client_ca=options.client_ca,
    )
    serving = Serving(options.certificate, options.key, options.client_ca) if options.certificate else None
    if serving is None and not tokens:
        # A plain port has no client certificates; without tokens it is a test's server on loopback.
        api.authentication.insecure = User("admin", (MASTERS, "system:authenticated"))
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with Listener(api, port=options.port, serving=serving) as listener:
        api.publish_address(listener.port)
        sys.stdout.write(f"{listener.url}\n")
        sys.stdout.flush()
        await ended.wait()
    if audit is not None:
        audit.close()


if __name__ == "__main__":
    main()
