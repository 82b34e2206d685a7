# SPDX-License-Identifier: Apache-2.0
"""One scheduling cycle: nominate, order, admit."""
