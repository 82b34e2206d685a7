# SPDX-License-Identifier: Apache-2.0
"""What the API server asks the manager: defaulting, validation, conversion, and the certificates for it."""
