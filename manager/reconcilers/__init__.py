# SPDX-License-Identifier: Apache-2.0
"""Reconcilers: a key in, at most a few writes out; each decision is a pure function in a module of its own."""
