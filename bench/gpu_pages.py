#!/usr/bin/env python3
"""Scattered pages from one process's GPU memory to another's, on the last GPU that there is: time and rate beside torch's
own gather and scatter on one GPU, and beside one copy of as many bytes to that last GPU. Needs torch with a GPU and the
fairway module.

  python3 bench/gpu_pages.py [pages]     the largest count (50000)
"""

import statistics
import subprocess
import sys
import time

import fairway
import numpy
import torch

PAGE_BYTES = 40960
TURNS = 7
OWNER = """
import sys, torch, fairway
memory = torch.zeros(int(sys.argv[1]), dtype=torch.uint8, device=f"cuda:{torch.cuda.device_count() - 1}")
engine = fairway.Engine(name="owner", transports=["shm", "cuda", "tcp"])
region = engine.register(memory, "w")
engine.publish("memory", region)
print(engine.address, flush=True)
sys.stdin.read()
"""


def timed(work):
    torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main():
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 50000
    if most < 1:
        sys.exit(f"{most} pages: give at least 1")
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU")
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(most * PAGE_BYTES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    engine = fairway.Engine(name="writer", transports=["shm", "cuda", "tcp"])
    remote = engine.connect(owner.stdout.readline().strip(), timeout=60).lookup("memory", timeout=60)
    source = torch.randint(0, 255, (most * PAGE_BYTES,), dtype=torch.uint8, device="cuda:0")
    beside = torch.zeros_like(source)
    far = torch.zeros_like(source, device=f"cuda:{torch.cuda.device_count() - 1}")
    order = numpy.random.default_rng(1)
    local, there = order.permutation(most), order.permutation(most)
    print(f"{torch.cuda.get_device_name(0)} x {torch.cuda.device_count()}; medians of {TURNS} turns")
    print(f"{'page':>8} {'count':>8} {'ms':>9} {'GB/s':>8} {'torch ms':>9} {'GB/s':>8} {'copy ms':>9} {'GB/s':>8}")
    for page in (4096, PAGE_BYTES):
        for count in sorted({min(1000, most), min(10000, most), most}):
            rows, to = (flat[: most * page].view(most, page).view(torch.int64) for flat in (source, beside))
            first, second = (torch.tensor(index[:count], device="cuda:0") for index in (local, there))

            def ours():
                engine.write_pages(source, remote, local[:count], there[:count], page).wait(60)

            def torchs():
                to[second] = rows[first]
                torch.cuda.synchronize()

            def copied():
                far[: page * count].copy_(source[: page * count])
                torch.cuda.synchronize(far.device)

            turns = [(timed(ours), timed(torchs), timed(copied)) for _ in range(TURNS)]
            medians = (statistics.median(column) for column in zip(*turns))
            gigabytes = page * count / 1e9
            print(f"{page:8} {count:8} " + " ".join(f"{one * 1e3:9.3f} {gigabytes / one:8.1f}" for one in medians), flush=True)
    engine.close()
    owner.stdin.close()
    owner.wait(60)


if __name__ == "__main__":
    main()
