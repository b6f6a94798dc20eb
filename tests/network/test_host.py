import asyncio

from dupt_swarm.network.host import background, end


async def test_background_work_ends_with_the_block() -> None:
    """The work runs while the block lasts, and is cancelled when it is left."""
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("ended")

    async with background(work()):
        await asyncio.sleep(0)
        assert ended == []
    assert ended == ["ended"]


async def test_a_failure_is_in_the_log_and_ends_nothing_else(caplog) -> None:
    """Work that fails is reported with its traceback; the block goes on."""

    async def work() -> None:
        raise ZeroDivisionError("of the work")

    async with background(work()):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert "ZeroDivisionError: of the work" in caplog.text


async def test_work_that_swallows_its_cancellation_holds_nothing_up(monkeypatch) -> None:
    """A library that ignores a cancellation does not keep the rest from being closed."""
    monkeypatch.setattr("dupt_swarm.network.host.CANCEL_SECONDS", 0.05)
    release = asyncio.Event()

    async def work() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with background(work()):
        await asyncio.sleep(0)
    assert not release.is_set()
    release.set()


async def test_what_does_not_end_is_left_behind(monkeypatch, caplog) -> None:
    """A shutdown that hangs or fails is reported, and what comes after it has its turn."""
    monkeypatch.setattr("dupt_swarm.network.host.SHUTDOWN_SECONDS", 0.05)

    async def hang() -> None:
        await asyncio.Event().wait()

    async def fail() -> None:
        raise OSError("gone")

    await end("one", hang)
    await end("another", fail)
    assert caplog.messages == [
        "one did not end well: TimeoutError()",
        "another did not end well: OSError('gone')",
    ]
