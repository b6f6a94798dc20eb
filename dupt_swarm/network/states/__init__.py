"""Replica states, and how they travel: as blobs, chunk by chunk, each checked by its hash.

store           our own state: begins the next one, fetches newer ones
claims          which state to follow, of those that others say they have
sync            fetches it
hello           what a peer tells anyone who asks
exchange        serves blobs and fetches them
donor           who may give chunks, and how it fails
download        one blob from all donors at once
chunk_queue     which chunks of a download are still to be requested
replaying       computes missed rounds again instead of fetching a state
round_log       what is kept of the last rounds
blob_cache      what a donor serves
upload_slots    how many peers are served at once
"""
