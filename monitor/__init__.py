"""`dupt-monitor`: watches a swarm's records, exports them to Prometheus, and serves a page.

The data's way: watcher (a snapshot) → tally → collector → `/metrics`;
a snapshot and history → summary → site → the page and `/api/v1/swarm`.

cli             the program
watcher         a thread that reads the records every few seconds into a snapshot
tally           counters that must not fall when peers leave or the monitor restarts
collector       a snapshot as metric families, anew at each scrape
server          HTTP: `/metrics`, `/healthz`, and the site
history         the points of the loss curve
summary         the swarm in public: what page and JSON show
health          is the swarm well? a verdict and a sentence per check
site            the page, its files, and the JSON
chart           the loss curve as an SVG's numbers
formats         numbers, times and texts for people
page/           template, style and script of the page
dashboards/     generates grafana/dashboards/*.json
grafana/        dashboards and provisioning
prometheus/     configuration, alerts and their tests
"""
