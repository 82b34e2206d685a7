# SPDX-License-Identifier: Apache-2.0
"""Courses of Jobs that are played on this project's manager and on Kueue's own, to compare what both write."""
