#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fairway {

class Loopback;  // fairway/loopback.h: joins engines of one process

enum class Progress : std::uint8_t {
  threads,  // worker threads of the engine move the bytes
  // Engine::poll() and the wait functions do, on the caller's thread; control still has its own thread. What peers sent
  // and this side has to take waits for the next call, however late that comes: peers know who makes the progress here,
  // and hold no time against it in which this side made no step.
  caller,
};

// Whether memory is registered with NICs without pinning it: its pages come when they are used, at some cost each time,
// and count against no limit. For devices that have it (on-demand paging: ConnectX-4 and later).
enum class OnDemand : std::uint8_t {
  off,
  when_short,  // what cannot be pinned, as the limit of locked memory (ulimit -l) is reached
  always,      // of host memory all that the device allows
};

// RDMA NICs. Values that no port has, or that none can have, are an error when the engine opens.
struct RdmaOptions {
  // Devices or ports that bytes may use ("mlx5_0", "mlx5_0/1"); empty: all that are up and have an address.
  std::vector<std::string> devices;
  // Index of the address (GID) that each port uses, as `fairway topo hca` lists them. -1: of RoCE v2 the first that is
  // good beyond its own wire.
  std::int32_t gid_index = -1;
  // Queue pairs to each port of a peer, up to 32; the larger wish of the two sides counts. 0: one, or one for each leg
  // of a bond. More help where a NIC, or the network, spreads work by queue pair.
  std::uint32_t queue_pairs = 0;
  // How the fabric sorts the packets: InfiniBand's service level (0 to 15, of RoCE the priority), RoCE's traffic class
  // (the IP header's DSCP and ECN bits).
  std::uint32_t service_level = 0;
  std::uint32_t traffic_class = 0;
  std::uint32_t hop_limit = 64;  // routers on the way, 1 to 255
  // A packet without an answer is sent again after 4.096 us << timeout (1 to 31), so many times (1 to 7; 7 is for ever
  // with some drivers), then the link is down. Together they belong below peer_timeout; these are 0.5 s, with NICs 2 s.
  std::uint32_t timeout = 14;
  std::uint32_t retries = 6;
  // InfiniBand's partition (P_Key), as in 0x8001. 0: the port's first.
  std::uint32_t partition = 0;
  // Bytes of a packet at most: 256, 512, 1024, 2048 or 4096. 0: as many as both ports take. Less helps only where a
  // switch on the way takes less than the ports.
  std::uint32_t mtu = 0;
  OnDemand on_demand = OnDemand::when_short;
  // RoCE's queue pairs are connected by rdma_cm too, as iWARP's always are; a peer's wish counts as well. For networks
  // that let only connections pass which they have seen begin.
  bool connection_manager = false;
  bool operator==(const RdmaOptions&) const = default;
};

struct EngineOptions {
  // This engine's name in the directory and in messages. Empty: its address.
  std::string name;
  // Where peers reach this engine's control. Beyond loopback a job key is needed. Port 0 takes a free one.
  std::string listen = "127.0.0.1:0";
  // What every engine of the job knows and proves before anything else of it is read. Empty: any process of this host.
  std::string job_key;
  // Where names are looked up: "" nowhere, "serve" this engine serves the directory, "host:port" the engine there does,
  // "redis://host:port/prefix" a Redis server does.
  std::string directory;

  Progress progress = Progress::threads;
  // Worker threads. Each peer belongs to one; more help only with several busy peers.
  std::uint32_t workers = 1;
  // How long a waiting thread spins before it sleeps in the kernel. 0 where threads exceed cores.
  std::chrono::microseconds spin{20};

  // Limits. Reaching one is back-pressure or a clear error, never growth.
  std::uint32_t max_transfers = 4096;  // accepted and not yet collected, all peers
  std::uint32_t max_regions = 4096;
  std::uint32_t max_remote_regions = 16384;
  std::uint32_t max_peers = 1024;
  std::uint32_t max_counters = 4096;          // different immediate values counted
  std::uint32_t notifications_per_peer = 64;  // delivered but not yet polled; a peer's further ones wait at its side
  std::uint32_t unexpected_bytes_per_peer = 262144;  // of small messages that wait for their receive

  // A peer that shows no life for so long is dead: its transfers fail. One with Progress::caller that computes is not.
  std::chrono::milliseconds peer_timeout{2000};
  // Write and read back a small scratch region over each new link before it carries data.
  bool prove_paths = true;
  // Refuse same-host transports that map more of a peer's memory than its regions: shm keeps its ring, cuda is off and
  // GPU memory is staged.
  bool strict_isolation = false;
  // Transports that may be used, by name; empty: all that work here. "staged" in place of "cuda": GPU memory has no
  // links of its own, and goes through host memory over the others.
  std::vector<std::string> transports;
  // Network interfaces or addresses of this host that bytes may use ("eth0", "10.0.0.7"); empty: those of `listen`.
  std::vector<std::string> interfaces;
  RdmaOptions rdma;
  // libfabric's providers that the transport `fabric` may use ("efa", "tcp", "verbs;ofi_rxm"); empty: those of NICs
  // that Fairway has nothing else for (EFA, Slingshot, Omni-Path). `fairway topo --providers` lists what is here.
  std::vector<std::string> providers;
  // What this machine is, for what its links should reach: a file from `fairway topo snapshot`, such as that of a
  // virtual machine's host. Empty: the machine itself is looked at, once a link is there whose rate depends on it.
  std::string machine;
  // Engines of one process that share this object reach each other by plain copies.
  std::shared_ptr<Loopback> loopback;
};

}  // namespace fairway
