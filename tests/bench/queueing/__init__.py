# SPDX-License-Identifier: Apache-2.0
"""Queueing under pressure: the mix of issue 19 on a hub without dispatch; see `__main__`."""
