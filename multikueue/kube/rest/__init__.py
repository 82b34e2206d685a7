# SPDX-License-Identifier: Apache-2.0
"""Requests to one API server: sessions, credentials, TLS, retries, watches, patches."""
