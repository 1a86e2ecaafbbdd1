#include "nccl_net/nic.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace fairway::nccl {
namespace {

std::string first_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::string place_of(const std::filesystem::path& device) {
  std::error_code none;
  const auto path = std::filesystem::canonical(device / "device", none);
  return none ? std::string() : path.string();
}

}  // namespace

Nic read_nic(const std::string& rail, const std::string& sys) {
  const std::filesystem::path classes = std::filesystem::path(sys) / "class";
  const std::size_t slash = rail.find('/');
  const auto device = classes / "infiniband" / rail.substr(0, slash);
  Nic nic;
  std::error_code none;
  nic.rdma = !rail.empty() && slash != 0 && std::filesystem::is_directory(device, none);
  if (!nic.rdma) {
    nic.speed_mbps = std::max(std::atoi(first_line(classes / "net" / rail / "speed").c_str()), 0);
    nic.pci_path = place_of(classes / "net" / rail);
    return nic;
  }
  if (slash != std::string::npos)
    // The engine rejects a bad port number.
    std::from_chars(rail.data() + slash + 1, rail.data() + rail.size(), nic.port);
  // "200 Gb/sec (2X NDR)"
  const std::string rate = first_line(device / "ports" / std::to_string(nic.port) / "rate");
  nic.speed_mbps = static_cast<int>(std::strtod(rate.c_str(), nullptr) * 1000);
  nic.pci_path = place_of(device);
  // A software device (soft-RoCE) is where its interface is.
  if (nic.pci_path.empty())
    if (const std::string parent = first_line(device / "parent"); !parent.empty())
      nic.pci_path = place_of(classes / "net" / parent);
  return nic;
}

}  // namespace fairway::nccl
