# SPDX-License-Identifier: Apache-2.0
"""The scheduler loop: feeds the engine, runs cycles, and writes decisions in the background."""
