#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "topology/sysfs.h"
#include "topology/text.h"

namespace fairway::topology {

std::optional<std::string> FileTree::text(const std::string& path) {
  auto content = read_file(path, 256 * 1024);
  if (content) {
    const auto trimmed = text::trim(*content);
    if (trimmed.empty()) return {};
    return std::string(trimmed);
  }
  // An absent attribute, or one that does not apply now (the speed of a link that is down), is not an error.
  const auto error = content.status();
  if (error.code() != ErrorCode::not_found && error.code() != ErrorCode::unsupported) {
    add_note(*machine_, NoteKind::unreadable, "", error.message());
  }
  return {};
}

std::optional<std::uint64_t> FileTree::number(const std::string& path) {
  const auto content = text(path);
  return content ? text::to_unsigned(*content) : std::nullopt;
}

std::optional<std::uint32_t> FileTree::hex(const std::string& path) {
  const auto content = text(path);
  const auto value = content ? text::to_hex(*content) : std::nullopt;
  if (!value || *value > 0xffffffffU) return {};
  return static_cast<std::uint32_t>(*value);
}

std::vector<std::string> FileTree::list(const std::string& path) {
  auto names = list_directory(path, kMaxPciDevices);
  if (names) return std::move(names).value();
  if (names.status().code() == ErrorCode::out_of_range && status.is_ok()) status = names.status();
  if (names.status().code() == ErrorCode::access_denied) {
    add_note(*machine_, NoteKind::unreadable, "", names.status().message());
  }
  return {};
}

std::optional<std::string> FileTree::link_name(const std::string& path) {
  const auto target = read_link(path);
  if (!target) return {};
  return std::string(file_name(*target));
}

std::optional<BusId> FileTree::pci_function(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), &std::free);
  std::string way = real ? std::string(real.get()) : std::string();
  if (!real) {
    // A captured link may point outside of the capture: its target still has the path.
    const auto target = read_link(path);
    if (!target) return {};
    way = *target;
  }
  std::optional<BusId> innermost;
  for (const auto part : text::split(way, '/')) {
    if (const auto bus = BusId::parse(part)) innermost = bus;
  }
  return innermost;
}

void FileTree::fill(Fact<std::string>& fact, const std::string& path) {
  if (const auto content = text(path)) fact.learn(text::quote(*content, 200), Source::sysfs);
}

void FileTree::fill(Fact<std::uint32_t>& fact, const std::string& path) {
  const auto value = number(path);
  if (value && *value <= 0xffffffffU) fact.learn(static_cast<std::uint32_t>(*value), Source::sysfs);
}

void FileTree::fill_hex(Fact<std::uint32_t>& fact, const std::string& path) {
  if (const auto value = hex(path)) fact.learn(*value, Source::sysfs);
}

