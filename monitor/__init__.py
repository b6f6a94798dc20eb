"""The monitor: watches a swarm's records and exports them to Prometheus."""
