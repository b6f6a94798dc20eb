"""Schedules for a simulated swarm, and what must hold whatever happens in one.

    python -m tests.support.schedules --minutes 10          other ones each time
    python -m tests.support.schedules --first 0 --count 1000  those of these seeds

Prints a line of JSON for each schedule in which something does not hold, and one with how many there were.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from itertools import count
from random import Random, SystemRandom

from tests.support.simulated_liars import LIARS
from tests.support.simulated_rounds import Outcome, Schedule, SimPeer, simulate

CONTRADICTION = "the words of honest peers contradict each other"
SECOND_LINK = "two strong links leave a state, and nothing proves a lie"
EVENTS = ("crash", "crash", "start", "leave", "leave", "split", "heal", "mute", "mute", "mute")


def schedule_of(seed: int) -> Schedule:
    """Two to seven voters and up to two newcomers, with whatever may happen to them."""
    random = Random(seed)
    voters, newcomers = random.randint(2, 7), random.randint(0, 2)
    events = []
    for _ in range(random.randint(0, 12)):
        at, what = random.uniform(1, 55), random.choice(EVENTS)
        number = random.randrange(1000)
        events.append((at, number, what))
        if what in ("crash", "leave") and random.random() < 0.7:
            events.append((at + random.uniform(0.5, 25), number, "start"))
    return Schedule(
        seed,
        voters,
        newcomers,
        loss=random.choice([0, 0, 0.1, 0.3, 0.6]),
        slow=random.choice([0.1, 0.3, 2, 5]),
        hush=random.choice([0, 0.2, 0.8]),
        events=tuple(sorted(events)),
    )


def liars_of(seed: int, voters: int) -> dict[int, type[SimPeer]]:
    """Less than half of the voters, by number, and how each lies."""
    random = Random(seed)
    most = (voters - 1) // 2
    numbers = random.sample(range(voters), random.randint(1, most)) if most else []
    return {number: random.choice(LIARS) for number in numbers}


def problems_of(outcome: Outcome, liars: dict[int, type[SimPeer]] | None = None) -> list[str]:
    """What does not hold."""
    found, lying = [], {f"p{number}" for number in liars or {}}
    exposed = outcome.exposed
    if exposed - lying:
        found.append(CONTRADICTION)
    if outcome.second_links and not exposed:
        found.append(SECOND_LINK)
    if not outcome.is_one_branch:
        found.append("peers that can talk are on two branches")
    if any(peer.online for peer in outcome.honest) and outcome.progress < 1:
        found.append("no round ends any more")
    if any(peer.contributed != peer.mine(peer.chain.links) for peer in outcome.honest):
        found.append("an oracle's contributed tokens are not those in the chain")
    return found


def check(seed: int, *, lies: bool) -> list[str]:
    """What does not hold in the schedule of a seed, with liars or without."""
    schedule, liars = schedule_of(seed), None
    if lies:
        schedule = replace(schedule, voters=max(3, schedule.voters), events=schedule.events[::2])
        liars = liars_of(seed, schedule.voters)
    return problems_of(simulate(schedule, liars), liars)


def main() -> int:
    """Run it as a program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--first", type=int, default=SystemRandom().randrange(1 << 40))
    parser.add_argument("--count", type=int, default=None)
    arguments = parser.parse_args()
    ends, done, bad = time.monotonic() + 60 * arguments.minutes, 0, 0
    for seed in count(arguments.first):
        if done == arguments.count or (arguments.count is None and time.monotonic() > ends):
            break
        lies = seed % 4 == 3
        if found := check(seed, lies=lies):
            bad += 1
            print(json.dumps({"seed": seed, "lies": lies, "problems": found}), flush=True)
        done += 1
    print(json.dumps({"first": arguments.first, "schedules": done, "with problems": bad}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
