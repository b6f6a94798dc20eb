"""What every table of the manifest is."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator


class Table(BaseModel):
    """A table of the manifest: no unknown keys, no type conversions, no changes afterwards."""

    # Defaults are validated too: 5 must become 5.0, or equal manifests would hash differently.
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True
    )

    @field_validator("*")
    @classmethod
    def _one_zero(cls, value: Any) -> Any:
        # -0.0 equals 0.0, but would hash differently.
        return 0.0 if isinstance(value, float) and value == 0 else value
