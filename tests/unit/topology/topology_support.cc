#include "topology_support.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <unistd.h>

namespace fairway::topology {

namespace fs = std::filesystem;

std::string fixtures() {
  const auto path = fs::path(FAIRWAY_SOURCE_DIR) / ".." / "shared" / "fixtures";
  return fs::is_directory(path) ? path.lexically_normal().string() : std::string();
}

std::string recorded_machines() {
  return std::string(FAIRWAY_SOURCE_DIR) + "/tests/machines";
}

TempFolder::TempFolder() {
  // In memory where there is such a place: a captured tree is thousands of tiny files.
  const auto base = ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
  auto pattern = (base / "fairway-topology-XXXXXX").string();
  const char* made = ::mkdtemp(pattern.data());
  EXPECT_NE(made, nullptr);
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void TempFolder::write(const std::string& file, const std::string& text) const {
  const auto path = fs::path(path_) / file;
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

void TempFolder::link(const std::string& file, const std::string& target) const {
  const auto path = fs::path(path_) / file;
  fs::create_directories(path.parent_path());
  fs::create_symlink(target, path);
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) out.push_back(entry.path().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

namespace {

struct PciFunction {
  std::string path;  // below sys/devices
  std::string class_code;
  unsigned vendor;
  unsigned numa;
};

void write_function(const TempFolder& folder, const PciFunction& function) {
  const auto base = "sys/devices/" + function.path;
  folder.write(base + "/class", function.class_code + "\n");
  folder.write(base + "/vendor", fmt::format("0x{:04x}\n", function.vendor));
  folder.write(base + "/device", "0x1021\n");
  folder.write(base + "/numa_node", fmt::format("{}\n", function.numa));
  folder.write(base + "/current_link_speed", "32.0 GT/s PCIe\n");
  folder.write(base + "/max_link_speed", "32.0 GT/s PCIe\n");
  folder.write(base + "/current_link_width", "16\n");
  folder.write(base + "/max_link_width", "16\n");
  folder.write(base + "/local_cpulist", function.numa == 0 ? "0-3,8-11\n" : "4-7,12-15\n");
  folder.link("sys/bus/pci/devices/" + fs::path(function.path).filename().string(),
              "../../../devices/" + function.path);
}

void write_rdma(const TempFolder& folder, const std::string& name, const std::string& function) {
  const auto device = "sys/devices/" + function;
  const auto base = device + "/infiniband/" + name;
  folder.link("sys/class/infiniband/" + name, "../../devices/" + function + "/infiniband/" + name);
  folder.link(base + "/device", "../..");
  folder.write(base + "/node_type", "1: CA\n");
  folder.write(base + "/fw_ver", "28.41.1000\n");
  folder.write(base + "/node_guid", "a088:c203:0012:3456\n");
  const auto port = base + "/ports/1";
  folder.write(port + "/link_layer", "Ethernet\n");
  folder.write(port + "/state", "4: ACTIVE\n");
  folder.write(port + "/phys_state", "5: LinkUp\n");
  folder.write(port + "/rate", "400 Gb/sec (4X NDR)\n");
  folder.write(port + "/pkeys/0", "0xffff\n");
  folder.write(port + "/counters/port_rcv_data", "12345678901\n");
  folder.write(port + "/gids/0", "fe80:0000:0000:0000:a288:c2ff:fe12:3456\n");
  folder.write(port + "/gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
  folder.write(port + "/gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n");
  for (const char* index : {"0", "1"}) {
    folder.write(port + "/gid_attrs/types/" + index, "RoCE v2\n");
    folder.write(port + "/gid_attrs/ndevs/" + index, "eth_" + name + "\n");
  }
  const auto net = device + "/net/eth_" + name;
  folder.link("sys/class/net/eth_" + name, "../../devices/" + function + "/net/eth_" + name);
  folder.link(net + "/device", "../..");
  folder.write(net + "/operstate", "up\n");
  folder.write(net + "/mtu", "9000\n");
  folder.write(net + "/speed", "400000\n");
  folder.write(net + "/address", "a0:88:c2:12:34:56\n");
}

}  // namespace

void write_server_tree(const TempFolder& folder, unsigned gpus, unsigned nics) {
  for (unsigned node = 0; node < 2; ++node) {
    const auto base = fmt::format("sys/devices/system/node/node{}", node);
    folder.write(base + "/cpulist", node == 0 ? "0-3,8-11\n" : "4-7,12-15\n");
    folder.write(base + "/meminfo", fmt::format("Node {} MemTotal: 1056555000 kB\n", node));
    folder.write(base + "/distance", node == 0 ? "10 21\n" : "21 10\n");
  }
  for (unsigned cpu = 0; cpu < 16; ++cpu) {
    const bool first = cpu % 8 < 4;
    folder.write(fmt::format("sys/devices/system/cpu/cpu{}/topology/physical_package_id", cpu), first ? "0\n" : "1\n");
  }
  const auto per_gpu = nics / gpus;
  unsigned nic = 0;
  for (unsigned gpu = 0; gpu < gpus; ++gpu) {
    const unsigned numa = gpu < gpus / 2 ? 0 : 1;
    const unsigned bus = 0x10 + 0x18 * gpu;
    const auto root = fmt::format("pci0000:{:02x}", bus);
    const auto port = fmt::format("{}/0000:{:02x}:01.0", root, bus);
    const auto up = fmt::format("{}/0000:{:02x}:00.0", port, bus + 1);
    write_function(folder, {port, "0x060400", 0x8086, numa});
    write_function(folder, {up, "0x060400", 0x1000, numa});
    for (unsigned k = 0; k <= per_gpu; ++k) {
      const auto down = fmt::format("{}/0000:{:02x}:{:02x}.0", up, bus + 2, k);
      const auto below = fmt::format("{}/0000:{:02x}:00.0", down, bus + 3 + k);
      write_function(folder, {down, "0x060400", 0x1000, numa});
      write_function(folder, {below, k == 0 ? "0x030200" : "0x020000", k == 0 ? 0x10deU : 0x15b3U, numa});
      if (k > 0) write_rdma(folder, fmt::format("mlx5_{}", nic++), below);
    }
  }
}

}  // namespace fairway::topology
