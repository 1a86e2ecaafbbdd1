"""Processes of a benchmark of torch.distributed, a rank each, on this host."""

import json
import os
import socket
import subprocess
import sys


def report_of(what, file, arguments, ranks, ends=lambda rank: 0):
    """What rank 0 of `file` reports: the one line of JSON that all of them print. `ends`: the exit status of each. SystemExit with what went wrong."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    base = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, file, "--worker", *map(str, arguments)]
    processes = [
        subprocess.Popen(command, env={**base, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(ranks)
    ]
    said, reports = "", []
    for rank, process in enumerate(processes):
        out, complaint = process.communicate(timeout=600)
        reports += [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        if process.returncode != ends(rank):
            said += f"rank {rank} ended with {process.returncode}: {complaint}\n"
    if said or len(reports) != 1:
        raise SystemExit(f"{what}: {said or 'no report'}")
    return reports[0]
