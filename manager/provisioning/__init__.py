# SPDX-License-Identifier: Apache-2.0
"""Provisioning checks on this cluster: an autoscaler is asked for capacity before a Workload is admitted."""
