# SPDX-License-Identifier: Apache-2.0
"""The fuzz: random writes with the rights of tenants, agents and users of workers; the federation must keep working.

`python -m tests.security.fuzz --minutes 10` runs it for long, `--replay FILE` writes what a file lists; `test_fuzz.py`
is the short form that CI runs, and writes again what is kept in `found/`.
"""
