#!/usr/bin/env python3
"""Compares NCCL over Fairway's plugin with NCCL over its own sockets, in turns, on one machine. Checks every result.

Run bench/nccl/build first. Examples:
  bench/nccl/compare.py --ranks 2 4                    sizes of 8 B to 1 GiB, the table with ratios
  bench/nccl/compare.py --ranks 4 --mode types         every data type and reduction
  bench/nccl/compare.py --ranks 4 --hosts A,A,B,B      as two hosts: NVLink inside, the plugin between
  bench/nccl/compare.py --ranks 4 --mode killed        a rank dies: which ranks are told, and when
  bench/nccl/compare.py --ranks 4 --mode soak --seed 7 --seconds 480 --state FILE
  bench/nccl/compare.py --ranks 4 --matrix             Ring, Tree, PAT x Simple, LL, LL128 x cuMem on, off
  bench/nccl/compare.py ... --set NCCL_BUFFSIZE=16777216 --only fairway
Results go to --out as JSON lines, NCCL's logs beside them.
"""

import argparse
import datetime
import glob
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 1500


def find_nccl():
    """The path of PyTorch's bundled NCCL, in case the loader finds none."""
    if "NCCL_LIBRARY" in os.environ:
        return os.environ["NCCL_LIBRARY"]
    for folder in sys.path:
        for found in glob.glob(os.path.join(folder, "nvidia/nccl/lib/libnccl.so.2")):
            return found
    return "libnccl.so.2"


def environment(side, arguments, extra):
    """The environment that makes NCCL use a network between all ranks, and selects which one."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}
    env.update(
        NCCL_LIBRARY=find_nccl(), NCCL_IB_DISABLE="1", NCCL_NVLS_ENABLE="0", NCCL_NET_GDR_LEVEL="SYS",
        NCCL_SOCKET_IFNAME="lo", NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET,GRAPH,TUNING,ENV",
    )
    if not arguments.hosts:
        env.update(NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1")
    if side == "fairway":
        env.update(NCCL_NET="Fairway", NCCL_NET_PLUGIN=str(arguments.plugin))
        env.setdefault("FAIRWAY_GPU_MEMORY", "on")
    else:
        env.update(NCCL_NET="Socket", NCCL_NET_PLUGIN="none")
    for pair in arguments.set + extra:
        name, _, value = pair.partition("=")
        if name.startswith("FAIRWAY_") or side == "fairway" or arguments.both:
            env[name] = value
    return env


def check_log(log, side):
    """Summarizes which network each channel uses, from NCCL's log."""
    text = log.read_text(errors="replace")
    ways = re.findall(r"\[(?:send|receive)\] via (NET/\w+|P2P\S*|SHM\S*)(\S*)", text)
    wanted = "NET/Fairway" if side == "fairway" else "NET/Socket"
    other = sorted({way for way, _ in ways if way.startswith("NET/") and way != wanted})
    count = sum(way == wanted for way, _ in ways)
    if count == 0 or other:
        sys.exit(f"{log}: {count} channels use {wanted}, others use {other}: NCCL did not use the requested network")
    direct = sum("GDRDMA" in rest for way, rest in ways if way == wanted)
    inside = len(ways) - count
    return f"{count} channel ends via {wanted}, {direct} of them GDRDMA" + (f", {inside} by P2P or SHM" if inside else "")


def run(side, ranks, arguments, extra=(), label=""):
    out = arguments.out / f"{label or 'run'}-{side}-{ranks}"
    env = environment(side, arguments, list(extra))
    command = [str(arguments.programs / "nccl_ranks"), "--ranks", str(ranks), "--seed", str(arguments.seed)]
    names = ("mode", "from", "to", "ops", "hosts", "iterations", "seconds")
    if arguments.mode == "soak":
        command[0] = str(arguments.programs / "soak")
        names = ("hosts", "seconds", "state")
        # Creating a communicator calls CUDA. That must not run beside collectives whose data wait for driver calls.
        command += ["--lanes", "1" if env.get("FAIRWAY_GPU_MEMORY") == "on" else "2"]
    for name in names:
        value = getattr(arguments, "from_" if name == "from" else name)
        if value is not None:
            command += [f"--{name}", str(value)]
    with open(out.with_suffix(".log"), "w") as log:  # NCCL_DEBUG_FILE keeps NCCL's log out of stdout
        env["NCCL_DEBUG_FILE"] = str(out) + ".nccl.%p"
        for old in glob.glob(str(out) + ".nccl.*"):
            os.remove(old)
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=None if arguments.mode == "soak" else log, text=True, timeout=LIMIT_S)
    with open(out.with_suffix(".log"), "a") as log:
        for each in sorted(glob.glob(str(out) + ".nccl.*")):
            log.write(pathlib.Path(each).read_text(errors="replace"))
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for row in rows:
        row.update(side=side, label=label, date=datetime.date.today().isoformat(), settings=list(arguments.set) + list(extra))
    with open(arguments.out / "results.jsonl", "a") as results:
        results.writelines(json.dumps(row) + "\n" for row in rows)
    wrong = sum(row.get("wrong", 0) for row in rows)
    said = check_log(out.with_suffix(".log"), side)
    print(f"{label or arguments.mode} {side}, {ranks} ranks: {len(rows)} results, {wrong} wrong values, exit {done.returncode}; {said}", flush=True)
    if done.returncode != 0 or wrong:
        print(f"  FAILED; see {out.with_suffix('.log')}")
        arguments.failures.append(f"{label} {side} {ranks}")
    return rows


