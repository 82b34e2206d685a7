# SPDX-License-Identifier: Apache-2.0
"""A certificate in files, as cert-manager keeps it: read at the start, reloaded, and kept while it cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from manager.webhooks import certificate_files
from manager.webhooks.certificate_files import CertificateFiles
from manager.webhooks.certificates import Bundle
from manager.webhooks.configurations import WebhookClientConfig, conversion_patch
from manager.webhooks.rotation import SharedBundle
from manager.webhooks.serving import certificate_source
from multikueue.api import configuration_file
from multikueue.core.clock import ManualClock
from multikueue.core.errors import BadInput

pytestmark = pytest.mark.anyio


def write(folder: Path, *, certificate: str = "certificate", key: str = "key", authority: str | None = "ca") -> None:
    (folder / "tls.crt").write_text(certificate)
    (folder / "tls.key").write_text(key)
    if authority is not None:
        (folder / "ca.crt").write_text(authority)


def files(folder: Path) -> CertificateFiles:
    return CertificateFiles(folder, setting="webhook.certDir")


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not holds():
            await anyio.sleep(0.01)


async def test_certificate_key_and_authority_are_read(tmp_path: Path) -> None:
    write(tmp_path)
    found = await files(tmp_path).ensure()
    assert (found.pem, found.ca_bundle) == (b"certificate\nkey", "Y2E=")


async def test_without_an_authority_what_injected_one_into_the_webhooks_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, authority=None)
    bundle = (await files(tmp_path).ensure()).ca_bundle
    assert bundle == ""
    for target in (WebhookClientConfig(ca_bundle=bundle, url="https://a"), WebhookClientConfig(ca_bundle=bundle)):
        assert "caBundle" not in target.client_config("/x")
        assert "caBundle" not in str(conversion_patch(target))


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key"])
async def test_a_missing_file_is_named_with_its_setting(tmp_path: Path, missing: str) -> None:
    write(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(BadInput, match=rf"webhook\.certDir: cannot read .*{missing}: No such file or directory"):
        await files(tmp_path).ensure()


async def test_a_renewed_certificate_is_served_and_a_missing_one_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(certificate_files, "CHECK_SECONDS", 0.01)
    caplog.set_level(logging.INFO)
    write(tmp_path)
    source = files(tmp_path)
    current = await source.ensure()
    seen: list[Bundle] = []

    def logged(text: str) -> int:
        return sum(text in record.getMessage() for record in caplog.records)

    async with anyio.create_task_group() as tasks:

        async def follow() -> None:
            await source.follow(seen.append, current=current)

        tasks.start_soon(follow)
        (tmp_path / "tls.key").unlink()
        await until(lambda: logged("certificate unusable, keeping the previous one") == 1)
        assert seen == []
        write(tmp_path, certificate="renewed")
        await until(lambda: len(seen) == 1)
        tasks.cancel_scope.cancel()
    assert seen[0].pem == b"renewed\nkey"
    assert (logged("certificate unusable"), logged("certificate reloaded")) == (1, 1)


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        pytest.param("", SharedBundle, id="its own by default"),
        pytest.param("internalCertManagement: {enable: false}", CertificateFiles, id="files of cert-manager"),
    ],
)
async def test_the_configuration_decides_where_the_certificate_comes_from(settings: str, kind: type) -> None:
    configuration = configuration_file.load(settings)
    source = certificate_source(
        configuration,
        None,  # type: ignore[arg-type]
        namespace="kueue-system",
        hosts=(),
        clock=ManualClock(),
    )
    assert isinstance(source, kind)
    assert source.is_own == (kind is SharedBundle)
