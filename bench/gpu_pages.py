#!/usr/bin/env python3
"""Scattered pages from one process's GPU memory to another's, on the last GPU that there is: microseconds of the call and
of the wait behind it, from a tensor (the copy follows torch's stream), the same right after it (the caches and the
engine's thread are still warm), and from a registered region; beside them one copy of as many bytes to that last GPU and
torch's own gather and scatter on one GPU. Needs torch with a GPU and the fairway module.

  python3 bench/gpu_pages.py [pages [program]]   the largest count (50000); with the program of bench/nccl/pages.cu also
                                                 from C++
  python3 bench/gpu_pages.py --host [program]    what a request costs beside moving its bytes, without GPUs: small pages of
                                                 host memory over shm, right after the last request and after a pause; with
                                                 the program of bench/pages_cost.cc also from C++
"""

import statistics
import subprocess
import sys
import time

import fairway
import numpy

if "--host" not in sys.argv:
    import torch

PAGE_BYTES = 40960
TURNS = 7
HOST_PAGES, HOST_PAGE_BYTES, HOST_TURNS, PAUSES_US = 100000, (16, 160), 25, (0, 5000)
OWNER = """
import sys, torch, fairway
memory = torch.zeros(int(sys.argv[1]), dtype=torch.uint8, device=f"cuda:{torch.cuda.device_count() - 1}")
engine = fairway.Engine(name="owner", transports=["shm", "cuda", "tcp"])
region = engine.register(memory, "w")
engine.publish("memory", region)
print(engine.address, flush=True)
sys.stdin.read()
"""
HOST_OWNER = """
import sys, fairway
engine = fairway.Engine(name="owner", transports=["shm", "tcp"])
memory = engine.allocate(int(sys.argv[1]), "w")
engine.publish("memory", memory)
print(engine.address, flush=True)
sys.stdin.read()
"""


def start_owner(program, size_bytes):
    owner = subprocess.Popen([sys.executable, "-c", program, str(size_bytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return owner, owner.stdout.readline().strip()


def on_host(program):
    """Microseconds of the call and of the wait behind it."""
    owner, address = start_owner(HOST_OWNER, HOST_PAGES * max(HOST_PAGE_BYTES))
    engine = fairway.Engine(name="writer", transports=["shm", "tcp"])
    remote = engine.connect(address, timeout=60).lookup("memory", timeout=60)
    source = numpy.ones(HOST_PAGES * max(HOST_PAGE_BYTES), numpy.uint8)
    order = numpy.random.default_rng(1)
    local, there = order.permutation(HOST_PAGES), order.permutation(HOST_PAGES)
    print(f"medians of {HOST_TURNS} turns, us")
    print(f"{'pause':>6} {'page':>6} {'count':>8} {'call':>9} {'wait':>9} {'C++ call':>9} {'wait':>9}")
    for pause in PAUSES_US:
        inside = from_cpp([program, str(HOST_PAGES), str(pause)]) if program else {}
        for page in HOST_PAGE_BYTES:
            for count in (1000, 10000, HOST_PAGES):
                calls, waits = [], []
                for _ in range(HOST_TURNS):
                    if pause:
                        time.sleep(pause / 1e6)
                    called, waited = call_and_wait(lambda: engine.write_pages(source, remote, local[:count], there[:count], page))
                    waits.append(waited)
                    calls.append(called)
                took = [f"{statistics.median(column):.1f}" for column in (calls, waits)] + inside.get((page, count), [])
                print(f"{pause:6} {page:6} {count:8} " + " ".join(f"{one:>9}" for one in took), flush=True)
    engine.close()
    owner.stdin.close()
    owner.wait(60)


def timed(work):
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e6


def call_and_wait(start):
    """Microseconds of the call and of the wait behind it."""
    began = time.perf_counter()
    transfer = start()
    called = time.perf_counter()
    transfer.wait(60)
    return (called - began) * 1e6, (time.perf_counter() - called) * 1e6


def output_of(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"gpu_pages.py: {command[0]}: {error.strerror}; give the program that bench/pages_cost.cc or bench/nccl/pages.cu is built to")
    if done.returncode != 0 or not done.stdout:
        sys.exit(f"gpu_pages.py: {' '.join(command)} ended with {done.returncode} and without figures: {done.stderr.strip()}")
    return done.stdout


def from_cpp(command):
    """The same from C++: call and wait, as text, by page size and count."""
    return {(int(page), int(count)): took for page, count, *took in map(str.split, output_of(command).splitlines())}


def main():
    if sys.argv[1:2] == ["--host"]:
        return on_host(sys.argv[2] if len(sys.argv) > 2 else None)
    count = sys.argv[1] if len(sys.argv) > 1 else "50000"
    if not count.isdecimal() or int(count) < 1:
        sys.exit(f"gpu_pages.py: {count}: give a number of pages, at least 1, or --host [program]")
    most = int(count)
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU")
    inside = from_cpp([sys.argv[2], str(most), "threads"]) if len(sys.argv) > 2 else {}
    owner, address = start_owner(OWNER, most * PAGE_BYTES)
    engine = fairway.Engine(name="writer", transports=["shm", "cuda", "tcp"])
    remote = engine.connect(address, timeout=60).lookup("memory", timeout=60)
    source = torch.randint(0, 255, (most * PAGE_BYTES,), dtype=torch.uint8, device="cuda:0")
    region = engine.register(source)
    beside = torch.zeros_like(source)
    far = torch.zeros_like(source, device=f"cuda:{torch.cuda.device_count() - 1}")
    order = numpy.random.default_rng(1)
    local, there = order.permutation(most), order.permutation(most)
    print(f"{torch.cuda.get_device_name(0)} x {torch.cuda.device_count()}; medians of {TURNS} turns, us, and GB/s of call and wait")
    parts = ("tensor", "again", "region") + (("C++",) if inside else ())
    print(f"{'page':>6} {'count':>7} " + " ".join(f"{part + ' call':>12} {'wait':>9} {'GB/s':>5}" for part in parts)
          + f" {'copy':>9} {'GB/s':>5} {'torch':>9} {'GB/s':>5}")
    for page in (4096, PAGE_BYTES):
        for count in sorted({min(1000, most), min(10000, most), most}):
            rows, to = (flat[: most * page].view(most, page).view(torch.int64) for flat in (source, beside))
            first, second = (torch.tensor(index[:count], device="cuda:0") for index in (local, there))

            def ours(of):
                return call_and_wait(lambda: engine.write_pages(of, remote, local[:count], there[:count], page))

            def torchs():
                to[second] = rows[first]
                torch.cuda.synchronize()

            def copied():
                far[: page * count].copy_(source[: page * count])
                torch.cuda.synchronize(far.device)

            turns = []
            for _ in range(TURNS):
                torch.cuda.synchronize()
                turns.append([*ours(source), *ours(source), *ours(region), timed(copied), timed(torchs)])
            medians = [statistics.median(column) for column in zip(*turns)]
            split = list(zip(medians[0:6:2], medians[1:6:2])) + ([tuple(map(float, inside[page, count]))] if inside else [])
            kilobytes = page * count / 1e3
            print(f"{page:6} {count:7} "
                  + " ".join(f"{call:12.1f} {wait:9.1f} {kilobytes / (call + wait):5.0f}" for call, wait in split)
                  + "".join(f" {took:9.1f} {kilobytes / took:5.0f}" for took in medians[6:]), flush=True)
    engine.close()
    owner.stdin.close()
    owner.wait(60)


if __name__ == "__main__":
    main()
