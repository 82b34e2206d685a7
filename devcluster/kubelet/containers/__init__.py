# SPDX-License-Identifier: Apache-2.0
"""The simulated programs and commands of virtual containers."""
