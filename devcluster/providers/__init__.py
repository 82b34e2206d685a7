# SPDX-License-Identifier: Apache-2.0
"""The providers of local clusters behind one interface: embedded, real binaries, kind."""
