# SPDX-License-Identifier: Apache-2.0
"""An etcd that does not answer, or answers with an error, is an error that names what was asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from devcluster.errors import DevclusterError
from devcluster.providers.binaries.etcd import SOCKET
from devcluster.providers.binaries.storage import ClusterStorage

pytestmark = pytest.mark.anyio


async def test_an_etcd_that_has_ended_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(DevclusterError, match="etcd did not answer range: "):
        await ClusterStorage(etcd_folder=tmp_path, prefix="/c").is_empty()


async def test_an_etcd_that_refuses_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=503, text="etcdserver: no space")

    monkeypatch.chdir(tmp_path)  # the path of a Unix socket has at most 107 bytes
    application = web.Application()
    application.router.add_post("/v3/kv/txn", refuse)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.UnixSite(runner, SOCKET).start()
        with pytest.raises(DevclusterError, match="etcd answered txn with 503: etcdserver: no space"):
            await ClusterStorage(etcd_folder=tmp_path, prefix="/c").write({b"k": b"v"})
    finally:
        await runner.cleanup()
