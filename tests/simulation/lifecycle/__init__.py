# SPDX-License-Identifier: Apache-2.0
"""The lifecycle of Workloads as a state machine on the engine and the decisions of the manager."""
