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

// Usable by this process: the engines of several ranks run beside NCCL's own threads.
constexpr unsigned kCoresForTwo = 16;

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
  // NCCL asks once for all peers, so GPU memory must be reachable by every path.
  device.gpu_memory = device.settings.gpu_memory && device.engines.front()->has(beyond ? "verbs" : "cuda");
  // The names of what the device uses: its rails, otherwise the interfaces.
  const auto& names = device.rails.empty() ? device.settings.engine.interfaces : device.rails;
  device.name = "fairway";
  for (const std::string& name : names) {
    const Nic nic = read_nic(name);
    device.name += (device.name == "fairway" ? ":" : "+") + name;
    device.speed_mbps += nic.speed_mbps;
    if (names.size() != 1) continue;
    device.port = nic.port;
    device.pci_path = nic.pci_path;
  }
  // Typical speeds of the paths within a host (docs/cuda.md, docs/shm.md) in the units of NCCL's tuning, which chooses
  // channels and protocols by a rate and a latency.
  if (device.speed_mbps == 0) device.speed_mbps = beyond ? 10'000 : device.gpu_memory ? 3'000'000 : 80'000;
  device.latency_us = beyond ? 20.0F : device.gpu_memory ? 8.0F : 2.0F;
  device.guid = host ^ std::hash<std::string>()(device.name);
}

// One thread copies a few GB/s through sockets or shared memory, and a second thread nearly doubles that where it has a
// core. Not for GPU memory: the driver copies it, and two engines made small copies slower (docs/nccl.md). Not for
// NICs, which move the bytes themselves. Not with a fixed port, which only one engine can have.
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
    return "FAIRWAY_GPU_MEMORY is not on (use it only in programs that make no CUDA calls while collectives run)";
  if (device.settings.beyond_this_host())
    return "between hosts GPU memory needs the transport verbs, which is not in use (`fairway topo` says why)";
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
      text += ", expected " + gigabytes(link.expected_low) + " to " + gigabytes(link.expected_high) + " GB/s,";
    else
      text += ", rate not known,";
  }
  text.back() = ';';
  for (const std::string& note : plan.notes) text += " " + note + ";";
  return left.empty() ? text.substr(0, text.size() - 1) : text + " not by " + left;
}

}  // namespace fairway::nccl
