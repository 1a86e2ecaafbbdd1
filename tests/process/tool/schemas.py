"""schemas.py TOOL SOURCE-TREE: what every `--json` prints is valid by the schema in docs/schemas that its `format` names, and
each schema there is the one of something printed. Exit 77: python3-jsonschema is absent."""

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("[  SKIPPED ] python3-jsonschema is not installed")
    sys.exit(77)

BASE = "file:///docs/schemas/"
MACHINES = ["h20", "h200_x2", "dgx1v", "mi250x", "small_vm", "nvlink_bridge_pair", "vm_two_sockets"]
# By command what a build without libfabric, the plugin or the Python module does not print.
ABSENT = {"topo": "fairway-providers.json", "nccl": "fairway-nccl-env.json", "kv": "fairway-kv-bench.json"}


@contextlib.contextmanager
def served(tool):
    """The address of an engine that answers."""
    server = subprocess.Popen([tool, "bench", "--listen", "127.0.0.1:0", "--sleep"], stdout=subprocess.PIPE, text=True)
    try:
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def commands(tool, machines, scratch):
    """Words of each command, and the exit codes that it may have."""
    yield ["topo", "--json"], (0,)
    yield ["topo", "snapshot", "-"], (0,)
    yield ["topo", "snapshot", "-", "--keep-identities"], (0,)
    for name in MACHINES:
        yield ["topo", "--json", "--from", machines / f"{name}.json"], (0,)
        yield ["topo", "snapshot", "-", "--from", machines / f"{name}.json"], (0,)
        yield ["predict", "--json", "--from", machines / f"{name}.json"], (0,)
    yield ["topo", "--json", "--from", machines / "two_rail_hosts.json"], (0,)
    yield ["topo", "snapshot", "-", "--from", machines / "two_rail_hosts.json"], (0,)
    yield ["topo", "catalog", "--json"], (0,)
    yield ["topo", "nics", "--json"], (0,)
    for name in MACHINES:
        yield ["topo", "nics", "--json", "--from", machines / f"{name}.json"], (0,)
        yield ["topo", "lint", "--json", "--notes", machines / f"{name}.json"], (0, 1)
    yield ["topo", "nics", "--gpu", "4", "--json", "--from", machines / "h20.json"], (0,)
    yield ["topo", "nics", "--numa", "0", "--json", "--from", machines / "h20.json"], (0,)
    yield ["topo", "lint", "--json", machines / "h20.json", "--against", machines / "h200_x2.json"], (0, 1)
    yield ["topo", "hca", "--json", "--from", machines / "h20.json"], (0,)
    yield ["topo", "hca", "mlx5_bond_0", "--json", "--from", machines / "h20.json"], (0,)
    yield ["nccl", "env", "--one-host", "--json"], (0, 1)  # 1: this build has no plugin
    yield ["kv", "bench", "--model", "MLA", "--tokens", "32", "--seconds", "0", "--layer-ms", "0", "--json"], (0, 1)  # 1: nor the Python module
    yield ["doctor", "rules", "--json"], (0,)
    yield ["doctor", "rules", "below-expectation", "--json"], (0,)
    yield ["topo", "diff", "--json", machines / "h200_x2.json", machines / "h200_x4.json"], (1,)
    yield ["topo", "diff", "--json", machines / "h200_x2.json", machines / "h200_x2.json"], (0,)
    yield ["info", "--json", "--variables"], (0, 1)
    yield ["explain", "--json"], (0,)
    with served(tool) as address:
        yield ["ping", address, "--count", "10", "--json"], (0,)
    yield ["who-hangs", "--json", "--after", "100000"], (0,)
    yield ["topo", "--providers", "--json"], (0, 1)  # 1: this build or machine has no libfabric
    h20 = ["--json", "--from", machines / "h20.json"]
    yield ["predict", "gpu0:nic0", "gpu1:nic0:gpu2", "gpu0:numa1", *h20, "--size", "1M"], (0,)
    yield ["predict", "gpu4:nic0", "--routes", *h20], (0,)
    yield ["predict", "--constants", "--json"], (0,)
    yield ["predict", "--bond-odds", "2", "--json"], (0,)
    rows = scratch / "rows.csv"
    rows.write_text("gpu,nic,gbs,mode\n0,0,20,send\n4,0,11,send\n")
    yield ["predict", "--measured", rows, *h20], (0,)
    yield ["predict", "--calibrate", rows, "--no-calibration", *h20], (0,)
    fabric = scratch / "fabric.json"
    fabric.write_text('{"hosts": 32, "hosts_per_leaf": 8, "spines": 4, "links_per_spine": 2, "host_gbps": 400, '
                      '"uplink_gbps": 400, "flows_per_host": 4}')
    yield ["predict", "--fabric", fabric, "--json", "--trials", "5"], (0,)
    quick = ["--seconds", "0", "--sleep", "--json", "-"]  # polling processes hold each other up on busy cores
    yield ["bench", "--size", "4K", "--operation", "write,send", *quick], (0,)
    yield ["bench", "--size", "8", "--depth", "4", "--via", "shm", "--operation", "write,fetch_add", *quick], (0,)
    yield ["bench", "compare", "shm", "tcp", "--size", "8", "--operation", "write", *quick], (0,)
    yield ["bench", "matrix", "--size", "64K", *quick], (0,)
    yield ["doctor", "--json"], (0, 1, 2, 4)  # its verdict
    for name in MACHINES:
        yield ["doctor", "--json", "--from", machines / f"{name}.json"], (0, 1, 2, 4)
    yield ["doctor", "--json", "--from", machines / "h20.json", "--measured", rows], (0, 1, 2)
    fleet = [machines / f"{name}.json" for name in ("h200_x2", "h200_x4", "h200_x4", "vm_two_sockets")]
    yield ["doctor", "fleet", "--json", *fleet], (0, 1, 2, 4)
    yield ["bench", "peers", "--tool", "iperf3", "--size", "1M", "--turns", "1", "--seconds", "0", "--json", "-"], (0,)
    yield ["bench", "load", "--via", "shm", "--only", "submit,idle", "--seconds", "0.01", "--json", "-"], (0,)
    yield ["bench", "collectives", "--ranks", "3", "--operation", "all_reduce,broadcast,all_to_allv,send_recv,barrier", "--size", "8,64K",
           "--turns", "1", "--seconds", "0", "--json", "-"], (0,)
    yield ["sim", "--seed", "7", "--json", "-"], (0,)
    yield ["sim", "--seeds", "1..20", "--jobs", "2", "--json", "-"], (0,)
    yield ["soak", "collectives", "--seconds", "30", "--rounds", "1", "--ranks", "2", "--largest", "4K", "--via", "shm", "--json", "-"], (0,)
    yield ["soak", "--rounds", "2", "--seconds", "30", "--largest", "4K", "--json", "-"], (0,)


