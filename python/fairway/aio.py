"""Engines under asyncio, uvloop too: one reader on the engine's descriptor while somebody awaits something."""

import asyncio
import collections
import select

_readers = {}  # (loop, descriptor) -> its _Reader, while it is held


class _Reader:
    """Watches one engine for one loop; drains what its users ask for, and nothing else."""

    PAUSE = 0.001  # seconds, when something is readable that nobody takes

    def __init__(self, key, poll):
        self.key = key
        self.loop, self.fd = key
        self.poll = poll
        self.holds = 0
        self.streams = set()

    def hold(self):
        self.holds += 1
        if self.holds == 1:
            self.loop.add_reader(self.fd, self.drain)
        self.loop.call_soon(self.drain)  # what came before it was watched

    def drop(self):
        self.holds -= 1
        if self.holds == 0:
            self.loop.remove_reader(self.fd)
            _readers.pop(self.key, None)

    def drain(self):
        if self.holds == 0:
            return
        moved = self.poll() > 0
        for stream in list(self.streams):
            moved = stream.take() or moved
        if not moved and self.holds and select.select([self.fd], [], [], 0)[0]:
            # Notifications or events that nobody iterates over keep it readable: look again in a while.
            self.loop.remove_reader(self.fd)
            self.loop.call_later(self.PAUSE, self._again)

    def _again(self):
        if self.holds:
            self.loop.add_reader(self.fd, self.drain)
            self.drain()


def _reader(fd, poll):
    key = (asyncio.get_running_loop(), fd)
    if key not in _readers:
        _readers[key] = _Reader(key, poll)
    return _readers[key]


def _engine_closed(fd):
    """Nothing becomes readable any more: who iterates over the engine hears of its end."""
    for reader in [reader for (_, its), reader in _readers.items() if its == fd]:
        for stream in list(reader.streams):
            stream.take()


class _Stream:
    """An asynchronous iterator over what one of the engine's polls gives. Ends when the engine is closed."""

    def __init__(self, engine):
        self.engine = engine
        self.ready = collections.deque()
        self.waiter = None

    def __aiter__(self):
        return self

    async def __anext__(self):
        self.take()
        while not self.ready:
            if self.engine.closed:
                raise StopAsyncIteration
            reader = _reader(self.engine.fileno(), self.engine.poll)
            self.waiter = asyncio.get_running_loop().create_future()
            reader.streams.add(self)
            reader.hold()
            try:
                await self.waiter
            finally:
                reader.streams.discard(self)
                reader.drop()
        return self.ready.popleft()

    def take(self):
        """Moves here what is there, unless some is here already: peers are held back meanwhile."""
        if not self.ready and not self.engine.closed:
            self.ready.extend(self.poll())
        found = bool(self.ready)
        if (found or self.engine.closed) and self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        return found


class Notifications(_Stream):
    """`async for note in engine.notifications()`."""

    def poll(self):
        return self.engine.poll_notifications(64)


class PeerEvents(_Stream):
    """`async for event in engine.peer_events()`."""

    def poll(self):
        return self.engine.poll_peer_events(64)


def _await_transfer(transfer):
    """Transfer.__await__: the loop is told by the engine's descriptor. One that was started before there was a loop is
    waited for by a thread."""
    if transfer.done:
        return transfer.result()
    loop = asyncio.get_running_loop()
    if not transfer.polled:
        return (yield from loop.run_in_executor(None, transfer.wait).__await__())
    told = loop.create_future()
    transfer.add_done_callback(lambda _: told.done() or told.set_result(None))
    reader = _reader(transfer.engine_fd, transfer._poll)
    reader.hold()
    try:
        yield from told.__await__()
    finally:
        reader.drop()
    return transfer.result()


def _await_operation(operation):
    """Operation.__await__: the communicator's thread tells the loop."""
    if not operation.done:
        loop = asyncio.get_running_loop()
        told = loop.create_future()

        def tell(_):
            try:
                loop.call_soon_threadsafe(lambda: told.done() or told.set_result(None))
            except RuntimeError:
                pass  # the loop was closed: nobody waits any more

        operation.add_done_callback(tell)
        yield from told.__await__()
    return operation.result()
