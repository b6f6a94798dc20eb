"""What the programs in `peers/` and `monitor/` share.

exit_codes      errors and interruptions become a message and an exit code
join_line       the command that joins a swarm
paths           paths as options and arguments
printable       text from strangers, made fit for a terminal
streams         stdout and stderr that bear any text, and the end of the terminal
"""
