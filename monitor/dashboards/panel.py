"""Panels: one class for all kinds, with defaults for each kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dupt_swarm.metrics.spec import MetricSpec
from monitor.dashboards.query import DATASOURCE, Query

PLUGIN_VERSION = "11.6.0"
COLUMNS = 24
BITS, NATS, TOKENS_PER_SECOND = "suffix: bits/byte", "suffix: nats", "suffix: tokens/s"
Step = tuple[float | None, str]


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        title: a few words.
        text: what it shows and what to make of it; the names of its metrics are appended.
        queries: at least one.
        unit: Grafana's unit id, or ``suffix: …``.
        kind: Grafana's panel type.
        width: of 24 columns.
        height: in Grafana's units of 30 pixels.
        empty: the text shown when there is no data.
        steps: thresholds, each a value and the colour from it upward; the first has no value.
        defaults: additions to ``fieldConfig.defaults``.
        options: additions to the panel's options.
        overrides: field overrides.
        transformations: applied to the queries' results.
    """

    title: str
    text: str
    queries: tuple[Query, ...]
    unit: str
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    empty: str = "No data yet"
    steps: tuple[Step, ...] = ((None, "green"),)
    defaults: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    overrides: tuple[dict[str, Any], ...] = ()
    transformations: tuple[dict[str, Any], ...] = ()

    def to_dict(self, number: int, x: int, y: int) -> dict[str, Any]:
        """The panel with id ``number``, at column ``x`` and row ``y`` of the grid."""
        panel = {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": f"{self.text}\n\nMetrics: {', '.join(self.metric_names)}",
            "datasource": DATASOURCE,
            "pluginVersion": PLUGIN_VERSION,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": [
                query.to_dict(chr(ord("A") + place), instant=query.table or self.kind == "stat")
                for place, query in enumerate(self.queries)
            ],
            "fieldConfig": {
                "defaults": {
                    "unit": self.unit,
                    "noValue": self.empty,
                    "thresholds": {
                        "mode": "absolute",
                        "steps": [{"value": value, "color": color} for value, color in self.steps],
                    },
                    **_DEFAULTS.get(self.kind, {}),
                    **self.defaults,
                },
                "overrides": list(self.overrides),
            },
            "options": {**_OPTIONS.get(self.kind, {}), **self.options},
        }
        if self.transformations:
            panel["transformations"] = list(self.transformations)
        return panel

    @property
    def metric_names(self) -> list[str]:
        """The metrics of all queries, each once."""
        return list(dict.fromkeys(spec.name for query in self.queries for spec in query.specs))


def stat(title: str, text: str, query: Query, unit: str, **more: Any) -> Panel:
    """A single large number."""
    return Panel(title, text, (query,), unit, kind="stat", **{"width": 3, "height": 4, **more})


def graph(title: str, text: str, *queries: Query, unit: str, **more: Any) -> Panel:
    """Lines over time."""
    return Panel(title, text, queries, unit, **more)


def amounts(title: str, text: str, *queries: Query, unit: str, **more: Any) -> Panel:
    """Lines over time, from zero on."""
    return graph(title, text, *queries, unit=unit, defaults={"min": 0}, **more)


def counts(title: str, text: str, *queries: Query, **more: Any) -> Panel:
    """Lines of whole numbers over time."""
    return graph(title, text, *queries, unit="none", defaults={"min": 0, "decimals": 0}, **more)


def stacked(title: str, text: str, *queries: Query, unit: str, **more: Any) -> Panel:
    """Stacked areas over time."""
    custom = _DEFAULTS["timeseries"]["custom"] | {
        "fillOpacity": 40,
        "stacking": {"mode": "normal", "group": "A"},
    }
    return Panel(title, text, queries, unit, defaults={"custom": custom, "min": 0}, **more)


def override(name: str, **properties: Any) -> dict[str, Any]:
    """An override for the field ``name``; a double underscore stands for the dot in a property's name."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()],
    }


def columns(join: str, names: dict[str, str], hide: tuple[str, ...] = ()) -> tuple[dict[str, Any], ...]:
    """Join the results of several table queries into one table.

    Args:
        join: the field to join on.
        names: column titles by field, in the order of the columns.
        hide: fields to leave out.
    """
    return (
        {"id": "joinByField", "options": {"byField": join, "mode": "outer"}},
        {
            "id": "organize",
            "options": {
                "renameByName": names,
                "indexByName": {name: place for place, name in enumerate(names)},
                "excludeByName": dict.fromkeys(hide, True),
            },
        },
    )


def lettered(titles: Iterable[str]) -> dict[str, str]:
    """The titles of what a table's second and further queries find, by the fields that have it."""
    return {f"Value #{letter}": title for letter, title in zip("BCDEFGHIJ", titles, strict=False)}


def about(title: str, text: str, *infos: MetricSpec, names: dict[str, str]) -> Panel:
    """A table of one line: the labels in ``names``, with their titles, of ``infos`` of one instance."""
    untitled = () if "instance" in names else ("instance",)
    return Panel(
        title,
        text,
        tuple(Query("{0}", info, table=True) for info in infos),
        "none",
        kind="table",
        width=COLUMNS,
        height=4,
        transformations=columns("instance", names, hide=_hidden(*untitled)),
    )


def _hidden(*fields: str) -> tuple[str, ...]:
    """``fields`` and those that Prometheus adds to tables, under every name that a join gives them."""
    suffixes = ("", " 1", " 2", " #A", " #B")
    return tuple(
        f"{name}{suffix}" for name in ("Time", "Value", "__name__", "job", *fields) for suffix in suffixes
    )


_LEGEND = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "color": {"mode": "palette-classic"},
        "custom": {
            "drawStyle": "line",
            "lineInterpolation": "linear",
            "lineWidth": 1,
            "fillOpacity": 0,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "none", "group": "A"},
        },
    },
    "stat": {"color": {"mode": "thresholds"}},
    "table": {"color": {"mode": "thresholds"}, "custom": {"align": "auto", "filterable": True}},
    "state-timeline": {"color": {"mode": "palette-classic"}, "custom": {"fillOpacity": 70, "lineWidth": 0}},
    "xychart": {
        "color": {"mode": "palette-classic"},
        "custom": {"show": "lines", "lineWidth": 1, "pointSize": {"fixed": 3}},
    },
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {"legend": _LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}},
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "auto",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    },
    "table": {"showHeader": True, "cellHeight": "sm", "footer": {"show": False, "reducer": ["sum"]}},
    "state-timeline": {
        "mergeValues": True,
        "showValue": "never",
        "alignValue": "left",
        "rowHeight": 0.8,
        "legend": _LEGEND,
        "tooltip": {"mode": "single", "sort": "none"},
    },
    "xychart": {"legend": _LEGEND, "tooltip": {"mode": "single", "sort": "none"}},
}
