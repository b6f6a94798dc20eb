"""What an architecture of Hugging Face's `transformers` is beside the manifest's `[model]`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dupt_swarm.errors import ManifestError
from dupt_swarm.learning.architectures.names import Names
from dupt_swarm.manifest import Model

HEAD = "multiple_choice_head.summary"
"""Where the double-heads models keep W_y."""

Config = Mapping[str, Any]


def as_it_is(config: Config) -> dict[str, Any]:
    """For architectures that have written config.json in one way only."""
    return dict(config)


def no_more(_model: Model) -> dict[str, Any]:
    """For architectures whose tables say all."""
    return {}


def never(_model: Model) -> str:
    """For architectures that hold every model with their parts."""
    return ""


@dataclass(frozen=True)
class Architecture:
    """One that we can read and write: its tables serve both directions.

    Attributes:
        name: `model_type` in config.json.
        causal: the class of the language model.
        double_heads: the class with a head for multiple choice besides; empty: there is none.
        names: what our modules are called there.
        keys: fields of `Model` by the keys of config.json.
        parts: fields of `Model` that all its models have alike.
        fixed: keys of config.json of which we have some values only; the first one is what they are if they
            are absent, and what we write.
        end: the token that ends a text where config.json names none; empty: it must.
        dropouts: the keys of config.json that are our dropout; all must be alike.
        tidy: brings what other versions write into the form of these tables.
        more: what config.json says besides, of a model.
        too_odd: why a model with these parts cannot be written all the same, or an empty string.
    """

    name: str
    causal: str
    double_heads: str
    names: Names
    keys: Mapping[str, str]
    parts: Mapping[str, Any]
    fixed: Mapping[str, tuple[Any, ...]]
    end: str = ""
    dropouts: tuple[str, ...] = ()
    tidy: Callable[[Config], dict[str, Any]] = field(default=as_it_is)
    more: Callable[[Model], dict[str, Any]] = field(default=no_more)
    too_odd: Callable[[Model], str] = field(default=never)

    def problem(self, model: Model) -> str:
        """Why the format cannot hold a model of this shape, or an empty string."""
        for name, value in self.parts.items():
            if getattr(model, name) != value:
                return f"the format has {name} = {_toml(value)}, the model {_toml(getattr(model, name))}"
        return self.too_odd(model)

    def settings(self, model: Model) -> dict[str, Any]:
        """What config.json says of the model's shape."""
        return (
            {theirs: getattr(model, ours) for theirs, ours in self.keys.items()}
            | {theirs: values[0] for theirs, values in self.fixed.items()}
            | dict.fromkeys(self.dropouts, model.dropout)
            | self.more(model)
        )

    def shape(self, config: Config) -> dict[str, Any]:
        """The table `[model]` of the manifest, of what config.json says; not checked yet.

        Feed-forward layers are four times as wide as the others where no key of the architecture's says it.

        Raises:
            ManifestError: a key is missing, or has a value for which we have nothing.
        """
        try:
            return self._shape(config)
        except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
            raise ManifestError(f"config.json is malformed ({error}); fetch the model again") from error

    def _shape(self, config: Config) -> dict[str, Any]:
        tidy = self.tidy({key: value for key, value in config.items() if value is not None})
        for key, values in self.fixed.items():
            if tidy.get(key, values[0]) not in values:
                raise ManifestError(
                    f"config.json: {key} = {tidy[key]!r} cannot be represented here; only "
                    f"{' or '.join(map(repr, values))} can; take another model"
                )
        missing = [key for key in self.keys if key not in tidy]
        if missing:
            raise ManifestError(f"config.json lacks {', '.join(missing)}; fetch the model again")
        rates = {tidy.get(key, 0.0) for key in self.dropouts}
        if len(rates) > 1:
            raise ManifestError(
                f"config.json: {', '.join(self.dropouts)} differ, and there is one dropout here; "
                "give them one value there"
            )
        fields = {ours: tidy[theirs] for theirs, ours in self.keys.items()}
        return {
            "hidden_width": 4 * fields["width"],
            **self.parts,
            **fields,
            "dropout": float(rates.pop() if rates else 0.0),
        }


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
