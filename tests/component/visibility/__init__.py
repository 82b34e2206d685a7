# SPDX-License-Identifier: Apache-2.0
"""The visibility API behind an embedded API server and a real one."""