def main(tool, tree):
    schemas = {path.name: json.loads(path.read_text()) for path in (tree / "docs/schemas").glob("*.json")}
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    store = {BASE + name: schema for name, schema in schemas.items()}  # they name each other by file
    wrong, used = [], set()
    with tempfile.TemporaryDirectory() as folder:
        for words, exits in commands(tool, tree / "tests/machines", pathlib.Path(folder)):
            line = " ".join(map(str, words))
            ran = subprocess.run([tool, *map(str, words)], capture_output=True, text=True, timeout=120, check=False)
            if ran.returncode not in exits:
                wrong.append(f"{line}: exit {ran.returncode}: {ran.stderr.strip()}")
            if ran.returncode != 0 and not ran.stdout:
                used.add(ABSENT.get(words[0], ""))
                continue
            document = json.loads(ran.stdout)
            name = f"{document.get('format')}.json"
            used.add(name)
            if name not in schemas:
                wrong.append(f"{line}: there is no docs/schemas/{name}")
                continue
            resolver = jsonschema.RefResolver(BASE + name, schemas[name], store=store)
            for error in jsonschema.Draft202012Validator(schemas[name], resolver=resolver).iter_errors(document):
                wrong.append(f"{line}: {'/'.join(map(str, error.absolute_path))}: {error.message[:300]}")
    wrong += [f"docs/schemas/{name}: nothing prints it" for name in sorted(set(schemas) - used)]
    print("\n".join(wrong[:40]))
    print(f"{len(used)} formats, {len(wrong)} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], pathlib.Path(sys.argv[2])))
