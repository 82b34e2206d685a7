# SPDX-License-Identifier: Apache-2.0
"""One module for each job kind: pod sets, suspend and resume, the end, and what is mirrored. All of it is pure."""
