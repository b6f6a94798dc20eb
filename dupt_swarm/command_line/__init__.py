"""What the programs in `peers/` and `monitor/` share.

exit_codes      how an error or an interruption becomes a message and an exit code
printable       text from strangers, made fit for a terminal
"""
