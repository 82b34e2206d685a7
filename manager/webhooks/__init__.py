# SPDX-License-Identifier: Apache-2.0
"""Calls of the API server to the manager: defaulting, validation, conversion, and the certificates for them."""
