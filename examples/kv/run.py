"""Prefill here, decode there: python3 examples/kv/run.py. Tokens of many processes beside those of one, bit for bit, while
processes are killed and frozen; and a picture of when each layer was computed, sent and there.

--requests N  --chaos SEED (none: -1)  --prefills 4,2  --decodes 2,4 (tensor-parallel ranks of each)  --picture FILE.svg
"""

import argparse
import asyncio
import os
import random
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
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


async def run(options):
    wanted = list(prompts(options.requests))
    began = time.monotonic()
    expected = alone(wanted, options.tokens)
    print(f"one process: {len(wanted)} requests in {time.monotonic() - began:.1f} s", flush=True)
    limit = asyncio.Semaphore(8)

    async def one(serving, request, prompt):
        async with limit:
            return await serving.serve(request, prompt, options.tokens)

    async with Serving(options.prefills, options.decodes) as serving:
        quiet = await serving.serve(-1, wanted[0] + wanted[-1], options.tokens)
        draw(quiet["events"], options.picture)
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
    saved, sent = sum(answer["saved"] for answer in answers), sum(answer["sent_blocks"] for answer in answers)
    print(f"{len(options.prefills)} prefill and {len(options.decodes)} decode processes: {len(answers)} requests in {took:.1f} s")
    print(f"processes killed {counts['killed']}, frozen {counts['frozen']}; prefills computed again {counts['computed again']}, "
          f"requests moved to another decoder {counts['decode died']}")
    print(f"prefix cache: {saved} of {saved + sent} blocks were there already and not sent")
    print(f"timeline of one request: {options.picture}")
    print(f"tokens that differ from one process's: {len(wrong)} of {len(answers)} requests")
    return 1 if wrong or len(answers) != len(wanted) else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--chaos", type=int, default=1)
    parser.add_argument("--prefills", type=ranks, default=[4, 2])
    parser.add_argument("--decodes", type=ranks, default=[2, 4])
    parser.add_argument("--picture", default="kv-timeline.svg")
    given = parser.parse_args()
    if given.requests < 1 or not 1 <= given.tokens <= 64:
        parser.error("--requests is at least 1, --tokens 1 to 64")
    sys.exit(asyncio.run(run(given)))
