"""The tables of all metrics: the single source of their names, types, help texts and labels.

spec            `MetricSpec`, a row of the tables
record          of the fields of records, from their declarations
swarm           of a swarm, exported by the monitor
peer            of one peer, exported by itself
monitor         of the monitor itself
serving         the HTTP server of peers and monitor
"""
