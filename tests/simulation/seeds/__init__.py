# SPDX-License-Identifier: Apache-2.0
"""One seed: what is drawn, played and checked, and the processes that play many."""
