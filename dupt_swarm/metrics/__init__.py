"""The tables of all metrics: the one source of their names, types, help texts and labels."""
