# SPDX-License-Identifier: Apache-2.0
"""The dispatch engine: pure decisions of the hub (facts in, plan out) and of the agent."""
