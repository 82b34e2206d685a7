# SPDX-License-Identifier: Apache-2.0
"""Reconcilers: each takes a key, gathers facts, calls a pure decision of a module beside it, and writes the result."""
