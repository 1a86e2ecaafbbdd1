"""Processes that are started, spoken to and started again: prefill, decode and pool workers, and Redis."""

import asyncio
import json
import os
import pathlib
import shutil
import signal
import socket
import sys

HERE = pathlib.Path(__file__).resolve().parent


class Died(Exception):
    """The process that should have answered has ended."""


class Worker:
    """A process that answers in lines of JSON, told apart by the first of KEYS that they have."""

    KEYS = ("request", "attempt", "dropped", "ready", "connected")
    START_SECONDS = 60

    def __init__(self, kind, name, *arguments):
        self.kind, self.name, self.arguments = kind, name, arguments
        self.waiting = {}  # (key, value) -> future
        self.connected = set()  # what it said that it is connected to
        self.gone = asyncio.Event()
        self.process = self.descriptor = self.reader = None

    async def start(self):
        environment = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, HERE / f"{self.kind}.py", self.name, *map(str, self.arguments),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 20, env=environment)
        self._hold()
        self.reader = asyncio.create_task(self._read())
        try:
            self.about = await asyncio.wait_for(self.expect("ready", True), self.START_SECONDS)
        except asyncio.TimeoutError:
            self.kill()
            raise Died(f"{self.name} did not start within {self.START_SECONDS} s") from None

    def _hold(self):
        try:
            self.descriptor = os.pidfd_open(self.process.pid)
        except ProcessLookupError:
            pass  # it has ended already, and asyncio has collected it

    async def _read(self):
        try:
            while (line := await self.process.stdout.readline()).endswith(b"\n"):  # a killed process may leave half a line
                message = json.loads(line)
                key = next(key for key in self.KEYS if key in message)
                if key == "connected":
                    self.connected.add(message[key])
                future = self.waiting.pop((key, message[key]), None)
                if future and not future.done():
                    future.set_result(message)
        finally:
            self.kill()  # one whose output has ended serves nobody
            await self._ended()
            for future in self.waiting.values():
                if not future.done():
                    future.set_exception(Died(self.name))
            self.waiting.clear()

    def expect(self, key, value):
        """A future of the message that has this; it raises Died when the process ends before."""
        future = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # one that nobody asks for any more is fine
        if self.gone.is_set():
            future.set_exception(Died(self.name))
        else:
            self.waiting[key, value] = future
        return future

    def say(self, **message):
        if not self.gone.is_set() and not self.process.stdin.is_closing():
            self.process.stdin.write((json.dumps(message) + "\n").encode())

    def signal(self, number):
        """By its descriptor: a number of a process may be another one's by now."""
        if self.descriptor is not None and not self.gone.is_set():
            try:
                signal.pidfd_send_signal(self.descriptor, number)
            except ProcessLookupError:
                pass  # it has just ended

    def kill(self):
        self.signal(signal.SIGKILL)

    async def _ended(self):
        await self.process.wait()
        self.gone.set()
        if self.descriptor is not None:
            os.close(self.descriptor)

    async def stop(self):
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.gone.wait(), 5)
        except asyncio.TimeoutError:
            self.kill()
            await self.gone.wait()


class Redis(Worker):
    """A Redis server of our own that keeps nothing on disk. Comes back at the same port, empty."""

    def __init__(self, port):
        super().__init__("redis", "redis")
        self.port = port

    @staticmethod
    def installed():
        return shutil.which("redis-server")

    async def start(self):
        self.process = await asyncio.create_subprocess_exec(
            self.installed(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL)
        self._hold()
        self.reader = asyncio.create_task(self._ended())
        for _ in range(self.START_SECONDS * 50):
            if self.gone.is_set():
                raise Died("redis-server did not start")
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return
            except OSError:
                await asyncio.sleep(0.02)
        self.kill()
        raise Died("redis-server does not answer")

    async def stop(self):
        self.kill()
        await self.gone.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
