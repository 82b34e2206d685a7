# SPDX-License-Identifier: Apache-2.0
"""Federations that follow a script, without chance: every write that fails, restarts, and shared clusters."""
