"""The generator of the Grafana dashboards; ``python -m monitor.dashboards`` writes them.

Queries name metrics by their rows in the tables of `dupt_swarm.metrics`, never by hand, so that a
dashboard cannot ask for a metric that nobody exports.
"""

from __future__ import annotations

from monitor.dashboards.board import Dashboard
from monitor.dashboards.learning import LEARNING
from monitor.dashboards.peer import PEER
from monitor.dashboards.swarm import SWARM

DASHBOARDS: tuple[Dashboard, ...] = (SWARM, PEER, LEARNING)
