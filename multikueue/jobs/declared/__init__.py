# SPDX-License-Identifier: Apache-2.0
"""Job kinds declared in YAML: the form of a declaration, and the integration made from one (ADR 0017)."""
