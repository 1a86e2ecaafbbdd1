#include "topology/fact.h"

#include <algorithm>

#include <fmt/format.h>

#include "topology/machine.h"
#include "topology/text.h"

// Texts of bus ids and sets of CPUs, and the names of all enumerations.
namespace fairway::topology {

std::optional<BusId> BusId::parse(std::string_view input) {
  // "DOMAIN:BUS:DEVICE.FUNCTION", or without the domain.
  const auto dot = input.find('.');
  const auto last = dot == input.npos ? dot : input.rfind(':', dot);
  if (last == input.npos || last == 0 || input.find_first_of(".:", dot + 1) != input.npos) return {};
  const auto first = input.rfind(':', last - 1);
  const bool has_domain = first != input.npos;
  if (has_domain && input.find(':') != first) return {};

  const auto field = [](std::string_view s, std::size_t digits, std::uint64_t limit) -> std::optional<std::uint64_t> {
    if (s.empty() || s.size() > digits || s.find_first_not_of("0123456789abcdefABCDEF") != s.npos) return {};
    const auto value = text::to_hex(s);
    return value && *value <= limit ? value : std::nullopt;
  };
  std::optional<std::uint64_t> domain = 0;
  if (has_domain) domain = field(input.substr(0, first), 8, 0xffffffff);
  const auto begin = has_domain ? first + 1 : 0;
  const auto bus = field(input.substr(begin, last - begin), 2, 0xff);
  const auto device = field(input.substr(last + 1, dot - last - 1), 2, 0x1f);
  const auto function = field(input.substr(dot + 1), 1, 0x7);
  if (!domain || !bus || !device || !function) return {};
  return BusId{static_cast<std::uint32_t>(*domain), static_cast<std::uint8_t>(*bus), static_cast<std::uint8_t>(*device),
               static_cast<std::uint8_t>(*function)};
}

std::string BusId::to_string() const {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function);
}

void CpuSet::add(std::uint32_t first, std::uint32_t last) {
  Range added{first, last};
  std::vector<Range> merged;
  merged.reserve(ranges_.size() + 1);
  for (const auto& range : ranges_) {
    const bool apart = range.last + 1 < added.first || added.last + 1 < range.first;
    if (apart) {
      merged.push_back(range);
    } else {
      added.first = std::min(added.first, range.first);
      added.last = std::max(added.last, range.last);
    }
  }
  merged.insert(std::ranges::upper_bound(merged, added.first, {}, &Range::first), added);
  ranges_ = std::move(merged);
}

std::optional<CpuSet> CpuSet::parse_list(std::string_view input) {
  CpuSet set;
  input = text::trim(input);
  if (input.empty()) return set;
  if (input.size() > 65536) return {};
  for (const auto part : text::split(input, ',')) {
    const auto ends = text::split(text::trim(part), '-');
    if (ends.size() > 2) return {};
    const auto first = text::to_u32(ends.front());
    const auto last = text::to_u32(ends.back());
    if (!first || !last || *first > *last || *last > kMaxCpu) return {};
    set.add(*first, *last);
  }
  return set;
}

std::optional<CpuSet> CpuSet::parse_mask(std::string_view input) {
  input = text::trim(input);
  if (input.empty()) return {};
  const auto words = text::split(input, ',');
  if (words.size() > (kMaxCpu + 1) / 32) return {};
  CpuSet set;
  std::uint32_t base = 0;
  for (auto word = words.rbegin(); word != words.rend(); ++word, base += 32) {
    auto digits = text::trim(*word);
    if (digits.starts_with("0x")) digits.remove_prefix(2);
    if (digits.empty()) continue;
    // A single long word is hwloc's way for small sets and sysfs' without commas.
    if (digits.size() > (words.size() == 1 ? 16U : 8U)) return {};
    const auto bits = text::to_hex(digits);
    if (!bits) return {};
    for (std::uint32_t bit = 0; bit < 64; ++bit) {
      if ((*bits >> bit) & 1U) set.add(base + bit, base + bit);
    }
  }
  return set;
}

std::uint32_t CpuSet::count() const {
  std::uint32_t n = 0;
  for (const auto& range : ranges_) n += range.last - range.first + 1;
  return n;
}

bool CpuSet::contains(std::uint32_t cpu) const {
  return std::ranges::any_of(ranges_, [cpu](const Range& range) { return range.first <= cpu && cpu <= range.last; });
}

bool CpuSet::intersects(const CpuSet& other) const {
  for (const auto& a : ranges_) {
    for (const auto& b : other.ranges_) {
      if (a.first <= b.last && b.first <= a.last) return true;
    }
  }
  return false;
}

bool CpuSet::includes(const CpuSet& other) const {
  return std::ranges::all_of(other.ranges_, [this](const Range& inner) {
    return std::ranges::any_of(
        ranges_, [&inner](const Range& outer) { return outer.first <= inner.first && inner.last <= outer.last; });
  });
}

std::string CpuSet::to_list() const {
  std::string out;
  for (const auto& range : ranges_) {
    if (!out.empty()) out += ',';
    out += range.first == range.last ? fmt::format("{}", range.first) : fmt::format("{}-{}", range.first, range.last);
  }
  return out;
}

std::string CpuSet::to_mask() const {
  std::vector<std::uint32_t> words(ranges_.empty() ? 1 : ranges_.back().last / 32 + 1, 0);
  for (const auto& range : ranges_) {
    for (auto cpu = range.first; cpu <= range.last; ++cpu) words[cpu / 32] |= 1U << (cpu % 32);
  }
  std::string out;
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    if (!out.empty()) out += ',';
    out += fmt::format("{:08x}", *word);
  }
  return out;
}

