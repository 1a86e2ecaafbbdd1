#!/usr/bin/env python3
"""Compares PyTorch's symmetric memory between two GPUs, in turns, with `fairway bench --local gpu:0 --remote gpu:1`.

  bench/nccl/symmetric.py [--turns 3] [--json FILE]     needs PyTorch and two GPUs that reach each other
Prints microseconds per transfer, medians over the turns:
  write    Fairway: until the writer's host has the completion. PyTorch: `peer_buffer.copy_(mine)` until the host has
           synchronized the stream. Both use the copy engine.
  depth 8  time per transfer with eight in flight
  told     until the other side's host has seen it, one way. PyTorch: put_signal after the copy, wait_signal there,
           then a stream synchronization; half of a round trip.
Buffers are poisoned before and compared after.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZES = [8, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30]


def median_us(call, least_seconds=0.25, most=2000):
    for _ in range(5):
        call()
    times, end = [], time.perf_counter() + least_seconds
    while len(times) < 10 or (time.perf_counter() < end and len(times) < most):
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)


def rank_main(rank, out):
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    stream = torch.cuda.current_stream()
    rows = []
    for size in SIZES:
        mine = symmetric.empty(size, dtype=torch.uint8, device=f"cuda:{rank}")
        handle = symmetric.rendezvous(mine, dist.group.WORLD)
        theirs = handle.get_buffer(1 - rank, mine.shape, mine.dtype)
        source = (torch.arange(size, device=f"cuda:{rank}") * (rank + 3) // 7 % 251).to(torch.uint8)
        there = (torch.arange(size, device=f"cuda:{rank}") * (1 - rank + 3) // 7 % 251).to(torch.uint8)
        mine.fill_(255)
        torch.cuda.synchronize()
        dist.barrier()

        def write():
            theirs.copy_(source, non_blocking=True)
            stream.synchronize()

        def eight():
            for _ in range(8):
                theirs.copy_(source, non_blocking=True)
            stream.synchronize()

        def there_and_back():
            if rank == 0:
                theirs.copy_(source, non_blocking=True)
                handle.put_signal(1, 0)
                handle.wait_signal(1, 0)
            else:
                handle.wait_signal(0, 0)
                stream.synchronize()
                theirs.copy_(source, non_blocking=True)
                handle.put_signal(0, 0)
            stream.synchronize()

        row = {"bytes": size}
        if rank == 0:
            row["write"] = median_us(write)
            row["depth 8"] = median_us(eight) / 8
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        times = []
        for turn in range(5 + (300 if size <= 16 << 20 else 40)):
            begin = time.perf_counter()
            there_and_back()
            if turn >= 5:
                times.append((time.perf_counter() - begin) * 1e6 / 2)
        row["told"] = statistics.median(times)
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        if not torch.equal(mine, there):
            sys.exit(f"rank {rank}: wrong bytes in a transfer of {size} bytes")
        rows.append(row)
        del theirs, mine, handle
    if rank == 0:
        pathlib.Path(out).write_text(json.dumps(rows))
    dist.destroy_process_group()


def pytorch():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "rows")
        # No multicast: every transfer here has one target.
        env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE="2", NCCL_NVLS_ENABLE="0",
                   TORCH_SYMM_MEM_DISABLE_MULTICAST="1")
        ranks = [subprocess.Popen([sys.executable, __file__, "--rank", str(rank), "--out", out], env=dict(env, RANK=str(rank)))
                 for rank in range(2)]
        try:
            if any([rank.wait(timeout=240) for rank in ranks]):
                sys.exit("PyTorch's side failed: see its output above")
        finally:
            for rank in ranks:
                rank.kill()
        return {row["bytes"]: row for row in json.loads(pathlib.Path(out).read_text())}


def fairway(program, seconds):
    rows = {size: {"bytes": size} for size in SIZES}
    for operations, depth, names in (("write,notify", 1, {"write": "write", "notify": "told"}),
                                     ("write", 8, {"write": "depth 8"})):
        command = [program, "bench", "--local", "gpu:0", "--remote", "gpu:1", "--via", "cuda", "--operation", operations, "--depth", str(depth),
                   "--size", ",".join(map(str, SIZES)), "--seconds", str(seconds), "--json", "-"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=240)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}")
        for row in json.loads(done.stdout)["rows"]:
            rows[row["bytes"]][names[row["operation"]]] = row["p50_us"]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fairway", default=ROOT / "build/release/tools/fairway", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2, help="minimum duration of each of Fairway's rows")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        return rank_main(arguments.rank, arguments.out)
    if not arguments.fairway.exists():
        sys.exit(f"{arguments.fairway} does not exist: run bench/nccl/build")
    turns = []
    for turn in range(arguments.turns):
        turns.append({"fairway": fairway(arguments.fairway, arguments.seconds), "pytorch": pytorch()})
        print(f"turn {turn + 1} of {arguments.turns} done", file=sys.stderr)
    print(f"{'bytes':>10}  " + "  ".join(f"{what:>8} {'PyTorch':>8} {'ratio':>5}" for what in ("write", "depth 8", "told")))
    result = []
    for size in SIZES:
        line = f"{size:>10}  "
        for what in ("write", "depth 8", "told"):
            pair = {side: [turn[side][size][what] for turn in turns if what in turn[side][size]] for side in ("fairway", "pytorch")}
            if not all(pair.values()):
                line += f"{'-':>8} {'-':>8} {'-':>5}  "
                continue
            ours, theirs = (statistics.median(pair[side]) for side in ("fairway", "pytorch"))
            ratio = statistics.median(b / a for a, b in zip(pair["fairway"], pair["pytorch"]))
            line += f"{ours:>8.2f} {theirs:>8.2f} {ratio:>5.2f}  "
            result.append({"bytes": size, "what": what, "fairway_us": ours, "pytorch_us": theirs, "ratio": ratio})
        print(line.rstrip())
    if arguments.json:
        arguments.json.write_text(json.dumps({"format": "fairway-symmetric", "version": 1, "rows": result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
