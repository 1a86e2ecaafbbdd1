#!/usr/bin/env bash
# A NIXL transfer to a process that is stopped never ends, while one to a killed process ends at once.
#
# Versions: nixl 1.5.2 and nixl-cu12 1.5.1 from PyPI (UCX backend, tcp), numpy 2.4.6, no GPU.
# Expected: a peer that does not answer, because it was stopped (SIGSTOP, a debugger, a host that swaps), gives an error after
#   some seconds, as a killed one does: agents for serving name timeouts nowhere, so there must be one.
# Seen: killed, check_xfer_state raises NIXL_ERR_REMOTE_DISCONNECT within 0.2 s, and so do new transfers and notifications.
#   Stopped, it says PROC for as long as one asks (75 s once, 40 s here): a caller needs a deadline of its own.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
temp_folder
pypi nixl==1.5.2 nixl-cu12==1.5.1 numpy==2.4.6
cat >two.py <<'P'
import multiprocessing, os, signal, sys, time

os.environ["UCX_TLS"] = "tcp,self"


def agent(name):
    import numpy
    from nixl._api import nixl_agent, nixl_agent_config

    made = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
    memory = numpy.zeros(64 << 20, dtype=numpy.uint8)
    kept = made.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM")
    return made, memory, kept


def target(pipe):
    made, memory, kept = agent("target")
    pipe.send((made.get_agent_metadata(), memory.ctypes.data))
    while True:
        made.get_new_notifs()
        time.sleep(0.001)


def after(signal_number, seconds):
    """The state of a transfer so long after its target got the signal, and when it first was not PROC."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=target, args=(there,), daemon=True)
    process.start()
    metadata, address = here.recv()
    made, memory, kept = agent("initiator")
    name = made.add_remote_agent(metadata)
    ours = made.get_xfer_descs([(memory.ctypes.data, memory.nbytes, 0)], "DRAM")
    theirs = made.get_xfer_descs([(address, memory.nbytes, 0)], "DRAM")

    def transfer():
        handle = made.initialize_xfer("WRITE", ours, theirs, name, b"done")
        return handle, made.transfer(handle)

    handle, state = transfer()
    while state == "PROC":
        state = made.check_xfer_state(handle)
    assert state == "DONE", state
    handle, state = transfer()
    assert state == "PROC", state
    os.kill(process.pid, signal_number)
    begin = time.monotonic()
    while state == "PROC" and time.monotonic() - begin < seconds:
        time.sleep(0.01)
        try:
            state = made.check_xfer_state(handle)
        except Exception as error:
            state = str(error) or type(error).__name__
    print(f"{signal.Signals(signal_number).name}: {state} after {time.monotonic() - begin:.1f} s", flush=True)
    os.kill(process.pid, signal.SIGKILL)
    return state


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    killed = after(signal.SIGKILL, 40)
    stopped = after(signal.SIGSTOP, 40)
    print("holds" if "DISCONNECT" in killed and stopped == "PROC" else "changed", flush=True)
    os._exit(0 if "DISCONNECT" in killed and stopped == "PROC" else 1)
P
NIXL_LOG_LEVEL=FATAL timeout 300 python3 two.py 2>/dev/null
