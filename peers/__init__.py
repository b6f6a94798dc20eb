"""The programs that volunteers and organisers run."""
