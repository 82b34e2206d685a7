# SPDX-License-Identifier: Apache-2.0
"""ValidatingAdmissionPolicies and MutatingAdmissionPolicies: what they evaluate, refuse and change."""
