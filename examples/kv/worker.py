"""What prefill and decode processes share: lines of JSON from and to the one that started them."""

import asyncio
import json
import sys


def say(**words):
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


async def serve(handle):
    """handle(message) is a coroutine for each line; ends with the input. What it raises ends the process, loudly."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks = set()
    while line := await reader.readline():
        task = asyncio.create_task(handle(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(lambda done: (tasks.discard(done), done.cancelled() or done.exception() and loop.stop()))
