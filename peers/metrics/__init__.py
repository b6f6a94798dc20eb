"""A peer's own metrics, served with `--metrics-addr`.

http            the HTTP server
collector       from the running peer to metric families, anew at each scrape
recorders       what happens between scrapes, counted as it happens
"""
