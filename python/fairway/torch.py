"""The backend "fairway" of torch.distributed, for PyTorch 1.13 and 2.x.

    import fairway.torch                                   # registers it
    torch.distributed.init_process_group("fairway")        # with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; torchrun sets them

    fairway.torch.init_process_group()                     # or by whatever launcher there is: mpirun, srun, Kubernetes

Tensors of the CPU travel from where they are. Tensors of GPUs of up to 8 ranks of one host, a GPU each, go from GPU to GPU where the
collective can; others are copied to the host and back (docs/torch.md). After a rank has died, shrink() makes the default group of
those that live.
"""

import datetime
import inspect
import os
import secrets
import socket
import time

import torch
import torch.distributed as dist

from . import Communicator, Engine, errors, launch
from .process_group import FairwayProcessGroup

__all__ = ["communicator", "gpu_options", "gpu_path", "init_process_group", "monitored_barrier", "register_window", "shrink"]

_ready = None  # a communicator that the next default group is made of


def _all(store, what, rank, size, mine, deadline):
    """What each rank says, by rank. Asks instead of waiting: after a wait that timed out PyTorch 1.13's store mixes up its answers."""
    store.set(f"fairway/{what}/{rank}", mine)
    store.add(f"fairway/{what}/{rank}/said", 1)
    absent = list(range(size))
    while absent := [other for other in absent if store.add(f"fairway/{what}/{other}/said", 0) == 0]:
        if time.monotonic() > deadline:
            error = errors._of("timed_out", f"no word from rank {', '.join(map(str, absent))} of {size} while the group was made")
            error.rank = absent[0]
            raise error
        time.sleep(0.002)
    return [store.get(f"fairway/{what}/{other}").decode() for other in range(size)]


def _connect(store, rank, size, timeout):
    deadline = time.monotonic() + timeout
    hosts = _all(store, "host", rank, size, launch.host_id(), deadline)
    key = os.environ.get("FAIRWAY_JOB_KEY") or _all(store, "key", rank, size, secrets.token_hex(16), deadline)[0]
    here = "127.0.0.1" if len(set(hosts)) == 1 else launch.own_address(os.environ.get("MASTER_ADDR"))
    engine = Engine(listen=f"{here}:0", job_key=key, progress="caller")
    try:
        addresses = _all(store, "address", rank, size, engine.address, deadline)
        made = Communicator(engine, rank, addresses, timeout=timeout)
    except BaseException:
        engine.close()
        raise
    made._owns_engine = True
    return made


def _create(store, rank, size, timeout):
    global _ready
    made, _ready = _ready, None
    if made is None:
        made = _connect(store, rank, size, timeout.total_seconds())
    return FairwayProcessGroup(made)


def _register():
    devices = {"devices": ["cpu", "cuda"]} if "devices" in inspect.signature(dist.Backend.register_backend).parameters else {}
    dist.Backend.register_backend("fairway", _create, **devices)


def communicator(group=None):
    """The fairway.Communicator behind a process group (None: the default one)."""
    return _group(group).communicator


def gpu_path(group=None):
    """How collectives of GPU tensors of a group (None: the default one) travel, in words; its ranks decide that at the first one."""
    side = _group(group).gpu
    if side.device is not None:
        return f"GPU {side.device}: kernels on a stream of the group"
    return f"through the host: {side.reason}" if side.reason else "not decided yet: there was no collective of GPU tensors"


def gpu_options(group=None, **options):
    """Sets how a group (None: the default one) uses its GPUs: options of fairway.Communicator.use_gpu(), such as nccl="always".

    Every rank calls it with the same, before the group's first collective of GPU tensors, which uses them; shrink() keeps them. Raises
    TypeError of an option that there is not, and fairway.InvalidArgument of a value that cannot be, or after that collective. If ranks
    have set different ones, that collective raises fairway.InvalidArgument on all, and they may be set again.
    """
    _group(group).gpu.set_options(options)


def register_window(tensor, group=None):
    """Shows a GPU tensor's memory to the other ranks of a group (None: the default one), which read long collectives' tensors there.

    Collective: every rank calls it with its tensor, contiguous and long-lived, such as a flat buffer of all gradients. Collectives of many
    bytes are faster where their tensors are this one or views of it, the same part on every rank (docs/collectives.md, Windows); others
    go as before. Gives a fairway.Window, which keeps the tensor until its deregister(), of all ranks, or until the group ends.

    If no collective of GPU tensors has run yet, the ranks decide here how those travel. Raises fairway.Unsupported where they go through
    the host, with the reason that gpu_path() gives, and what Communicator.register_window() raises.
    """
    return _group(group).register_window(tensor)


def _group(group):
    pg = dist.distributed_c10d._get_default_group() if group is None else group
    if not isinstance(pg, FairwayProcessGroup):
        raise errors._of("invalid_argument", f"the group's backend is {pg.name()}, not fairway")
    return pg


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """As torch.distributed.monitored_barrier, which PyTorch itself gives to Gloo alone: the error names the rank that is late."""
    _group(group).monitored_barrier(timeout, wait_all_ranks)


def _install(made, timeout):
    """Makes the communicator torch's default group, with a store that its rank 0 serves."""
    global _ready
    host = made.engine.address.rpartition(":")[0].strip("[]")
    where = bytearray(256)
    store = None
    without = {"use_libuv": False} if os.environ.get("USE_LIBUV") == "0" else {}  # as torch's own rendezvous reads it
    if made.rank == 0:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as found:  # TCPStore of PyTorch 1.13 wants a port by number
            found.bind((host, 0))
            port = found.getsockname()[1]
        store = dist.TCPStore(host, port, None, True, timeout, wait_for_workers=False, **without)
        text = f"{host}:{port}".encode()
        where[: len(text)] = text
    made.broadcast(where)
    if store is None:
        host, _, port = bytes(where).rstrip(b"\0").decode().rpartition(":")
        store = dist.TCPStore(host, int(port), None, False, timeout, wait_for_workers=False, **without)
    _ready = made
    dist.init_process_group("fairway", store=store, rank=made.rank, world_size=made.size, timeout=timeout)


def init_process_group(timeout=datetime.timedelta(minutes=30), **options):
    """torch.distributed.init_process_group("fairway"), with the ranks that the launcher's environment names (fairway.launch).

    `options` are those of fairway.Communicator.join, such as `listen` and `job_key`.
    """
    _install(Communicator.join(timeout=timeout.total_seconds(), **options), timeout)


def shrink(without=(), timeout=datetime.timedelta(minutes=30)):
    """Makes the default group anew, of the ranks that live and are not in `without`; each of those calls it.

    Ranks and world size change. Modules that hold the old group, such as DistributedDataParallel, are made again:
    `model = DistributedDataParallel(model.module)`. Other groups are gone.
    """
    old = dist.distributed_c10d._get_default_group()
    made = communicator().shrink(without)
    made._owns_engine = True
    old.communicator = None  # what PyTorch ends now is not the engine
    dist.destroy_process_group()
    _install(made, timeout)  # afterwards no rank needs the old one
    gpu_options(**old.gpu.options)
    if old.gpu.device is not None:
        old.gpu.drain()
        made._parent._group.close()  # its memory of the GPU; the engine is the new one's


_register()
