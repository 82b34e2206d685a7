# SPDX-License-Identifier: Apache-2.0
"""Who is nominated, and when: one module a dispatcher, all behind `protocol.Dispatcher`."""
