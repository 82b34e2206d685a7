# SPDX-License-Identifier: Apache-2.0
"""The API group visibility.kueue.x-k8s.io: pending workloads of a queue, in the order in which they are considered."""
