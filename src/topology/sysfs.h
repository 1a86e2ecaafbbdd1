#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/file.h"
#include "topology/machine.h"

// The parts of discovery that read files: a living /sys and /proc, or a captured copy of them.
namespace fairway::topology {

// Where the files are and what could not be read of them. One per discovery, used by one thread.
class FileTree {
 public:
  // sys and proc are directories; an empty one is absent.
  FileTree(std::string sys, std::string proc, Machine& machine)
      : sys_(std::move(sys)), proc_(std::move(proc)), machine_(&machine) {}

  [[nodiscard]] std::string sys(std::string_view path) const { return sys_ + "/" + std::string(path); }
  [[nodiscard]] std::string proc(std::string_view path) const { return proc_ + "/" + std::string(path); }
  [[nodiscard]] bool has_proc() const { return !proc_.empty(); }

  // The text of a small file, trimmed. Nothing where it is absent or empty; where the system refuses it, nothing and a
  // note.
  std::optional<std::string> text(const std::string& path);
  std::optional<std::uint64_t> number(const std::string& path);  // decimal
  std::optional<std::uint32_t> hex(const std::string& path);
  // Names in a directory; none where it is absent. More than kMaxPciDevices set `status`.
  std::vector<std::string> list(const std::string& path);
  // The last part of what a link points at: a driver's name, a master's.
  static std::optional<std::string> link_name(const std::string& path);
  // The innermost PCI function in the real path of a device directory.
  static std::optional<BusId> pci_function(const std::string& path);

  void fill(Fact<std::string>& fact, const std::string& path);
  void fill(Fact<std::uint32_t>& fact, const std::string& path);  // decimal
  void fill_hex(Fact<std::uint32_t>& fact, const std::string& path);

  Status status;  // the first thing that ends the discovery

 private:
  std::string sys_;
  std::string proc_;
  Machine* machine_;
};

// Each adds what it finds; complete() joins them. The order is: host, pci, network, rdma.
void read_sysfs_host(FileTree& tree, Machine& machine, bool with_packages_and_nodes);
// Skips the tree's shape (parents, host bridges) where `machine.pci` has devices already, and fills their facts.
void read_sysfs_pci(FileTree& tree, Machine& machine);
void read_sysfs_network(FileTree& tree, Machine& machine);
void read_sysfs_rdma(FileTree& tree, Machine& machine, const std::string& directory);  // of /sys/class/infiniband

// "pci0000:4e": domain and number of a root bus.
std::optional<std::pair<std::uint32_t, std::uint8_t>> root_bus(std::string_view part);

// Whether a device is worth keeping: GPUs, network and storage functions, NVSwitches, accelerators, and every bridge.
bool is_kept(std::uint32_t class_code, std::uint32_t vendor_id);
// Drops bridges with nothing kept below them.
void drop_empty_bridges(Machine& machine);

// The text of a /proc/net/bonding file; false where it is none. Legs become interfaces where they are not yet any.
bool read_bonding(std::string_view content, const std::string& bond_name, Source source, Machine& machine);

// The scope of a GID's text: "link-local", "IPv4", "IPv6" or, on InfiniBand, "InfiniBand".
std::string gid_scope(std::string_view gid, bool ethernet);

}  // namespace fairway::topology
