"""How much others may see of what this oracle contributes: the options of `join`."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import click

from dupt_swarm.errors import UsageError
from dupt_swarm.privacy.accountant import load_accountant
from dupt_swarm.settings import PrivacySettings

NUMBERS = {
    "noise": "Standard deviation of the noise ÷ the norm to which contributions are clipped.",
    "clip": "That norm ÷ the one that the manifest lets expect.",
    "delta": "The probability with which ε does not hold.",
    "epsilon": "Leave before a contribution that would make ε larger. [default: never]",
}


def private_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--private``, and its numbers; the command hands what it gets to `take_private`."""
    numbers = [
        click.option(f"--private-{name}", type=float, default=None, metavar="NUMBER", help=_help(name))
        for name in NUMBERS
    ]
    switch = click.option(
        "--private",
        is_flag=True,
        help="Differential privacy: clip contributions, add noise, show what they may tell of the corpus. "
        "It costs nearly all that they teach; see docs/decisions/privacy.md.",
    )
    return reduce(lambda inner, option: option(inner), reversed([switch, *numbers]), command)


def take_private(chosen: dict[str, Any]) -> dict[str, Any]:
    """``chosen`` with the setting ``privacy`` in place of these options.

    Raises:
        UsageError: a number without the switch, or one that means nothing; there is no accountant.
    """
    names = {f"private_{name}": name for name in NUMBERS}
    given = {name: chosen[option] for option, name in names.items() if chosen[option] is not None}
    others = {key: value for key, value in chosen.items() if key not in (*names, "private")}
    if given and not chosen["private"]:
        raise UsageError("that is for private contributions: add --private", setting=f"private_{min(given)}")
    if not chosen["private"]:
        return others | {"privacy": None}

    settings = PrivacySettings(**given)
    load_accountant()  # before the swarm is joined
    return others | {"privacy": settings}


def _help(name: str) -> str:
    default = getattr(PrivacySettings, name)
    return NUMBERS[name] + ("" if default is None else f" [default: {default:g}]")
