"""Loaded by Python itself in the hostile node: it is ready for whatever the orders say."""

import os
import sys

if "dupt_swarm.network.process" in sys.orig_argv and os.environ.get("DUPT_TEST_ORDERS"):
    from tests.support.turncoats import prepare
    from tests.support.turncoats.orders import WrittenOrders

    prepare(WrittenOrders.here())
