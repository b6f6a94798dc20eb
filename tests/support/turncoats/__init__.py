"""One that decides with the others, and turns against them: the real code, with one thing changed.

camp         peers in one process; some of them lie
cluster      a driven swarm of real nodes with one oracle that attacks when the test says so
orders       what those that lie shall do now
coordinating what one does when it coordinates
telling      what it does with its reports
sharing      what it does with its contribution
hooks/       has Python load all that in its node
"""

from tests.support.turncoats import coordinating, sharing, telling
from tests.support.turncoats.orders import Orders, Patch


def prepare(orders: Orders, patch: Patch = setattr) -> None:
    """Have all peers of this process do what they are ordered."""
    for each in (coordinating, sharing, telling):
        each.prepare(orders, patch)
