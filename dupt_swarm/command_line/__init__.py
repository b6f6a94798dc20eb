"""What the programs in `peers/` and `monitor/` share: exit codes, and `-v`."""
