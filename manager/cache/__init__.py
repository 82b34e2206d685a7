# SPDX-License-Identifier: Apache-2.0
"""The manager's caches of the hub: shared informers, and views over them that include its own writes."""
