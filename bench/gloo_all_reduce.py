#!/usr/bin/env python3
"""What examples/12_collectives measures, by Gloo through PyTorch: all-reduce of floats among processes of this host.

The same sizes, the same number of rounds, a barrier before each; the median of rank 0. `make demo` shows both."""

import argparse
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

COUNTS = (2, 1024, 16384, 262144, 4194304)  # floats


def be_rank(rank, ranks, rounds, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=ranks)
    expected = ranks * (ranks + 1) / 2
    for count in COUNTS:
        values = torch.empty(count)
        times = []
        for _ in range(rounds):
            values.fill_(rank + 1)
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(values)
            times.append(1e6 * (time.perf_counter() - start))
            if not bool((values == expected).all()):
                raise SystemExit(f"rank {rank}: a sum of {count} floats is wrong")
        if rank == 0:
            print(f"{4 * count:8} bytes: {statistics.median(times):.0f} us, every sum is right", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(be_rank, (arguments.ranks, arguments.rounds, folder), arguments.ranks)


if __name__ == "__main__":
    main()
