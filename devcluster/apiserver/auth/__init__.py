# SPDX-License-Identifier: Apache-2.0
"""Authentication, authorization and tokens."""
