"""The decoder's side of the benchmark: a process with memory that pages come into, by whichever way."""

import pickle
import socket
import struct
import sys

import numpy as np

import fairway
import fairway.nixl as nixl

HEAD = struct.Struct("<Q")  # bytes of the pickle that follows


def serve(pages, page_bytes, port):
    engine = fairway.Engine(name="kv-target")
    region = engine.allocate(pages * page_bytes, "rw")
    engine.publish("pages", region)
    agent = nixl.nixl_agent("kv-target")
    # A plain array, as NIXL's users have; reached through the kernel where `region` is mapped.
    memory = np.zeros(pages * page_bytes, np.uint8)
    agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM")
    connection = socket.create_connection(("127.0.0.1", port))
    told = pickle.dumps((engine.address, agent.get_agent_metadata(), memory.ctypes.data))
    connection.sendall(HEAD.pack(len(told)) + told)
    reader = connection.makefile("rb")
    while head := reader.read(HEAD.size):
        for index, page in pickle.loads(reader.read(HEAD.unpack(head)[0])):
            memory[index * page_bytes : (index + 1) * page_bytes] = page
        connection.sendall(b"k")


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:]))
