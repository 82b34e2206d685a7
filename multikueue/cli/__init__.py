# SPDX-License-Identifier: Apache-2.0
"""`mkctl`: one module per command; `main` has their names and imports only the invoked one."""
