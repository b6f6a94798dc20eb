"""The generator of the Grafana dashboards; ``python -m monitor.dashboards`` writes them.

Queries refer to metrics by their rows in the tables of `dupt_swarm.metrics`, never by a typed name, so a
dashboard cannot ask for a metric that nobody exports.

swarm           is it alive, does it learn, who contributes
learning        the loss against tokens and time
peer            one oracle, from its own metrics
board           rows of panels, and their layout
panel           one panel of any kind
query           PromQL over metrics of the tables
"""

from __future__ import annotations

from monitor.dashboards.board import Dashboard
from monitor.dashboards.learning import LEARNING
from monitor.dashboards.peer import PEER
from monitor.dashboards.swarm import SWARM

DASHBOARDS: tuple[Dashboard, ...] = (SWARM, PEER, LEARNING)
