# SPDX-License-Identifier: Apache-2.0
"""A certificate in a folder, which something else keeps, such as cert-manager in a mounted Secret."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio

from manager.webhooks.certificates import Bundle
from multikueue.core.errors import BadInput

_log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 60.0
"""How often the files are read: the longest time for which a former certificate is served."""


class CertificateFiles:
    """`tls.crt`, `tls.key` and, if there is one, `ca.crt` of a folder."""

    is_own: Final = False

    def __init__(self, folder: Path, *, setting: str) -> None:
        """`setting` is the field of the Configuration that names the folder, for messages."""
        self._folder = folder
        self._setting = setting

    async def ensure(self) -> Bundle:
        """The certificate as it is now. Raises `BadInput`."""
        return await anyio.to_thread.run_sync(self._read)

    async def follow(self, changed: Callable[[Bundle], None], *, current: Bundle) -> None:
        """Call `changed` with each new certificate, until cancelled; one that cannot be used is logged once."""
        logged = ""
        while True:
            await anyio.sleep(CHECK_SECONDS)
            try:
                found = await self.ensure()
                if found != current:
                    changed(found)
                    current = found
                    _log.info("certificate reloaded folder=%s", self._folder)
                logged = ""
            except BadInput as error:
                if str(error) != logged:
                    logged = str(error)
                    _log.error("certificate unusable, keeping the previous one folder=%s error=%s", self._folder, error)

    def _read(self) -> Bundle:
        try:
            certificate, key = ((self._folder / name).read_bytes() for name in ("tls.crt", "tls.key"))
        except OSError as error:
            raise BadInput(f"{self._setting}: cannot read {error.filename}: {error.strerror or error}") from error
        try:
            authority = (self._folder / "ca.crt").read_bytes()
        except OSError:
            authority = b""  # whoever issued the certificate also writes its authority into the webhooks
        return Bundle(ca_certificate=authority, ca_key=b"", certificate=certificate + b"\n", key=key)
