"""A dashboard: rows of panels laid out from left to right, and a variable that selects what they show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dupt_swarm.metrics.spec import MetricSpec
from monitor.dashboards.panel import COLUMNS, Panel
from monitor.dashboards.query import DATASOURCE

SCHEMA_VERSION = 41  # Grafana 11.6
TAG = "dupt"


@dataclass(frozen=True)
class Choice:
    """A dashboard variable: the viewer chooses among the values of one label of one metric.

    Attributes:
        label: its name, and the variable's.
        title: as shown.
        spec: a metric that has the label, as its own, or from Prometheus, which adds `instance`.
    """

    label: str
    title: str
    spec: MetricSpec

    def to_dict(self) -> dict[str, Any]:
        """The variable in Grafana's dashboard model."""
        query = f"label_values({self.spec.name}, {self.label})"
        return {
            "name": self.label,
            "label": self.title,
            "type": "query",
            "datasource": DATASOURCE,
            "query": {"query": query, "refId": "Choice", "qryType": 1},
            "refresh": 2,  # whenever the time range changes
            "sort": 1,
            "multi": False,
            "includeAll": False,
            "hide": 0,
            "options": [],
        }


@dataclass(frozen=True)
class Row:
    """A heading and the panels under it."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """One dashboard.

    Attributes:
        uid: stays the same for ever, since links use it.
        title: a few words.
        text: what it is for.
        choice: what the viewer chooses.
        rows: from top to bottom.
    """

    uid: str
    title: str
    text: str
    choice: Choice
    rows: tuple[Row, ...]

    @property
    def file_name(self) -> str:
        """Of the JSON file."""
        return f"{self.uid.removeprefix('dupt-')}.json"

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Of all rows."""
        return tuple(panel for row in self.rows for panel in row.panels)

    def to_json(self) -> str:
        """The content of the JSON file."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """In Grafana's dashboard model."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.text,
            "tags": [TAG],
            "timezone": "browser",
            "editable": True,
            "graphTooltip": 1,  # one crosshair for all panels
            "schemaVersion": SCHEMA_VERSION,
            "refresh": "10s",
            "time": {"from": "now-6h", "to": "now"},
            "timepicker": {},
            "fiscalYearStartMonth": 0,
            "annotations": {"list": []},
            "links": [_LINK],
            "templating": {"list": [_DATASOURCES, self.choice.to_dict()]},
            "panels": list(self._placed()),
        }

    def _placed(self) -> Iterator[dict[str, Any]]:
        number = y = 0
        for row in self.rows:
            number += 1
            yield {
                "id": number,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
                "panels": [],
            }
            x, y, line = 0, y + 1, 0
            for panel in row.panels:
                if x + panel.width > COLUMNS:
                    x, y, line = 0, y + line, 0
                number += 1
                yield panel.to_dict(number, x, y)
                x, line = x + panel.width, max(line, panel.height)
            y += line


_LINK = {
    "type": "dashboards",
    "title": "dupt_swarm",
    "icon": "external link",
    "tooltip": "",
    "tags": [TAG],
    "asDropdown": False,
    "targetBlank": False,
    "includeVars": True,
    "keepTime": True,
}
_DATASOURCES = {
    "name": "datasource",
    "label": "Data source",
    "type": "datasource",
    "query": "prometheus",
    "refresh": 1,  # when the dashboard is opened
    "multi": False,
    "includeAll": False,
    "hide": 0,
    "regex": "",
    "options": [],
}