namespace {

constexpr NameTable<Source, 20> kSources{{{Source::none, "none"},
                                          {Source::hwloc, "hwloc"},
                                          {Source::sysfs, "sysfs"},
                                          {Source::procfs, "procfs"},
                                          {Source::nvml, "nvml"},
                                          {Source::verbs, "verbs"},
                                          {Source::netlink, "netlink"},
                                          {Source::hwloc_xml, "hwloc_xml"},
                                          {Source::nccl_xml, "nccl_xml"},
                                          {Source::rccl_xml, "rccl_xml"},
                                          {Source::topo_matrix, "topo_matrix"},
                                          {Source::lspci, "lspci"},
                                          {Source::ibv_devinfo, "ibv_devinfo"},
                                          {Source::ibdev2netdev, "ibdev2netdev"},
                                          {Source::ip_link, "ip_link"},
                                          {Source::ip_addr, "ip_addr"},
                                          {Source::bonding, "bonding"},
                                          {Source::hand_written, "hand_written"},
                                          {Source::catalogue, "catalogue"},
                                          {Source::derived, "derived"}}};

constexpr NameTable<NoteKind, 7> kNoteKinds{{{NoteKind::remark, "remark"},
                                             {NoteKind::unreadable, "unreadable"},
                                             {NoteKind::unknown, "unknown"},
                                             {NoteKind::conflict, "conflict"},
                                             {NoteKind::inferred, "inferred"},
                                             {NoteKind::lost, "lost"},
                                             {NoteKind::left_out, "left out"}}};

constexpr NameTable<NodeKind, 12> kNodeKinds{{{NodeKind::none, "none"},
                                              {NodeKind::package, "package"},
                                              {NodeKind::numa_node, "numa_node"},
                                              {NodeKind::host_bridge, "host_bridge"},
                                              {NodeKind::pci, "pci"},
                                              {NodeKind::gpu, "gpu"},
                                              {NodeKind::nic, "nic"},
                                              {NodeKind::rdma, "rdma"},
                                              {NodeKind::interface, "interface"},
                                              {NodeKind::bond, "bond"},
                                              {NodeKind::nv_switch, "nv_switch"},
                                              {NodeKind::net_switch, "net_switch"}}};

constexpr NameTable<PciKind, 6> kPciKinds{{{PciKind::endpoint, "endpoint"},
                                           {PciKind::root_port, "root_port"},
                                           {PciKind::switch_upstream, "switch_upstream"},
                                           {PciKind::switch_downstream, "switch_downstream"},
                                           {PciKind::pci_switch, "switch"},
                                           {PciKind::bridge, "bridge"}}};

constexpr NameTable<LinkKind, 3> kLinkKinds{
    {{LinkKind::nvlink, "nvlink"}, {LinkKind::xgmi, "xgmi"}, {LinkKind::c2c, "c2c"}}};

constexpr NameTable<InterfaceKind, 12> kInterfaceKinds{{{InterfaceKind::unknown, "unknown"},
                                                        {InterfaceKind::physical, "physical"},
                                                        {InterfaceKind::loopback, "loopback"},
                                                        {InterfaceKind::bond, "bond"},
                                                        {InterfaceKind::bridge, "bridge"},
                                                        {InterfaceKind::vlan, "vlan"},
                                                        {InterfaceKind::veth, "veth"},
                                                        {InterfaceKind::tun, "tun"},
                                                        {InterfaceKind::tunnel, "tunnel"},
                                                        {InterfaceKind::macvlan, "macvlan"},
                                                        {InterfaceKind::dummy, "dummy"},
                                                        {InterfaceKind::other, "other"}}};

constexpr NameTable<EdgeKind, 8> kEdgeKinds{{{EdgeKind::pcie, "pcie"},
                                             {EdgeKind::internal, "internal"},
                                             {EdgeKind::memory, "memory"},
                                             {EdgeKind::socket, "socket"},
                                             {EdgeKind::nvlink, "nvlink"},
                                             {EdgeKind::xgmi, "xgmi"},
                                             {EdgeKind::c2c, "c2c"},
                                             {EdgeKind::port, "port"}}};

}  // namespace

std::string_view to_string(Source source) {
  return name_of(kSources, source);
}
std::optional<Source> source_from(std::string_view text) {
  return value_of(kSources, text);
}
std::string_view to_string(NoteKind kind) {
  return name_of(kNoteKinds, kind);
}
std::optional<NoteKind> note_kind_from(std::string_view text) {
  return value_of(kNoteKinds, text);
}
std::string_view to_string(NodeKind kind) {
  return name_of(kNodeKinds, kind);
}
std::optional<NodeKind> node_kind_from(std::string_view text) {
  return value_of(kNodeKinds, text);
}
std::string_view to_string(PciKind kind) {
  return name_of(kPciKinds, kind);
}
std::optional<PciKind> pci_kind_from(std::string_view text) {
  return value_of(kPciKinds, text);
}
std::string_view to_string(LinkKind kind) {
  return name_of(kLinkKinds, kind);
}
std::optional<LinkKind> link_kind_from(std::string_view text) {
  return value_of(kLinkKinds, text);
}
std::string_view to_string(InterfaceKind kind) {
  return name_of(kInterfaceKinds, kind);
}
std::optional<InterfaceKind> interface_kind_from(std::string_view text) {
  return value_of(kInterfaceKinds, text);
}
std::string_view to_string(EdgeKind kind) {
  return name_of(kEdgeKinds, kind);
}

}  // namespace fairway::topology
