"""Who the ranks of this job are, as its launcher says; the library reads it (docs/collectives.md#how-ranks-find-each-other).

detect() knows, in this order: RANK and WORLD_SIZE (torchrun, or set by hand), Open MPI's and PRRTE's mpirun, MPICH's mpiexec (PMI),
Slurm's srun, and Kubernetes' indexed jobs. On one host the ranks meet in a folder that only this user can open. On several hosts, or
where MASTER_ADDR and MASTER_PORT are set by hand, they meet at rank 0's address; on several FAIRWAY_JOB_KEY has to be set, the same
for all. FAIRWAY_MASTER ("host:port") names rank 0's address itself, FAIRWAY_JOB the job on its host.
"""

import dataclasses
import os
import pathlib
import socket

from . import errors
from ._fairway import _detect_ranks, _join


@dataclasses.dataclass(frozen=True)
class Ranks:
    """This process's place in its job. `job`: a name that no other job of this host has, or '' where there is none."""

    rank: int
    size: int
    launcher: str
    local_rank: "int | None" = None
    one_host: bool = True
    job: str = ""
    master: str = ""  # "host:port" of rank 0, where it is known


def _lines(environment):
    if environment is not None and not hasattr(environment, "items"):
        raise errors._of("invalid_argument", f"environment is a dict of variables, or None for os.environ, not {environment!r}")
    return [os.fsencode(f"{name}={value}") for name, value in (os.environ if environment is None else environment).items()]


def detect(environment=None):
    """The Ranks that the environment (os.environ) tells. NotFound where no launcher has left its variables."""
    rank, size, launcher, local_rank, one_host, job, master = _detect_ranks(_lines(environment))
    return Ranks(rank, size, launcher, local_rank, one_host, job, master)


def first_host(nodes):
    """The first host of Slurm's list: 'rack[3-5,9],spare' is rack3 and others."""
    step = {"SLURM_PROCID": 0, "SLURM_STEP_NUM_TASKS": 1, "SLURM_STEP_NUM_NODES": 2, "SLURM_STEP_NODELIST": nodes}
    return detect(step).master.rpartition(":")[0]


def host_id():
    """The same for processes that reach each other at 127.0.0.1."""
    return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/net")


def _way_to(family, there):
    """This host's address on the way there, or None."""
    with socket.socket(family, socket.SOCK_DGRAM) as way:  # connecting sends nothing
        try:
            way.connect(there)
            return way.getsockname()[0]
        except OSError:
            return None


def own_address(towards=None):
    """This host's address on the way to another host; around an IPv6 address stand brackets.

    Where this host's files give that name to its loopback interface (127.0.1.1), it is this host: then the address that others use.
    """
    host = towards or socket.gethostname()
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        found = {(family, address) for family, *_, address in socket.getaddrinfo(bare, 9, type=socket.SOCK_DGRAM)}
    except OSError as failed:
        raise errors._of("unreachable", f"no way to {host}: {failed}") from None
    far = [(socket.AF_INET, ("192.0.2.1", 9)), (socket.AF_INET6, ("2001:db8::1", 9))]  # of documentation: by the default route
    local = ("127.", "::1")
    here = [one for one in found if one[1][0].startswith(local)]
    there = sorted((one for one in found if one not in here), key=lambda one: one[0] != socket.AF_INET)
    if not there and bare != "localhost" and all(address[0] != bare for _, address in found):
        there = far
    for family, address in there + here:
        if own := _way_to(family, address):
            return f"[{own}]" if family == socket.AF_INET6 else own
    raise errors._of("unreachable", f"no way to {host}: no interface of this host leads there")


def join(kind, name, timeout, environment, options):
    """Communicator.join: opens an engine, meets the other ranks, joins them."""
    from . import Engine

    if not isinstance(timeout, (int, float)) or not timeout > 0:
        raise errors._of("invalid_argument", f"timeout is seconds, more than 0, not {timeout!r}")
    options.setdefault("progress", "caller")
    try:
        engine, group = _join(name, float(timeout), _lines(environment), options)
    except errors.TimedOut as failed:
        if failed.peer == "rank 0":  # it has left no key
            failed.rank = 0
        raise
    made = kind.__new__(kind)
    made._adopt(group, Engine._of(engine), group.addresses, name, float(timeout))
    made._owns_engine = True
    return made
