"""What a group of tasks leaves behind when it is cancelled."""

import asyncio
import weakref

import pytest

from dupt_swarm.network.task_group import TaskGroup


class Large:
    """Something that should not stay."""


async def forever(_: Large) -> None:
    await asyncio.Event().wait()


async def at_work(held: Large, *, waits: bool) -> None:
    """A group that is cancelled in its body, or as it waits for its tasks."""
    async with TaskGroup() as tasks:
        tasks.create_task(forever(held))
        if waits:
            await forever(held)


@pytest.mark.usefixtures("no_garbage_collected")
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("within", [True, False])
async def test_nothing_stays_of_a_cancelled_group(waits: bool, within: bool) -> None:
    """What it had is gone as soon as nobody refers to it, also where it was a task of another group."""

    async def cancel(held: Large) -> None:
        work = asyncio.create_task(at_work(held, waits=waits))
        await asyncio.sleep(0.01)
        work.cancel()
        await asyncio.wait([work])
        assert work.cancelled()

    async def cancel_within(held: Large) -> None:
        async with TaskGroup() as tasks:
            work = tasks.create_task(at_work(held, waits=waits))
            await asyncio.sleep(0.01)
            work.cancel()

    held = Large()
    gone = weakref.ref(held)
    await (cancel_within if within else cancel)(held)
    del held
    await asyncio.sleep(0.01)
    assert gone() is None


async def test_it_fails_as_any_group_does() -> None:
    """An error of a task ends the others, and comes with where it came from."""

    async def fail() -> None:
        raise ValueError("no")

    other = None
    with pytest.raises(ExceptionGroup) as caught:
        async with TaskGroup() as tasks:
            other = tasks.create_task(asyncio.sleep(60))
            tasks.create_task(fail())
    [error] = caught.value.exceptions
    assert isinstance(error, ValueError) and error.__traceback__ is not None
    assert other is not None and other.cancelled()
