# SPDX-License-Identifier: Apache-2.0
"""The management-cluster process: wiring, scheduler loop, reconcilers, admission checks, dispatch, webhooks."""
