# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.simulation.lifecycle`: many steps of the state machine."""

import sys

from tests.simulation.lifecycle.machine import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
