# SPDX-License-Identifier: Apache-2.0
"""Who asks, and what they may do."""
