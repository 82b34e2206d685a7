# SPDX-License-Identifier: Apache-2.0
"""Dispatchers, which decide which clusters are nominated and when; all implement `protocol.Dispatcher`."""
