"""Writes TOML with comments; the standard library only reads TOML."""

from __future__ import annotations

import json

from pydantic import BaseModel


def render_toml(model: BaseModel) -> str:
    """``model`` as TOML: its fields, then a table per nested model; descriptions become comments."""
    fields = type(model).model_fields
    tables = {key: table for key in fields if isinstance(table := getattr(model, key), BaseModel)}
    lines = [_line(model, key) for key in fields if key not in tables]
    for key, table in tables.items():
        lines += ["", f"[{key}]", *(_line(table, field) for field in type(table).model_fields)]
    return "\n".join(lines) + "\n"


def _line(table: BaseModel, key: str) -> str:
    # Strings, booleans and numbers look the same in JSON and TOML.
    value = json.dumps(getattr(table, key))
    return f"{key} = {value}".ljust(32) + f"  # {type(table).model_fields[key].description}"
