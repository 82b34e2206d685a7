# SPDX-License-Identifier: Apache-2.0
"""The queues of the worker cluster: admission by them, and their quota in the ClusterReport."""
