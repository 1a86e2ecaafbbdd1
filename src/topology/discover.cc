#include "topology/discover.h"

#include <array>
#include <map>
#include <memory>
#include <mutex>

#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include "topology/load.h"
#include "topology/sysfs.h"

namespace fairway::topology {
namespace {

void read_addresses(Machine& machine) {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) {
    add_note(machine, NoteKind::unreadable, "", "getifaddrs failed: which interfaces have an address is unknown");
    return;
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(raw, &::freeifaddrs);
  std::map<std::string, std::vector<std::string>> by_name;
  for (auto* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const auto family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const auto size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::array<char, NI_MAXHOST> text;
    if (::getnameinfo(entry->ifa_addr, static_cast<socklen_t>(size), text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST) == 0) {
      by_name[entry->ifa_name].emplace_back(text.data());
    }
  }
  for (auto& interface : machine.interfaces) {
    const auto found = by_name.find(interface.name);
    interface.has_address.set(found != by_name.end(), Source::netlink);
    if (found != by_name.end()) interface.addresses.set(std::move(found->second), Source::netlink);
  }
}

void read_kernel(Machine& machine) {
  utsname name{};
  if (::uname(&name) == 0) machine.architecture.learn(name.machine, Source::procfs);
}

Result<Machine> finish(Machine machine, const Status& status, bool keep_identities) {
  if (!status) return status;
  complete(machine);
  if (!keep_identities) scrub(machine);
  if (auto valid = validate(machine); !valid) return valid;
  return machine;
}

void read_files(FileTree& tree, Machine& machine, bool with_packages_and_nodes) {
  read_sysfs_host(tree, machine, with_packages_and_nodes);
  read_sysfs_pci(tree, machine);
  read_sysfs_network(tree, machine);
  read_sysfs_rdma(tree, machine, tree.sys("class/infiniband"));
}

// A copy of /sys/class/infiniband alone: devices with their ports.
bool holds_rdma_devices(const std::string& directory) {
  const auto names = list_directory(directory, kMaxPciDevices);
  if (!names) return false;
  for (const auto& name : *names) {
    if (is_directory(directory + "/" + name + "/ports/1")) return true;
  }
  return false;
}

// One at a time in a process, although each of its engines may ask: hwloc uses libudev, which is not thread-safe.
Result<Machine> discover_live(const DiscoverOptions& options) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  Machine machine;
  machine.name = "this machine";
  read_kernel(machine);
  bool tree_known = false;
  if (options.use_hwloc) {
    const auto status = read_hwloc(machine);
    tree_known = status.is_ok();
    if (!status) add_note(machine, NoteKind::unreadable, "hwloc", status.message() + ": the tree is read from sysfs");
  }
  FileTree tree("/sys", "/proc", machine);
  read_files(tree, machine, !tree_known);
  read_addresses(machine);
  if (options.use_gpu_driver) {
    complete(machine);
    const auto status = read_nvml(machine);
    if (!status) add_note(machine, NoteKind::unreadable, "NVML", status.message());
  }
  if (options.use_verbs && !machine.rdma.empty()) {
    const auto status = read_verbs(machine);
    if (!status) add_note(machine, NoteKind::unreadable, "libibverbs", status.message());
  }
  return finish(std::move(machine), tree.status, options.keep_identities);
}

}  // namespace

Result<Machine> discover(const DiscoverOptions& options) {
  if (options.root == "/" || options.root.empty()) return discover_live(options);
  // A captured root, a captured /sys, or a captured /sys/class/infiniband.
  auto root = options.root;
  while (root.size() > 1 && root.ends_with('/')) root.pop_back();
  if (!is_directory(root)) return Status(ErrorCode::not_found, root + ": is no directory");
  std::string sys = root + "/sys";
  std::string proc = is_directory(root + "/proc") ? root + "/proc" : "";
  if (!is_directory(sys)) sys = root;
  Machine machine;
  machine.name = std::string(file_name(root));
  FileTree tree(sys, proc, machine);
  if (holds_rdma_devices(root)) {
    read_sysfs_rdma(tree, machine, root);
  } else {
    read_files(tree, machine, true);
  }
  if (machine.pci.empty())
    add_note(machine, NoteKind::unknown, "", "the capture has no PCI devices: where its devices sit is unknown");
  return finish(std::move(machine), tree.status, options.keep_identities);
}

Result<Machine> read_sysfs_tree(const std::string& directory) {
  DiscoverOptions options;
  options.root = directory;
  options.keep_identities = true;
  return discover(options);
}

}  // namespace fairway::topology
