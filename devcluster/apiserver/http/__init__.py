# SPDX-License-Identifier: Apache-2.0
"""Requests and answers as bytes: the listener, HTTP/1.1, probes, the audit log, faults on demand."""
