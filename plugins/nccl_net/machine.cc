#include "nccl_net/machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include <sys/stat.h>

#include "nccl_net/network.h"

namespace fairway::nccl {
namespace {

std::string first_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

// Mb/s, 0: the driver does not say.
int speed_of(const std::string& interface) {
  const std::string line = first_line("/sys/class/net/" + interface + "/speed");
  const int speed = std::atoi(line.c_str());
  return std::max(speed, 0);
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
  // Between hosts nothing takes GPU memory yet, and NCCL asks once for all peers.
  device.gpu_memory = device.main->has("cuda") && !beyond && device.settings.gpu_memory;
  const auto& interfaces = device.settings.engine.interfaces;
  device.name = "fairway";
  for (const std::string& interface : interfaces) {
    device.name += (device.name == "fairway" ? ":" : "+") + interface;
    device.speed_mbps += speed_of(interface);
  }
  if (interfaces.size() == 1) {
    std::error_code none;
    const auto path = std::filesystem::canonical("/sys/class/net/" + interfaces.front() + "/device", none);
    if (!none) device.pci_path = path.string();
  }
  // What the paths of one host reach (docs/cuda.md, docs/shm.md), in what NCCL's tuning takes: it wants a rate and a
  // latency to choose channels and protocols by.
  if (device.speed_mbps == 0) device.speed_mbps = device.gpu_memory ? 3'000'000 : beyond ? 10'000 : 80'000;
  device.latency_us = device.gpu_memory ? 8.0F : beyond ? 20.0F : 2.0F;
  device.guid = host ^ std::hash<std::string>()(device.name);
}

std::string why_no_gpu_memory(const Device& device) {
  if (!device.settings.gpu_memory)
    return "FAIRWAY_GPU_MEMORY is not on (it is for programs that make no calls of CUDA while collectives run)";
  if (!device.main->has("cuda")) return "the transport cuda is not in use (`fairway topo` says why)";
  return "FAIRWAY_LISTEN reaches beyond this host, where GPU memory does not go yet";
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
