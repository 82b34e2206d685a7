# SPDX-License-Identifier: Apache-2.0
"""TLS contexts of clients that trust what a Go client trusts."""

from __future__ import annotations

import ssl


def client_context(bundle: str | None = None) -> ssl.SSLContext:
    """A context that trusts the PEM certificates of `bundle`, or those of the system.

    As for Go, a bundle may hold the server's own certificate or an intermediate one instead of an authority that
    signed itself, and certificates need not have the extensions that newer versions of Python demand. Raises
    `ssl.SSLError`, or `ValueError` if the bundle has no PEM.
    """
    context = ssl.create_default_context(cadata=bundle)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
