"""What the processes share: lines of JSON from and to the one that started them."""

import asyncio
import json
import sys


def say(**words):
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


async def serve(handle, *beside):
    """handle(message) is a coroutine for each line; those beside it run meanwhile. Returns when the input ends, raises what any
    of them raises."""
    reader = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    running = {asyncio.create_task(one) for one in beside}
    while True:
        line = asyncio.create_task(reader.readline())
        while not line.done():
            done, _ = await asyncio.wait({line, *running}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {line}:
                running.discard(task)
                task.result()
        if not line.result().endswith(b"\n"):
            break
        running.add(asyncio.create_task(handle(json.loads(line.result()))))
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
