"""What `dupt-peer check` looks at, before a peer joins."""
