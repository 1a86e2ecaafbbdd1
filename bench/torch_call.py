"""What a collective costs on the host: the time of allreduce, get_future and wait of backends of torch.distributed, in turns.

    PYTHONPATH=build/dev/python python3 bench/torch_call.py --gpus [--ranks 2] [--calls 300] [--rounds 3] [--json]   # beside NCCL
    PYTHONPATH=build/dev/python python3 bench/torch_call.py [--backends fairway,gloo]                               # on CPUs

Times the methods that DistributedDataParallel calls, in microseconds of rank 0: "hot" in a loop of nothing else; "cold" after each time
as much memory was walked through as the CPU's caches hold, as the rest of a training step leaves them. With GPUs no call waits for the
GPU; on CPUs wait() is the collective itself. Medians, and the tenth and ninetieth percentile, of all rounds.
"""

import argparse
import json
import os
import statistics
import sys
import time

from rank_processes import report_of

METHODS = ("allreduce", "get_future", "wait")


def measure(torch, group, options, tensor, calls, walk):
    """{method: seconds of each call}. walk(): what happens before each."""
    took = {method: [] for method in METHODS}

    def timed(method, call, *arguments):
        walk()
        began = time.perf_counter()
        result = call(*arguments)
        took[method].append(time.perf_counter() - began)
        return result

    for number in range(calls):
        work = timed("allreduce", group.allreduce, [tensor], options)
        timed("get_future", work.get_future)
        timed("wait", work.wait)
        if tensor.is_cuda and number % 8 == 7:  # else the stream is full at some time, and a call waits for it
            torch.cuda.synchronize()
    return took


def worker(arguments):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    device = "cpu"
    if arguments.gpus:
        device = f"cuda:{os.environ['RANK']}"
        torch.cuda.set_device(device)
    if arguments.backends == "fairway":
        import fairway.torch
    dist.init_process_group(arguments.backends)
    group, options = dist.distributed_c10d._get_default_group(), dist.AllreduceOptions()
    tensor = torch.zeros(arguments.bytes // 4, device=device)
    memory = torch.zeros(arguments.walk_mib << 20, dtype=torch.uint8)
    ways = {"hot": lambda: None, "cold": lambda: memory.add_(1)}
    report = {}
    for way, walk in ways.items():
        measure(torch, group, options, tensor, 20, walk)
        report[way] = measure(torch, group, options, tensor, arguments.calls, walk)
    if dist.get_rank() == 0:
        where = torch.cuda.get_device_name() if arguments.gpus else "CPUs"
        how = fairway.torch.gpu_path() if arguments.gpus and arguments.backends == "fairway" else ""
        print(json.dumps({"took": report, "where": where, "torch": torch.__version__, "how": how}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def run(backend, arguments):
    """What rank 0 of one measurement reports."""
    given = ["--backends", backend, "--calls", arguments.calls, "--bytes", arguments.bytes, "--walk-mib", arguments.walk_mib]
    return report_of(backend, __file__, given + ["--gpus"] * arguments.gpus, arguments.ranks)


def summary(seconds):
    """{"median", "p10", "p90"} in microseconds."""
    tenths = statistics.quantiles(seconds, n=10)
    return {"median": 1e6 * statistics.median(seconds), "p10": 1e6 * tenths[0], "p90": 1e6 * tenths[-1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backends", help="fairway, gloo, nccl; default: fairway,gloo, on GPUs fairway,nccl")
    parser.add_argument("--gpus", action="store_true", help="a GPU for each rank")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=4096, help="of the tensor")
    parser.add_argument("--calls", type=int, default=300, help="of each method in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--walk-mib", type=int, default=64, help="memory between two cold calls")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.backends = arguments.backends or ("fairway,nccl" if arguments.gpus else "fairway,gloo")
    if arguments.worker:
        return worker(arguments)
    if arguments.calls < 10:
        parser.error("--calls: 10 or more")
    backends = arguments.backends.split(",")
    reports = {backend: [] for backend in backends}
    for number in range(arguments.rounds):
        for backend in backends if number % 2 == 0 else backends[::-1]:
            reports[backend].append(run(backend, arguments))
            print(f"round {number + 1} of {arguments.rounds}: {backend}", file=sys.stderr, flush=True)
    every = lambda backend, way, method: [seconds for report in reports[backend] for seconds in report["took"][way][method]]
    table = {b: {way: {method: summary(every(b, way, method)) for method in METHODS} for way in ("hot", "cold")} for b in backends}
    first = reports[backends[0]][0]
    if arguments.json:
        print(json.dumps({"ranks": arguments.ranks, "bytes": arguments.bytes, "where": first["where"], "torch": first["torch"], "us": table}))
        return None
    print(f"{arguments.ranks} of {first['where']}, PyTorch {first['torch']}, {arguments.bytes} bytes; us at the median (tenth to ninetieth percentile)")
    print(f"{'':14}" + "".join(f"{method:>26}" for method in METHODS))
    for backend in backends:
        if how := reports[backend][0]["how"]:
            print(f"{backend:9}{how}")
        for way in ("hot", "cold"):
            cells = (f"{one['median']:.1f} ({one['p10']:.1f} to {one['p90']:.1f})" for one in table[backend][way].values())
            print(f"{backend:9}{way:5}" + "".join(f"{cell:>26}" for cell in cells))
    return None


if __name__ == "__main__":
    main()
