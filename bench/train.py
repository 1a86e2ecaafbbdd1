"""A small language model trained by DistributedDataParallel on CPUs or GPUs, over backends of torch.distributed in turns.

    PYTHONPATH=build/dev/python python3 bench/train.py [--backends fairway,gloo] [--ranks 4] [--steps 40] [--rounds 5] [--json]
    PYTHONPATH=build/dev/python python3 bench/train.py --gpus [--ranks 2] [--width 512] [--layers 6]   # beside NCCL, a GPU each
    PYTHONPATH=build/dev/python python3 bench/train.py --kill 2       # rank 2 is killed half-way; the rest go on by shrink

The text is this repository's documents, a token a byte. Every rank has one thread. Prints steps per second of each backend, the ratio
of each round's pair, and the losses, which are the same for all backends but for the order of floating-point sums. The backend
"staged" is fairway with GPU tensors copied through the host.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import sys
import time

from rank_processes import report_of

LENGTH, BATCH, RATE = 64, 8, 0.02  # a larger rate makes a difference of rounding grow with each step


def model(torch, width, layers):
    class Bytes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = torch.nn.Embedding(256, width), torch.nn.Embedding(LENGTH, width)
            layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            self.layers = torch.nn.TransformerEncoder(layer, layers, norm=torch.nn.LayerNorm(width))  # or the loss of a wide one is not finite
            self.out = torch.nn.Linear(width, 256)
            self.register_buffer("mask", torch.triu(torch.full((LENGTH, LENGTH), float("-inf")), 1))

        def forward(self, text):
            seen = self.tokens(text) + self.places(torch.arange(LENGTH, device=text.device))
            return self.out(self.layers(seen, self.mask))

    torch.manual_seed(1)
    return Bytes()


def text(torch):
    docs = pathlib.Path(__file__).resolve().parent.parent / "docs"
    return torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in sorted(docs.glob("*.md")))), dtype=torch.uint8).long()


def step(torch, trained, optimizer, data, number, rank, size):
    places = torch.Generator().manual_seed(number)
    starts = torch.randint(0, len(data) - LENGTH - 1, (BATCH * size,), generator=places)[rank::size]
    batch = torch.stack([data[start : start + LENGTH + 1] for start in starts]).to(next(trained.parameters()).device)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(trained(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    return loss.detach()


def where_time_goes(torch, one_step, steps=4, most=12):
    """Milliseconds a step of what takes the most, by torch.profiler: [[where, ms, times, what]], "GPU" or "CPU". Every rank makes the steps."""
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
    with profile(activities=kinds) as seen:
        for i in range(steps):
            one_step(i)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    rows, out = seen.key_averages(), []
    for where, attributes in (("GPU", ("self_device_time_total", "self_cuda_time_total")), ("CPU", ("self_cpu_time_total",))):
        took = lambda row: next(getattr(row, name) for name in attributes if hasattr(row, name))  # microseconds; PyTorch 1.13 has the latter
        out += [[where, took(row) / 1e3 / steps, row.count / steps, row.key[:90]] for row in sorted(rows, key=took)[::-1][:most] if took(row) > 0]
    return out


def worker(arguments):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if arguments.gpus:
        torch.cuda.set_device(int(os.environ["RANK"]))
    if arguments.backends == "staged":
        os.environ["FAIRWAY_TORCH_STAGE"] = "1"
    if arguments.backends in ("fairway", "staged"):
        import fairway.torch
    dist.init_process_group("fairway" if arguments.backends == "staged" else arguments.backends)
    rank, wrap = dist.get_rank(), torch.nn.parallel.DistributedDataParallel
    made = model(torch, arguments.width, arguments.layers)
    data, trained = text(torch), wrap(made.cuda() if arguments.gpus else made)
    optimizer = torch.optim.SGD(trained.parameters(), lr=RATE)
    losses, number, recovery = [], 0, None
    for _ in range(3 if arguments.kill is None else 0):
        step(torch, trained, optimizer, data, 10**6, rank, dist.get_world_size())
    if arguments.gpus:
        torch.cuda.synchronize()
    began = time.perf_counter()
    while number < arguments.steps:
        if rank == arguments.kill and number == arguments.steps // 2 and recovery is None:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            loss = step(torch, trained, optimizer, data, number, dist.get_rank(), dist.get_world_size())
            dist.all_reduce(loss)
        except Exception as error:
            if arguments.kill is None or recovery is not None:
                raise
            failed = time.perf_counter()
            why = fairway.torch.communicator().failure
            fairway.torch.shrink()
            trained = wrap(trained.module)  # takes the parameters of the new rank 0
            optimizer = torch.optim.SGD(trained.parameters(), lr=RATE)
            recovery = {"seconds": time.perf_counter() - failed, "rank": why.rank, "operation": why.operation, "said": str(error)[:200]}
            continue
        losses.append(loss / dist.get_world_size())
        number += 1
    if arguments.gpus:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    profile = where_time_goes(torch, lambda i: step(torch, trained, optimizer, data, i, dist.get_rank(), dist.get_world_size())) if arguments.profile else []
    if dist.get_rank() == 0:
        how = fairway.torch.gpu_path() if arguments.gpus and arguments.backends in ("fairway", "staged") else ""
        losses = [loss.item() for loss in losses]
        print(json.dumps({"rate": arguments.steps / seconds, "losses": losses, "how": how, "ranks": dist.get_world_size(), "recovery": recovery, "profile": profile}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def run(backend, arguments):
    """One training; what its rank 0 reports."""
    given = ["--backends", backend, "--steps", arguments.steps, "--width", arguments.width, "--layers", arguments.layers]
    given += ["--gpus"] * arguments.gpus + ["--profile"] * arguments.profile
    if arguments.kill is not None:
        given += ["--kill", arguments.kill]
    return report_of(backend, __file__, given, arguments.ranks, lambda rank: -signal.SIGKILL if rank == arguments.kill else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backends", help="fairway, staged, gloo, nccl; default: fairway,gloo, on GPUs fairway,nccl")
    parser.add_argument("--gpus", action="store_true", help="a GPU for each rank")
    parser.add_argument("--ranks", type=int, help="default: 4, on GPUs 2")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kill", type=int)
    parser.add_argument("--profile", action="store_true", help="where rank 0's time goes in 4 more steps of each backend")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.backends = arguments.backends or ("fairway,nccl" if arguments.gpus else "fairway,gloo")
    arguments.ranks = arguments.ranks or (2 if arguments.gpus else 4)
    if arguments.worker:
        return worker(arguments)
    if arguments.kill is not None:
        arguments.backends, arguments.rounds = "fairway", 1
        if not 0 <= arguments.kill < arguments.ranks:
            parser.error(f"--kill {arguments.kill}: there are ranks 0 to {arguments.ranks - 1}")
    backends = arguments.backends.split(",")
    reports = {backend: [] for backend in backends}
    for number in range(arguments.rounds):
        for backend in backends if number % 2 == 0 else backends[::-1]:
            reports[backend].append(run(backend, arguments))
            print(f"round {number + 1} of {arguments.rounds}: {backend} {reports[backend][-1]['rate']:.2f} steps/s", file=sys.stderr, flush=True)
    if arguments.json:
        return print(json.dumps(reports))
    for backend in backends:
        rates = [report["rate"] for report in reports[backend]]
        losses = reports[backend][0]["losses"]
        if how := reports[backend][0]["how"]:
            print(f"{backend:8} {how}")
        print(f"{backend:8} {statistics.median(rates):7.2f} steps/s ({min(rates):.2f} to {max(rates):.2f}), loss {losses[0]:.4f} to {losses[-1]:.4f}")
        for where, ms, times, what in reports[backend][-1]["profile"]:
            print(f"         {where} {ms:8.2f} ms a step, {times:6.1f} times  {what}")
        if recovery := reports[backend][0]["recovery"]:
            print(f"         rank {recovery['rank']} was lost; {reports[backend][0]['ranks']} ranks went on after {recovery['seconds']:.2f} s")
    for backend in backends[1:]:
        pairs = [a["rate"] / b["rate"] for a, b in zip(reports[backends[0]], reports[backend])]
        furthest = max(abs(a - b) for a, b in zip(reports[backends[0]][0]["losses"], reports[backend][0]["losses"]))
        print(f"{backends[0]} / {backend}: {statistics.median(pairs):.3f} ({min(pairs):.3f} to {max(pairs):.3f}); losses differ by {furthest:.1e} at most")


if __name__ == "__main__":
    main()
