#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fairway {

class Loopback;  // fairway/loopback.h: joins engines of one process

enum class Progress : std::uint8_t {
  threads,  // worker threads of the engine make progress
  // Engine::poll() and the wait functions make progress, on the caller's thread; without time to wait, one call in 32.
  // Transfers that need this side wait for the next. A control thread still sends heartbeats, so peers know that the
  // engine lives. While the caller computes, they do not count the time towards peer_timeout.
  caller,
};

// On-demand paging (ODP): registers memory with NICs without pinning it. Pages are faulted in when the NIC uses them,
// which costs time, and do not count towards the limit of locked memory. ConnectX-4 and later.
enum class OnDemand : std::uint8_t {
  off,
  when_short,  // only memory that cannot be pinned because the limit of locked memory (ulimit -l) is reached
  always,      // all host memory for which the device allows it
};

// Options of RDMA NICs. A value that no port of this machine supports is an error of Engine::open.
struct RdmaOptions {
  // Devices or ports to use ("mlx5_0", "mlx5_0/1"). Empty: all that are up and have an address.
  std::vector<std::string> devices = {};
  // GID index of each port, as `fairway topo hca` lists them. -1: the first routable RoCE v2 GID.
  std::int32_t gid_index = -1;
  // Queue pairs to each port of a peer, up to 32; the larger value of the two sides is used. 0: one, or one for each
  // leg of a bond. More than one helps where the NIC or the network (ECMP, LAG) hashes traffic by queue pair.
  std::uint32_t queue_pairs = 0;
  // Quality of service: InfiniBand's service level (0 to 15; for RoCE the priority), RoCE's traffic class (DSCP and ECN
  // bits of the IP header).
  std::uint32_t service_level = 0;
  std::uint32_t traffic_class = 0;
  std::uint32_t hop_limit = 64;  // 1 to 255
  // Local ACK timeout (1 to 31): an unacknowledged packet is retransmitted after 4.096 us << timeout. After `retries`
  // retransmissions (1 to 7; some drivers take 7 as infinite) the link is down. Keep the product below peer_timeout;
  // the defaults give 0.5 s, with hardware NICs about 2 s.
  std::uint32_t timeout = 14;
  std::uint32_t retries = 6;
  // InfiniBand's partition key (P_Key), for example 0x8001. 0: the port's first.
  std::uint32_t partition = 0;
  // Path MTU in bytes: 256, 512, 1024, 2048 or 4096. 0: the largest that both ports support. Set it only if a switch
  // on the path supports less.
  std::uint32_t mtu = 0;
  OnDemand on_demand = OnDemand::when_short;
  // Connect RoCE's queue pairs by rdma_cm too, as iWARP's always are. It is enough if one side sets this. Set it on
  // networks that let a connection pass only if they have seen its handshake.
  bool connection_manager = false;
  bool operator==(const RdmaOptions&) const = default;
};

struct EngineOptions {
  // Name in the directory and in messages. Empty: the engine's address.
  std::string name = {};
  // Address of the control connection, to which peers connect. Port 0: any free port. An address other than loopback
  // needs a job key.
  std::string listen = "127.0.0.1:0";
  // Shared secret of the job. Each side proves that it knows the key before the other reads anything else. Empty: any
  // process of this host may connect.
  std::string job_key = {};
  // Directory of names: "" none; "serve" this engine serves it; "host:port" the engine at that address serves it;
  // "redis://host:port/prefix" a Redis server holds it; "etcd://host:port,host:port/prefix" a cluster of etcd.
  std::string directory = {};

  Progress progress = Progress::threads;
  // Worker threads. Each peer belongs to one worker; more than one helps only with several busy peers.
  std::uint32_t workers = 1;
  // How long a waiting thread polls before it sleeps in the kernel. Use 0 if there are more busy threads than cores.
  std::chrono::microseconds spin{20};

  // Limits. Reaching one causes back-pressure or an error that names it; memory use does not grow.
  std::uint32_t max_transfers = 4096;  // accepted and not yet collected, over all peers; not those complete on return
  std::uint32_t max_regions = 4096;
  std::uint32_t max_remote_regions = 16384;
  std::uint32_t max_peers = 1024;
  std::uint32_t max_counters = 4096;          // different immediate values of counters
  std::uint32_t notifications_per_peer = 64;  // credits: delivered and not yet polled; further ones wait at the sender
  std::uint32_t unexpected_bytes_per_peer = 262144;  // eager messages that arrived before their receive was posted

  // A peer that does not answer for this long is declared dead, and transfers with it fail. A peer with
  // Progress::caller that computes is not declared dead.
  std::chrono::milliseconds peer_timeout{2000};
  // Verify each new link by writing and reading back a small scratch region before it carries data.
  bool prove_paths = true;
  // Do not map more of a peer's memory than its regions: shm uses only its ring, cuda is off and GPU memory is staged.
  bool strict_isolation = false;
  // NVLinks fall asleep after 50 ms without traffic, and the first transfer after that takes 0.2 ms more. True: over
  // each that this engine's transfers may take, 64 KiB of the peer's readable memory are read every 25 ms (with
  // Progress::caller while it polls). One of the two sides is enough.
  bool keep_links_awake = false;
  // Transports to use, by name. Empty: all that work here. "staged" instead of "cuda": GPU memory is staged through
  // host memory over the other transports.
  std::vector<std::string> transports = {};
  // Network interfaces or addresses of this host to use ("eth0", "10.0.0.7"). Empty: the one of `listen`.
  std::vector<std::string> interfaces = {};
  RdmaOptions rdma = {};
  // libfabric providers that the transport `fabric` uses ("efa", "tcp", "verbs;ofi_rxm"). Empty: those of NICs for
  // which Fairway has no other transport (EFA, Slingshot, Omni-Path). `fairway topo --providers` lists them.
  std::vector<std::string> providers = {};
  // Snapshot of this machine (`fairway topo snapshot`) from which expected rates are computed, for example one of a
  // virtual machine's host. A missing or malformed file is an error of Engine::open. Empty: the machine is inspected
  // when the first link comes up whose rate depends on it.
  std::string machine = {};
  // Engines of one process that share this object reach each other by memory copies.
  std::shared_ptr<Loopback> loopback = {};
};

}  // namespace fairway
