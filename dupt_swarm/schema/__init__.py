"""What the manifest needs beyond pydantic.

explain         what is wrong with a manifest, or differs between two: one sentence each
toml            writes TOML with comments
"""
