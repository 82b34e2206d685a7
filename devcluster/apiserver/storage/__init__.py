# SPDX-License-Identifier: Apache-2.0
"""Where objects are kept: one writer, immutable bytes, one line of resource versions."""