def table(rows):
    """Prints the medians of both sides and their ratio; above 1, Fairway is faster."""
    found = {}
    for row in rows:
        if "us" in row:
            key = (row["op"], row["ranks"], row["bytes"], row["type"], row["in_place"])
            found.setdefault(key, {}).setdefault(row["side"], []).append((row["us"], row["bus_gb_s"]))
    if not found:
        return
    print(f"\n{'operation':<16}{'n':>3}{'bytes':>12} {'in place':<9}{'fairway us':>12}{'GB/s':>9}{'sockets us':>12}{'GB/s':>9}{'ratio':>8}")
    for (op, ranks, size, _, in_place), sides in sorted(found.items(), key=lambda item: (item[0][1], item[0][0], item[0][4], item[0][2])):
        cells, us = "", {}
        for side in ("fairway", "socket"):
            if side in sides:
                us[side] = statistics.median(time for time, _ in sides[side])
                cells += f"{us[side]:>12.1f}{statistics.median(rate for _, rate in sides[side]):>9.2f}"
            else:
                cells += f"{'-':>12}{'-':>9}"
        ratio = f"{us['socket'] / us['fairway']:>8.2f}" if len(us) == 2 else f"{'-':>8}"
        print(f"{op:<16}{ranks:>3}{size:>12} {'yes' if in_place else 'no':<9}{cells}{ratio}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--mode", choices=["sweep", "types", "killed", "soak"], default="sweep")
    parser.add_argument("--from", dest="from_")
    parser.add_argument("--to")
    parser.add_argument("--ops")
    parser.add_argument("--hosts", help="NCCL_HOSTID of each rank: A,A,B,B")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, help="length of a soak (480), or time limit for ranks to learn of a killed one (60)")
    parser.add_argument("--state", help="file that keeps a soak's state from run to run")
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--turns", type=int, default=1, help="how often each side runs")
    parser.add_argument("--only", choices=["fairway", "socket"])
    parser.add_argument("--matrix", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="environment of Fairway's side")
    parser.add_argument("--both", action="store_true", help="apply --set to both sides")
    parser.add_argument("--plugin", type=pathlib.Path, default=ROOT / "build/release/plugins/nccl_net/libnccl-net-fairway.so")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/nccl")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/nccl/results")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.failures = []
    sides = [arguments.only] if arguments.only else ["fairway", "socket"]
    if arguments.mode in ("killed", "soak", "types") and not arguments.only:
        sides = ["fairway"]
    rows = []
    if arguments.matrix:
        arguments.to = arguments.to or "4M"
        for cumem in ("1", "0"):
            for algorithm in ("Ring", "Tree", "PAT"):
                for protocol in ("Simple", "LL", "LL128"):
                    if algorithm == "PAT" and protocol != "Simple":
                        continue  # NCCL supports PAT with Simple only
                    arguments.ops = {"Ring": None, "Tree": "all_reduce", "PAT": "all_gather,reduce_scatter"}[algorithm]
                    extra = [f"NCCL_CUMEM_ENABLE={cumem}", f"NCCL_ALGO={algorithm}", f"NCCL_PROTO={protocol}"]
                    for ranks in arguments.ranks:
                        rows += run("fairway", ranks, arguments, extra, f"{algorithm}-{protocol}-cumem{cumem}")
    else:
        for turn in range(arguments.turns):
            for ranks in arguments.ranks:
                for side in sides:
                    rows += run(side, ranks, arguments, label=f"turn{turn}" if arguments.turns > 1 else "")
    table(rows)
    if arguments.failures:
        sys.exit("failed: " + "; ".join(arguments.failures))


if __name__ == "__main__":
    main()
