"""Replica states, and how they travel: as blobs, chunk by chunk, each checked by its hash.

store           the own state: steps it, fetches newer ones
sync            looks in each view whether there is a newer state
exchange        serves blobs and fetches them
donor           who may give chunks, and how it fails
download        one blob from all donors at once
chunk_queue     which chunks of a download are still to be asked for
blob_cache      what a donor serves
upload_slots    to how many at once
"""
