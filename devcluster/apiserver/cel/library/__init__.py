# SPDX-License-Identifier: Apache-2.0
"""The functions of the language, those of Kubernetes included."""
