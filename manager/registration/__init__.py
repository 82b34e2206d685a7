# SPDX-License-Identifier: Apache-2.0
"""Letting agents in: which certificate requests are approved, and what a registration remembers."""
