# SPDX-License-Identifier: Apache-2.0
"""A whole federation in one process, in virtual time, under a seed: real manager, real agents, hostile network."""
