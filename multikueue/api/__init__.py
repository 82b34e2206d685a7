# SPDX-License-Identifier: Apache-2.0
"""The wire types: strings, models of every kind, defaults, validation, conversion, and the CRDs made from them."""
