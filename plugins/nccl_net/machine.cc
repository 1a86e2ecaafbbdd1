#include "nccl_net/machine.h"

#include <cstdio>
#include <fstream>
#include <functional>
#include <thread>

#include <sys/stat.h>

#include "nccl_net/network.h"
#include "nccl_net/nic.h"

namespace fairway::nccl {
namespace {

constexpr unsigned kCoresForTwo = 16;  // that this process may use: engines of some ranks beside NCCL's own threads

std::string first_line(const char* file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::string gigabytes(double bytes_per_second) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", bytes_per_second / 1e9);
  return text;
}

}  // namespace

std::uint64_t host_identity() {
  struct stat space {};
  (void)::stat("/proc/self/ns/net", &space);
  return std::hash<std::string>()(first_line("/proc/sys/kernel/random/boot_id") + std::to_string(space.st_ino));
}

void describe(Device& device, std::uint64_t host) {
  const bool beyond = device.settings.beyond_this_host();
  // NCCL asks once for all peers.
  device.gpu_memory = device.settings.gpu_memory && device.engines.front()->has(beyond ? "verbs" : "cuda");
  // What it uses by name: its rails, else the interfaces.
  const auto& names = device.rails.empty() ? device.settings.engine.interfaces : device.rails;
  device.name = "fairway";
  for (const std::string& name : names) {
    const Nic nic = look_at(name);
    device.name += (device.name == "fairway" ? ":" : "+") + name;
    device.speed_mbps += nic.speed_mbps;
    if (names.size() != 1) continue;
    device.port = nic.port;
    device.pci_path = nic.pci_path;
  }
  // What the paths of one host reach (docs/cuda.md, docs/shm.md), in what NCCL's tuning takes: it wants a rate and a
  // latency to choose channels and protocols by.
  if (device.speed_mbps == 0) device.speed_mbps = beyond ? 10'000 : device.gpu_memory ? 3'000'000 : 80'000;
  device.latency_us = beyond ? 20.0F : device.gpu_memory ? 8.0F : 2.0F;
  device.guid = host ^ std::hash<std::string>()(device.name);
}

// One thread copies a few GB/s through sockets or shared memory, and a second one nearly as much again where it has a
// core. A GPU's copies are its driver's, of which small ones took longer by two (docs/nccl.md); NICs move the bytes by
// themselves; a port that was asked for is one engine's.
std::uint32_t engines_of(const Device& device) {
  if (device.settings.engines != 0) return device.settings.engines;
  if (device.settings.engine.progress == Progress::threads || device.settings.has_own_port() || device.gpu_memory)
    return 1;
  const Endpoint& first = *device.engines.front();
  if (device.settings.beyond_this_host() && (first.has("verbs") || first.has("fabric"))) return 1;
  return std::thread::hardware_concurrency() >= kCoresForTwo ? 2 : 1;
}

std::string why_no_gpu_memory(const Device& device) {
  if (!device.settings.gpu_memory)
    return "FAIRWAY_GPU_MEMORY is not on (it is for programs that make no calls of CUDA while collectives run)";
  if (device.settings.beyond_this_host())
    return "beyond this host it goes by NICs alone, and the transport verbs is not in use (`fairway topo` says why)";
  return "the transport cuda is not in use (`fairway topo` says why)";
}

std::string route_text(const Explanation& plan) {
  std::string text = "to " + plan.peer + " by";
  std::string left;
  for (const ExplainedLink& link : plan.links) {
    if (!link.taken) {
      left += (left.empty() ? "" : ", ") + link.name + (link.reason.empty() ? "" : " (" + link.reason + ")");
      continue;
    }
    text += " " + link.name;
    if (link.expected_high > 0)
      text += ", should reach " + gigabytes(link.expected_low) + " to " + gigabytes(link.expected_high) + " GB/s,";
    else
      text += ", rate not known,";
  }
  text.back() = ';';
  for (const std::string& note : plan.notes) text += " " + note + ";";
  return left.empty() ? text.substr(0, text.size() - 1) : text + " not by " + left;
}

}  // namespace fairway::nccl
