# SPDX-License-Identifier: Apache-2.0
"""Subresources that are no ordinary reads and writes of an object."""
