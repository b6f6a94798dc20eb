"""What pydantic lacks for the manifest.

explain         what is wrong with a manifest, or differs between two, a sentence each
toml            writes TOML with comments
"""
