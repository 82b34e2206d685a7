# SPDX-License-Identifier: Apache-2.0
"""Virtual nodes: pods run, become ready, finish and fail as their annotations say, without containers."""
