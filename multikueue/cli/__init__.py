# SPDX-License-Identifier: Apache-2.0
"""`mkctl`: one command a module; `main` knows their names and imports one when it is invoked."""
