#include "module.h"

namespace fairway::python {

const char* const kEngineText =
    R"(One process's communication endpoint. Thread-safe; closed by close(), `with` or its end.

    with fairway.Engine() as engine:
        inbox = engine.register(numpy.zeros(1 << 20, 'uint8'), 'w')
        engine.publish('inbox', inbox)
        note = engine.wait_notification()          # after all bytes of that write

    with fairway.Engine() as engine:
        peer = engine.connect('127.0.0.1:4000')
        remote = peer.lookup('inbox')
        engine.write(array, remote[:array.nbytes], notify=7).wait()

A write or read names memory of this process as it is: arrays and tensors of any library, views of them, Regions.
Timeouts are seconds; None waits for ever, 0 or less does not wait.)";

const char* const kOptionsText = R"(Opens an engine. All options are by name, and the defaults are right for most:

name                 in the directory and in messages
listen               "host:port" where peers reach it; "127.0.0.1:0" takes a free port of this host
job_key              what all engines of a job know; needed to listen beyond this host
directory            where names are looked up: "serve", "host:port", "redis://host:port/prefix" or
                     "etcd://host:port/prefix"
progress             "threads", or "caller": poll() and the waits move the bytes
workers              threads that move bytes (1)
transports           those that may be used: "shm", "tcp", "verbs", "fabric", "cuda" (all that work)
interfaces           network interfaces that bytes may use
rdma                 a dict: devices, gid_index, queue_pairs, mtu, ... (docs/verbs.md)
providers            of libfabric
loopback             a Loopback that joins engines of this process
peer_timeout, spin   seconds (2.0, 20e-6)
max_transfers, max_regions, max_remote_regions, max_peers, max_counters,
notifications_per_peer, unexpected_bytes_per_peer, prove_paths, strict_isolation, keep_links_awake, machine: as in fairway/options.h)";

const char* const kWriteText =
    R"(write(local, remote, *, notify=None, after=None, deadline=None, checksum=False, local_completion=False, priority='normal', stream=None, queue=None, callback=None) -> Transfer

Moves the bytes of `local` into `remote` and gives the Transfer at once.

local    an array, a view of one, a Region or part of it; a strided view moves as it is, without a copy. None: no bytes,
         and the notification alone goes to the peer of `remote`
remote   a RemoteRegion, part of it (remote[a:b]) or a view of its array(); as many bytes as local, and when both
         have a dtype, the same

notify   what the target sees after all bytes: a number, (number, bytes), event(), counter() or signal()
after    a Transfer that must be visible first
deadline seconds, as in end - now: past it it fails with DeadlineExceeded, once nothing can land any more. 0 or less has
         passed; None, or none given: no deadline
checksum compare a CRC-32C of what was read and what landed
local_completion  of a send alone (Peer.send)
priority 'bulk', 'normal' or 'urgent'
stream   a CUDA stream (torch's, or its handle): no byte is read before what it has now, and what it is given later
         waits for this transfer. GPU tensors of torch start after torch's current stream by themselves. Not of a send
         or receive, whose call waits until torch's current stream has come so far
queue    a Queue, from Engine.make_queue: its poll() and wait() alone give the Transfer when it is done
callback called with the Transfer from Engine.poll or the event loop)";

const char* const kPagesText =
    R"(write_pages(local, remote, local_index, remote_index, page_bytes, local_unit=None, remote_unit=None, **options) -> Transfer

Moves pages: page i from local_index[i] * local_unit to remote_index[i] * remote_unit, page_bytes each.

Units are page_bytes unless given: the indexes are page numbers; with 1 they are byte offsets. Both sides are whole
registered memory. NumPy arrays of 64-bit integers are used as they lie, without a copy, and kept until it completes:
do not change them before. Indexes that are negative, too large or would write a page twice are refused.
Options as for write.)";

const char* const kReceiveText =
    R"(receive(tag, local, peer=None, **options) -> Transfer

A message of any peer, or of that one, into the contiguous array `local`; wait() gives its bytes, and `peer` of the
Transfer is whose it was.

It keeps its place among the receives of each peer, and waits on when peers leave. At most 1,024 of any peer may wait
for a message (QueueFull beyond). Options as for Engine.write, but notify, and of any peer without `after`.)";

}  // namespace fairway::python
