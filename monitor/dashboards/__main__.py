"""Writes all dashboards into the folder that Grafana provisions."""

from __future__ import annotations

from pathlib import Path

from monitor.dashboards import DASHBOARDS

FOLDER = Path(__file__).parents[1] / "grafana" / "dashboards"


def main() -> None:
    """Write each dashboard to its file."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        (FOLDER / dashboard.file_name).write_text(dashboard.to_json(), encoding="utf-8")


if __name__ == "__main__":
    main()
