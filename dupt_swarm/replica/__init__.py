"""CPU arithmetic on what the swarm agrees on: state, digest, outer step, codec, aggregation. No network."""
