# SPDX-License-Identifier: Apache-2.0
"""Dispatch to worker clusters: facts from caches, a plan from `multikueue.dispatch`, and its execution."""
