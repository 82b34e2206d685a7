# SPDX-License-Identifier: Apache-2.0
"""The wire types: strings, models of every kind, defaults, validation, conversion, and the CRDs made from them.

`meta` and the modules of kinds do without `from __future__ import annotations`: pydantic evaluates every annotation
as a class is made, and compiling them from strings took a tenth of the time that importing all kinds may take.
"""
