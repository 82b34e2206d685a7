# SPDX-License-Identifier: Apache-2.0
"""The TLS settings of one cluster, rebuilt when their files change.

Owns the `ssl.SSLContext`: certificate authorities, the client certificate and key. Promises that key material given as
data is never written to disk (it goes through an anonymous memory file), and that changed files are read again, so that
a rotated certificate needs no restart: the next connection uses it. Linux only, like the devcluster.
"""

from __future__ import annotations

import logging
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from multikueue.core.certificate_trust import client_context
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.errors import BadInput

logger = logging.getLogger(__name__)

_CHECK_SECONDS: Final = 5.0  # between two checks of the files; a stat is cheap, but not per request


@dataclass(frozen=True, slots=True)
class Pem:
    """PEM text, or a file with it."""

    data: bytes | None = None
    path: Path | None = None

    def read(self) -> bytes:
        """The text. Raises `BadInput` with the file name."""
        if self.data is not None:
            return self.data
        if self.path is None:
            return b""
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise BadInput(f"cannot read {self.path}: {error.strerror}") from error

    def version(self) -> tuple[int, int]:
        """Modification time and size of the file; changes when the file does."""
        if self.path is None:
            return (0, 0)
        try:
            found = self.path.stat()
        except OSError:  # while a rotation replaces it; the next check finds the new one
            return (0, 0)
        return (found.st_mtime_ns, found.st_size)

    def __bool__(self) -> bool:
        return self.data is not None or self.path is not None


class TlsSource:
    """The current TLS context; cheap to get for every request."""

    def __init__(
        self,
        *,
        authority: Pem = Pem(),
        certificate: Pem = Pem(),
        key: Pem = Pem(),
        verify: bool = True,
        clock: Clock | None = None,
    ) -> None:
        if bool(certificate) != bool(key):
            raise BadInput("a client certificate needs its key, and a key its certificate")
        self._pems = (authority, certificate, key)
        self._verify = verify
        self._clock = clock or SystemClock()
        self._context: ssl.SSLContext | None = None
        self._versions: tuple[tuple[int, int], ...] = ()
        self._checked = float("-inf")

    def context(self) -> ssl.SSLContext:
        """The context for new connections. Raises `BadInput` if a file is missing or not PEM."""
        now = self._clock.monotonic()
        if self._context is None or now - self._checked >= _CHECK_SECONDS:
            self._checked = now
            versions = tuple(pem.version() for pem in self._pems)
            # While a file is missing (0, 0) the last context stays in use.
            if self._context is None:
                self._context, self._versions = self._build(), versions
            elif versions != self._versions and (0, 0) not in self._missing(versions):
                try:
                    self._context, self._versions = self._build(), versions
                except BadInput as error:
                    # Certificate and key are two files, which do not match between the two writes of a rotation.
                    logger.warning("cannot load rotated TLS files; keeping the former ones error=%s", error)
        return self._context

    def authority(self) -> bytes:
        """The PEM text of the certificate authorities; empty if those of the system are used."""
        return self._pems[0].read()

    def replace(self, *, certificate: bytes, key: bytes) -> None:
        """Use another client certificate from now on, as from an exec plug-in."""
        self._pems = (self._pems[0], Pem(certificate), Pem(key))
        self._context = None

    def _missing(self, versions: tuple[tuple[int, int], ...]) -> set[tuple[int, int]]:
        return {version for pem, version in zip(self._pems, versions, strict=True) if pem.path is not None}

    def _build(self) -> ssl.SSLContext:
        authority, certificate, key = self._pems
        try:
            if authority:
                text = authority.read().decode("ascii", errors="replace")
                if not text.strip():
                    raise BadInput("the certificate authority is empty")
                context = client_context(text)
            else:
                context = client_context()
        except ssl.SSLError as error:
            raise BadInput(f"the certificate authority is not PEM: {error}") from error
        if not self._verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["http/1.1"])
        if certificate:
            load_client_certificate(context, certificate.read() + b"\n" + key.read())
        return context


def load_client_certificate(context: ssl.SSLContext, pem: bytes) -> None:
    """Load certificate and key into `context` from a memory file, since it reads files only."""
    descriptor = os.memfd_create("multikueue-tls", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem)
        # Without a password OpenSSL would prompt for the password of an encrypted key.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    except (ssl.SSLError, ValueError) as error:
        hint = "; an encrypted key cannot be used" if b"ENCRYPTED" in pem else ""
        raise BadInput(f"the client certificate and its key are not a usable PEM pair: {error}{hint}") from error
    finally:
        os.close(descriptor)
