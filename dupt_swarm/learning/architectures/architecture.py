"""What an architecture of Hugging Face's `transformers` is beside the manifest's `[model]`."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from dupt_swarm.errors import ManifestError
from dupt_swarm.learning.architectures.names import Names
from dupt_swarm.manifest import Model

DECODER: Mapping[str, Any] = {"bidirectional": False, "encoder_layers": 0}
"""Parts of all architectures that are decoders; none has both an encoder and our blocks."""

SHAPE_KEYS: Mapping[str, str] = {
    "vocab_size": "vocabulary_size",
    "max_position_embeddings": "context_length",
    "hidden_size": "width",
    "intermediate_size": "hidden_width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
}
"""What newer architectures call a model's shape."""

NUMBERS = ("head_dim", "n_inner")
"""What else is computed with, if it is there."""
NUMBER_MAX, SHOWN_CHARACTERS = 2**40, 120

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Architecture:
    """One that we can read and write: its tables serve both directions.

    Attributes:
        name: `model_type` in config.json.
        class_name: the class of the model, as it is pre-trained.
        heads: the classes with the head of a task, by the task.
        names: what our modules are called there.
        keys: fields of `Model` by the keys of config.json.
        parts: fields of `Model` that all its models have alike.
        fixed: keys of config.json of which we have some values only; the first one is what they are if they
            are absent, and what we write.
        tidy: brings what other versions write into the form of these tables.
        end: the token that ends a text where config.json names none, which of an encoder says nothing; empty:
            it must.
        dropouts: the keys of config.json that are our dropout; all must be alike.
        choices: keys whose values have other names there: the field of `Model`, and our names by theirs. The
            first one is what it is if the key is absent; of several for one of ours we write the first.
        language_head: how the names of those parameters begin that the classes in ``heads`` lack; empty: they
            lack none.
        loader: the class that finds ``class_name`` in config.json and loads it.
        more: what config.json says besides, of a model; nothing: these tables say all.
        too_odd: why a model with these parts cannot be written all the same, or an empty string.
    """

    name: str
    class_name: str
    heads: Mapping[str, str]
    names: Names
    keys: Mapping[str, str]
    parts: Mapping[str, Any]
    fixed: Mapping[str, tuple[Any, ...]]
    tidy: Callable[[Config], dict[str, Any]]
    end: str = ""
    dropouts: tuple[str, ...] = ()
    choices: Mapping[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)
    language_head: str = ""
    loader: str = "AutoModelForCausalLM"
    more: Callable[[Model], dict[str, Any]] = field(default=lambda _: {})
    too_odd: Callable[[Model], str] = field(default=lambda _: "")

    def problem(self, model: Model) -> str:
        """Why the format cannot hold a model of this shape, or an empty string."""
        for name, value in self.parts.items():
            if getattr(model, name) != value:
                return f"the format has {name} = {_toml(value)}, the model {_toml(getattr(model, name))}"
        for name, named in self.choices.values():
            if getattr(model, name) not in named.values():
                return f"the format has no {name} = {_toml(getattr(model, name))}"
        return self.too_odd(model)

    def settings(self, model: Model) -> dict[str, Any]:
        """What config.json says of the model's shape."""
        return (
            {theirs: getattr(model, ours) for theirs, ours in self.keys.items()}
            | {theirs: values[0] for theirs, values in self.fixed.items()}
            | dict.fromkeys(self.dropouts, model.dropout)
            | {key: _first(named, getattr(model, name)) for key, (name, named) in self.choices.items()}
            | self.more(model)
        )

    def model(self, config: Config) -> Model:
        """The table `[model]` of the manifest, of what config.json says.

        Raises:
            ManifestError: a key is missing, or has a value that is impossible, or for which we have nothing.
        """
        given = {key: value for key, value in config.items() if value is not None}
        for key in (*self.keys, *self.dropouts, *NUMBERS):
            _check_number(key, given.get(key, 0))
        try:
            return Model.model_validate(self._shape(self.tidy(given)))
        except ValidationError as error:
            raise ManifestError(self._explained(error)) from error
        except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
            said = shortened(str(error))
            raise ManifestError(f"config.json is malformed ({said}); fetch the model again") from error

    def _shape(self, tidy: dict[str, Any]) -> dict[str, Any]:
        for key, values in self.fixed.items():
            _check_known(key, tidy.get(key, values[0]), values)
        chosen: dict[str, Any] = {}
        for key, (name, named) in self.choices.items():
            value = tidy.get(key, next(iter(named)))
            _check_known(key, value, tuple(named))
            chosen[name] = named[value]
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
        return {**self.parts, **chosen, **fields, "dropout": float(rates.pop() if rates else 0.0)}

    def _explained(self, error: ValidationError) -> str:
        """The first problem, by the key that the file has."""
        problem = error.errors()[0]
        theirs = {ours: theirs for theirs, ours in self.keys.items()}
        names = [theirs.get(str(part), str(part)) for part in problem["loc"]]
        said = f"{names[0]} = {shortened(problem['input'])}: " if names else ""
        message = problem["msg"].removeprefix("Value error, ")
        return f"config.json: {said}{message}; such a model cannot be represented here, take another one"


def _check_number(key: str, value: object) -> None:
    """Before anything is computed with it: lists and texts can be multiplied too, integers have no end."""
    if not isinstance(value, bool | int | float) or not abs(value) <= NUMBER_MAX:
        raise ManifestError(f"config.json: {key} = {shortened(value)} is no number; fetch the model again")


def _check_known(key: str, value: object, known: tuple[Any, ...]) -> None:
    if value not in known:
        raise ManifestError(
            f"config.json: {key} = {shortened(value)} cannot be represented here; only "
            f"{' or '.join(map(repr, known))} can; take another model"
        )


def _first(named: Mapping[str, str], ours: str) -> str:
    return next(theirs for theirs, name in named.items() if name == ours)


def shortened(value: object) -> str:
    """``value`` for a message, whoever has chosen it and however long it is."""
    text = reprlib.repr(value) if not isinstance(value, int) or abs(value) < NUMBER_MAX else "a huge number"
    return text[:SHOWN_CHARACTERS]


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
