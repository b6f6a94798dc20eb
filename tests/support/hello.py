"""What peers under test say of themselves."""

from dupt_swarm.network.states.hello import Hello


def hello(state_digest: str = "", **fields: str) -> Hello:
    """As of a peer of some swarm, with other ``fields`` where a test wants them."""
    told = {"version": "0", "swarm_id": "swarm", "manifest": "{}", "tokenizer_blob": ""} | fields
    return Hello(state_digest=state_digest, **told)
