# SPDX-License-Identifier: Apache-2.0
"""Child processes that the kernel kills when their owner dies."""
