"""Prefill here, decode there: python3 examples/kv/run.py. Tokens of many processes beside those of one, bit for bit, while
processes are killed and frozen; and a picture of when each layer was computed, sent and there.

--requests N  --chaos SEED (none: -1)  --prefills 4,2  --decodes 2,4 (tensor-parallel ranks of each)  --picture FILE.svg
--no-pool (of prefixes)  --seconds N (all requests end within; 300)
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import find_fairway  # noqa: E402

if __name__ == "__main__" and (missing := find_fairway.find()):
    sys.exit(f"run.py: {missing}")
try:
    import numpy  # noqa: E402, F401
except ImportError as error:
    sys.exit(f"run.py: the model of this example needs NumPy ({error}): install it for {sys.executable}")
from model import MOST_TOKENS, Model  # noqa: E402
from pages import Cache, Pages  # noqa: E402
from serving import Serving  # noqa: E402
from timeline import draw  # noqa: E402


def prompts(count, seed=1):
    """Some start alike, as conversations do."""
    chance = random.Random(seed)
    starts = [[chance.randrange(256) for _ in range(48)] for _ in range(4)]
    for _ in range(count):
        start = chance.choice(starts) if chance.random() < 0.7 else []
        yield start + [chance.randrange(256) for _ in range(chance.randint(8, 60))]


def alone(wanted, count):
    model, pages = Model(), Pages(MOST_TOKENS // 16)
    return [model.generate(prompt, count, Cache(pages, range(MOST_TOKENS // 16))) for prompt in wanted]


def ranks(text):
    found = [int(word) for word in text.split(",")]
    if not found or any(one not in (1, 2, 4) for one in found):
        raise argparse.ArgumentTypeError("ranks are 1, 2 or 4 for each process, as in 4,2")
    return found


async def first_token(serving, layerwise, chance, tokens=448):
    """Seconds from handing in a prompt that nobody has seen until the decoder has all of its pages and the first token."""
    began = time.monotonic()
    answer = await serving.serve(f"first token {began}", [chance.randrange(256) for _ in range(tokens)], 1, layerwise)
    return answer["started"] - began


async def compare_first_tokens(serving, times=6, warm=4):
    """In turns, each way on each of the processes, so that what else the machine does falls on both."""
    chance, took = random.Random(5), {True: [], False: []}
    for number in range(2 * warm):  # both ways: connections, page faults and caches of the processes
        await first_token(serving, number % 2 == 0, chance)
    for number in range(times):
        for layerwise in (number % 2 == 0, number % 2 == 1):
            took[layerwise].append(await first_token(serving, layerwise, chance))
    layers, at_the_end = (statistics.median(took[layerwise]) * 1e3 for layerwise in (True, False))
    print(f"time to first token of 448-token prompts, from handing one in until the decoder has its pages and the token, medians of {times} "
          f"each after {warm} to warm up: {layers:.1f} ms layer by layer, {at_the_end:.1f} ms when all layers are sent at the end", flush=True)


async def run(options):
    wanted = list(prompts(options.requests))
    began = time.monotonic()
    expected = alone(wanted, options.tokens)
    print(f"one process: {len(wanted)} requests in {time.monotonic() - began:.1f} s", flush=True)
    limit = asyncio.Semaphore(8)

    async def one(serving, request, prompt):
        async with limit:
            return await serving.serve(request, prompt, options.tokens)

    async with Serving(options.prefills, options.decodes, options.pool) as serving:
        quiet = await serving.serve(-1, wanted[0] + wanted[-1], options.tokens)
        draw(quiet["events"], options.picture)
        await compare_first_tokens(serving)
        began = time.monotonic()
        enough = asyncio.Event()
        chaos = asyncio.create_task(serving.chaos(options.chaos, enough)) if options.chaos >= 0 else None
        answers = await asyncio.gather(*(one(serving, number, prompt) for number, prompt in enumerate(wanted)))
        took = time.monotonic() - began
        if chaos:
            enough.set()
            await chaos
        counts = serving.counts
    wrong = [number for number, answer in enumerate(answers) if answer["tokens"] != expected[number]]
    saved, pooled, sent, skipped = (sum(answer[key] for answer in answers) for key in ("saved", "pooled", "sent_blocks", "skipped"))
    print(f"{len(options.prefills)} prefill and {len(options.decodes)} decode processes: {len(answers)} requests in {took:.1f} s")
    killed = ", ".join(f"{counts[key]} {key.split()[1]}" for key in sorted(counts) if key.startswith("killed "))
    print(f"processes killed {counts['killed']}{f' ({killed})' if killed else ''}, frozen {counts['frozen']}; "
          f"prefills computed again {counts['computed again']}, requests moved to another decoder {counts['decode died']}")
    print(f"prefixes: of {saved + pooled + sent} blocks decoders had {saved}, the pool {pooled}; {sent} were sent. "
          f"Prefills computed {skipped} fewer, which the pool had")
    print(f"timeline of one request: {options.picture}")
    print(f"tokens that differ from one process's: {len(wrong)} of {len(answers)} requests")
    return 1 if wrong or len(answers) != len(wanted) else 0


async def run_within(options):
    try:
        return await asyncio.wait_for(run(options), options.seconds)
    except asyncio.TimeoutError:
        print(f"run.py: the requests did not end within --seconds {options.seconds:g}", file=sys.stderr)
        return 1


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--chaos", type=int, default=1)
    parser.add_argument("--prefills", type=ranks, default=[4, 2])
    parser.add_argument("--decodes", type=ranks, default=[2, 4])
    parser.add_argument("--picture", default="kv-timeline.svg")
    parser.add_argument("--no-pool", dest="pool", action="store_false")
    parser.add_argument("--seconds", type=float, default=300)
    given = parser.parse_args(arguments)
    if given.requests < 1 or not 1 <= given.tokens <= 64:
        parser.error("--requests is at least 1, --tokens 1 to 64")
    if not given.seconds > 0:
        parser.error("--seconds is more than 0")
    return given


if __name__ == "__main__":
    sys.exit(asyncio.run(run_within(parse(sys.argv[1:]))))