namespace {

// The value of a "key : value" line.
std::optional<std::string> field(std::string_view content, std::string_view key) {
  for (const auto line : text::lines(content)) {
    const auto colon = line.find(':');
    if (colon != line.npos && text::trim(line.substr(0, colon)) == key) {
      return text::quote(text::trim(line.substr(colon + 1)), 120);
    }
  }
  return {};
}

void read_cpuinfo(FileTree& tree, Machine& machine) {
  if (!tree.has_proc()) return;
  // The first processor stands for all: the head of the file is enough.
  const auto content = read_file(tree.proc("cpuinfo"), 8U << 20);
  if (!content) return;
  const auto head = std::string_view(*content).substr(0, 8192);
  if (const auto v = field(head, "vendor_id")) machine.cpu_vendor.learn(*v, Source::procfs);
  const auto number = [&head](const char* key) {
    const auto v = field(head, key);
    return v ? text::to_u32(*v) : std::nullopt;
  };
  if (const auto v = number("cpu family")) machine.cpu_family.learn(*v, Source::procfs);
  if (const auto v = number("model")) machine.cpu_model_number.learn(*v, Source::procfs);
  for (auto& package : machine.packages) {
    if (const auto v = field(head, "model name"); v && !package.model) package.model.set(*v, Source::procfs);
    if (!package.vendor) package.vendor = machine.cpu_vendor;
    if (!package.family) package.family = machine.cpu_family;
    if (!package.model_number) package.model_number = machine.cpu_model_number;
  }
}

void read_packages(FileTree& tree, Machine& machine) {
  std::map<std::uint32_t, CpuSet> packages;
  for (const auto& name : tree.list(tree.sys("devices/system/cpu"))) {
    const auto cpu = name.starts_with("cpu") ? text::to_u32(std::string_view(name).substr(3)) : std::nullopt;
    if (!cpu || *cpu > CpuSet::kMaxCpu) continue;
    const auto id = tree.number(tree.sys("devices/system/cpu/" + name + "/topology/physical_package_id"));
    if (id && *id <= 65535) packages[static_cast<std::uint32_t>(*id)].add(*cpu, *cpu);
  }
  for (const auto& [id, cpus] : packages) {
    auto& package = machine.packages.emplace_back();
    package.os_index = id;
    package.cpus.set(cpus, Source::sysfs);
  }
}

void read_nodes(FileTree& tree, Machine& machine) {
  std::vector<std::uint32_t> indexes;
  for (const auto& name : tree.list(tree.sys("devices/system/node"))) {
    const auto index = name.starts_with("node") ? text::to_u32(std::string_view(name).substr(4)) : std::nullopt;
    if (index && *index <= 4095) indexes.push_back(*index);
  }
  std::ranges::sort(indexes);
  for (const auto index : indexes) {
    const auto base = tree.sys("devices/system/node/node" + std::to_string(index));
    auto& node = machine.numa_nodes.emplace_back();
    node.os_index = index;
    if (const auto list = tree.text(base + "/cpulist")) {
      if (const auto cpus = CpuSet::parse_list(*list)) node.cpus.set(*cpus, Source::sysfs);
    } else if (exists(base + "/cpulist")) {
      node.cpus.set({}, Source::sysfs);  // memory without CPUs: CXL, GPU memory
    }
    if (const auto meminfo = tree.text(base + "/meminfo")) {
      // "Node 0 MemTotal:  4811048 kB"
      const auto words = text::words(text::lines(*meminfo).front());
      const auto kib = words.size() > 3 ? text::to_unsigned(words[3]) : std::nullopt;
      if (kib && *kib < (1ULL << 50)) node.memory_bytes.set(*kib * 1024, Source::sysfs);
    }
    for (std::size_t i = 0; i < machine.packages.size() && node.cpus; ++i) {
      if (!node.cpus->empty() && machine.packages[i].cpus && machine.packages[i].cpus->includes(*node.cpus)) {
        node.package = Ref<Package>(i);
      }
    }
  }
}

void read_distances(FileTree& tree, Machine& machine) {
  for (auto& node : machine.numa_nodes) {
    if (node.distances) continue;
    const auto content = tree.text(tree.sys("devices/system/node/node" + std::to_string(node.os_index) + "/distance"));
    if (!content) continue;
    std::vector<std::uint32_t> row;
    for (const auto word : text::words(*content)) row.push_back(text::to_u32(word).value_or(0));
    if (row.size() == machine.numa_nodes.size()) node.distances.set(std::move(row), Source::sysfs);
  }
}

// The host's memory, and whether its nodes' figures are to be believed. A kernel may add memory to a node while it
// runs, so that the node's figure grows as memory is touched and says nothing: seen 4.6 GiB of 252. A container's
// MemTotal may be its limit, below what the nodes have.
void read_memory(FileTree& tree, Machine& machine) {
  const auto content = tree.text(tree.proc("meminfo"));
  const auto total = content ? field(*content, "MemTotal") : std::nullopt;
  const auto words = total ? text::words(*total) : std::vector<std::string_view>();
  const auto kib = words.size() == 2 && words[1] == "kB" ? text::to_unsigned(words[0]) : std::nullopt;
  if (!kib || *kib == 0 || *kib >= (1ULL << 50)) return;
  machine.memory_bytes.set(*kib * 1024, Source::procfs);
  std::uint64_t sum = 0;
  for (const auto& node : machine.numa_nodes) {
    if (!node.memory_bytes) return;
    sum += *node.memory_bytes;
  }
  const auto gib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1ULL << 30); };
  const double has = gib(*machine.memory_bytes), said = gib(sum);
  if (machine.numa_nodes.empty() || std::abs(has - said) <= 0.02 * has) return;
  if (said > has) {
    return add_note(machine, NoteKind::conflict, "meminfo",
                    fmt::format("the host has {:.1f} GiB (MemTotal), its NUMA nodes {:.1f} GiB together: a container's "
                                "limit, or memory that the kernel keeps back",
                                has, said));
  }
  for (auto& node : machine.numa_nodes) node.memory_bytes.forget();
  add_note(machine, NoteKind::conflict, "meminfo",
           fmt::format("the host has {:.1f} GiB (MemTotal), its NUMA nodes say {:.1f} GiB together: the nodes' figures "
                       "grow as memory is used, and are left out",
                       has, said));
}

