# SPDX-License-Identifier: Apache-2.0
"""The manager installed on a local cluster like Kueue: a Deployment whose pods are local processes."""
