# SPDX-License-Identifier: Apache-2.0
"""Topology aware scheduling: what nodes can hold, and where pods are placed (`docs/spec/engine.md §6`)."""
