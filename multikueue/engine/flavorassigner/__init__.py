# SPDX-License-Identifier: Apache-2.0
"""Assigns flavors to a workload: eligibility, the search, and its result."""
