# SPDX-License-Identifier: Apache-2.0
"""Job kinds for local clusters: their definitions, and small controllers that run their pods."""