// arm64 has no flag for a hypervisor: the firmware's maker tells. None for makers of hardware.
std::optional<std::string> maker_of_guests(FileTree& tree) {
  const auto maker = tree.text(tree.sys("class/dmi/id/sys_vendor"));
  if (!maker) return {};
  const auto product = tree.text(tree.sys("class/dmi/id/product_name")).value_or("");
  // EC2's bare metal says so in its name; Google and Microsoft sell hardware too.
  const bool amazon = maker->starts_with("Amazon EC2") && product.find("metal") == std::string::npos;
  const bool google = maker->starts_with("Google") && product.find("Compute Engine") != std::string::npos;
  const bool microsoft = maker->starts_with("Microsoft") && product.find("Virtual Machine") != std::string::npos;
  bool other = false;
  for (const auto* name : {"QEMU", "VMware", "Xen", "innotek", "Parallels", "OpenStack"})
    other |= maker->starts_with(name);
  return amazon || google || microsoft || other ? std::optional(text::quote(*maker)) : std::nullopt;
}

}  // namespace

void read_sysfs_host(FileTree& tree, Machine& machine, bool with_packages_and_nodes) {
  if (with_packages_and_nodes) {
    read_packages(tree, machine);
    read_nodes(tree, machine);
  }
  read_distances(tree, machine);
  read_cpuinfo(tree, machine);
  tree.fill(machine.product, tree.sys("class/dmi/id/product_name"));
  if (!tree.has_proc()) return;
  read_memory(tree, machine);
  if (const auto release = tree.text(tree.proc("sys/kernel/osrelease"))) {
    machine.kernel.set(text::quote(*release), Source::procfs);
  }
  if (const auto name = tree.text(tree.proc("sys/kernel/hostname"))) {
    machine.host_name.set(text::quote(*name), Source::procfs);
  }
  if (const auto info = read_file(tree.proc("cpuinfo"), 8U << 20)) {
    const auto flags = field(std::string_view(*info).substr(0, 16384), "flags");
    // `quote` in field() cuts long values: look at the line itself.
    const auto at = info->find("\nflags");
    const auto line = at == std::string::npos ? std::string_view{} : std::string_view(*info).substr(at, 8192);
    const auto end = line.find('\n', 1);
    if (flags && line.substr(0, end).find(" hypervisor") != line.npos) {
      const auto maker = tree.text(tree.sys("class/dmi/id/sys_vendor"));
      machine.virtual_machine.set(maker ? text::quote(*maker) : "unnamed hypervisor",
                                  maker ? Source::sysfs : Source::procfs);
    } else if (flags) {
      machine.virtual_machine.set("none", Source::procfs);
    }
  }
  if (!machine.virtual_machine) {
    if (const auto maker = maker_of_guests(tree)) machine.virtual_machine.set(*maker, Source::sysfs);
  }
}

}  // namespace fairway::topology
