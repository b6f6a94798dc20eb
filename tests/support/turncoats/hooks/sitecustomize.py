"""Loaded by Python itself in the hostile node: it is ready for whatever the orders say."""

import os
import sys

if "dupt_swarm.network.process" in sys.orig_argv and os.environ.get("DUPT_TEST_ORDERS"):
    from tests.support.turncoats import coordinating, sharing, voting
    from tests.support.turncoats.orders import Orders

    for each in (voting, coordinating, sharing):
        each.prepare(Orders.here())
