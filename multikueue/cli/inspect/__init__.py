# SPDX-License-Identifier: Apache-2.0
"""Decisions of the engine and of a hub, with reasons: simulate, explain, timeline."""
