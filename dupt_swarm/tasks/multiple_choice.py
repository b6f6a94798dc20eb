"""Multiple choice: ⟨s⟩ context $ choice ⟨e⟩ for each choice, and softmax over them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from dupt_swarm.tasks.task import SpecialTokens, Task, text_of

CHOICES_MIN = 2


class MultipleChoice(Task):
    """Which of several choices goes with a context; their number may differ from row to row."""

    kind = "multiple-choice"
    columns = ("context", "choices")
    forms = MappingProxyType({"choices": "a list, in JSON"})
    texts_at_once = 2
    answers = ("choice",)
    hub_name = "multiple-choice"
    input = (
        "Input, for each choice: `<|start|>` context `<|delimiter|>` choice `<|extract|>`; "
        "one output each, softmax over the choices."
    )
    example = 'torch.cat([score(state("a context", one)) for one in ("one choice", "another")])'

    def texts(self, row: Mapping[str, object]) -> list[str]:
        """The context, then its choices."""
        return [text_of(row, "context"), *_choices(row["choices"])]

    def sequences(self, texts: list[list[int]], special: SpecialTokens) -> list[list[int]]:
        """The context with each choice."""
        context, *choices = texts
        return [special.around(context, choice) for choice in choices]


def _choices(value: object) -> list[str]:
    if isinstance(value, str):  # in a CSV file
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"`choices` is not a JSON list of texts ({error})") from error
    if not isinstance(value, list) or not all(isinstance(choice, str) for choice in value):
        raise ValueError("`choices` is not a list of texts")
    if len(value) < CHOICES_MIN:
        raise ValueError(f"`choices` holds {len(value)} texts, but at least {CHOICES_MIN} are needed")
    return [text_of({"choices": choice}, "choices") for choice in value]
