"""What the gate makes of a method that errs, of refusals, and of what nobody has declared."""

import logging

import pytest
from hivemind.proto import dht_pb2

from dupt_swarm.network.p2p.bandwidth import TokenBucket
from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.p2p.rpc import (
    CallError,
    Message,
    Raw,
    Refusal,
    blamed_on_caller,
    check_elements,
    rpc,
    rpc_stream,
)
from tests.support.noting_bucket import NotingBucket
from tests.support.stranger import call_raw, stranger_beside


class Number(Message):
    number: int


class Erring:
    """A service that does what none of ours does."""

    @rpc(Raw, Raw, longest=(64, 16))
    async def rpc_too_long(self, _request: Raw, _caller: str) -> Raw:
        return Raw(bytes(17))

    @rpc_stream(Raw, longest=(64, 16))
    async def rpc_frames_too_long(self, _request: Raw, _caller: str):
        yield bytes(8)
        yield bytes(17)

    @rpc(Raw, Raw, longest=(64, 16))
    async def rpc_fails(self, _request: Raw, _caller: str) -> Raw:
        raise ValueError("of ours")

    @rpc(Raw, Raw, longest=(64, 16))
    async def rpc_blames(self, request: Raw, _caller: str) -> Raw:
        with blamed_on_caller():
            return Raw(Number.model_validate_json(request.data).pack())


async def test_a_handler_that_errs(stations, caplog) -> None:
    """Its caller hears that it failed, and not why; the log of whoever was called has it."""
    caplog.set_level(logging.ERROR, "dupt_swarm")
    async with stations(2) as (server, client):
        await server.p2p.serve(Erring())
        await connect(client.p2p, [server.address])
        for method in (Erring.rpc_too_long, Erring.rpc_fails):
            with pytest.raises(CallError) as caught:
                await client.p2p.call(server.peer_id, method, Raw())
            assert (caught.value.refusal, caught.value.detail) == (Refusal.FAILED, "failed")
        stream = client.p2p.stream(server.peer_id, Erring.rpc_frames_too_long, Raw())
        assert len(await anext(stream)) == 8
        with pytest.raises(CallError) as caught:
            await anext(stream)
        assert caught.value.refusal is Refusal.FAILED
        assert server.p2p.refused == {}
    assert caplog.text.count("a reply of 1") == 2 and "ValueError: of ours" in caplog.text


async def test_a_request_that_is_found_malformed_later(stations, caplog) -> None:
    """Its caller hears that, and none of the text of libraries, of which a log has none either."""
    caplog.set_level(logging.INFO, "dupt_swarm")
    async with stations(2) as (server, client):
        await server.p2p.serve(Erring())
        await connect(client.p2p, [server.address])
        assert await client.p2p.call(server.peer_id, Erring.rpc_blames, Raw(b'{"number":1}'))
        with pytest.raises(CallError) as caught:
            await client.p2p.call(server.peer_id, Erring.rpc_blames, Raw(b'{"number":"x"}'))
        assert (caught.value.refusal, caught.value.detail) == (Refusal.MALFORMED, "malformed")
        assert server.p2p.refused == {"form": 1}
    assert caplog.text == ""


async def test_protobuf_that_is_none(stations, caplog) -> None:
    """A call of the DHT that cannot be read is refused and counted, and writes nothing into the log."""
    caplog.set_level(logging.INFO, "dupt_swarm")
    async with stations(1) as [server], stranger_beside(server.address) as stranger:

        async def find(_request: object, _context: object) -> dht_pb2.FindResponse:
            raise AssertionError("it was read")

        await server.p2p.add_protobuf_handler("DHTProtocol.rpc_find", find, dht_pb2.FindRequest)
        with pytest.raises(Exception, match=r"CallError\('malformed'\)"):
            await call_raw(stranger, server.address, "DHTProtocol.rpc_find", b"\xff" * 64)
        assert server.p2p.refused == {"form": 1}
    assert caplog.text == ""


async def test_a_method_that_nobody_has_declared(stations) -> None:
    """It can neither be served nor called, so none passes the gate unmeasured."""
    async with stations(1) as [server]:
        with pytest.raises(LookupError, match="declare this method"):
            await server.p2p.add_protobuf_handler("Erring.rpc_new", print, dht_pb2.PingRequest)
        with pytest.raises(LookupError, match="declare this method"):
            await server.p2p.call_protobuf_handler(
                server.p2p.peer_id, "Erring.rpc_new", dht_pb2.PingRequest(), dht_pb2.PingResponse
            )


async def test_mates_come_first(stations) -> None:
    """Peers that are ending a round with this one get what they ask for before others do."""
    async with stations(2) as (server, client):
        await server.p2p.serve(Erring())
        await connect(client.p2p, [server.address])
        server.p2p.bandwidth.upload = upload = NotingBucket(1e9)
        request = Raw(b'{"number":1}')
        for mates in ({"somebody"}, {client.peer_id}):
            server.p2p.limits.mates = mates
            await client.p2p.call(server.peer_id, Erring.rpc_blames, request)
        assert upload.passed == [(13, False), (13, True)]


async def test_refusals_are_paid_for(stations) -> None:
    """They count as sent, and while no upload is left nothing is said, which is `LATER` to who asked."""
    async with stations(1) as [server], stranger_beside(server.address) as stranger:
        await server.p2p.serve(Erring())
        method = Erring.rpc_blames.name
        answer = await call_raw(stranger, server.address, method, b"x")
        assert answer == bytes([Refusal.MALFORMED]) + b"malformed"
        assert server.p2p.counts.sent == len(answer)
        server.p2p.bandwidth.upload = TokenBucket(1.0, clock=lambda: 0.0)
        assert await call_raw(stranger, server.address, method, b"x") == answer
        assert await call_raw(stranger, server.address, method, b"x") == b""
        assert server.p2p.counts.sent == 2 * len(answer)
        assert CallError.read(b"").refusal is Refusal.LATER


@pytest.mark.parametrize("mark", [b",", b"[", b"{", b":"])
def test_json_of_too_many_elements(mark: bytes) -> None:
    """It is refused before anything of it is built."""
    check_elements(mark * 9, 9)
    with pytest.raises(ValueError, match="10 elements"):
        check_elements(mark * 10, 9)


def test_what_others_say_is_one_line() -> None:
    """A log has it as one, and no terminal obeys it."""
    said = CallError.read(bytes([Refusal.LATER]) + b"a\n\x1b[2Jb").detail
    assert said.isprintable() and said.startswith("a") and said.endswith("b")
