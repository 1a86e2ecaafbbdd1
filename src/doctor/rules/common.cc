#include "doctor/rules/common.h"

#include <algorithm>
#include <array>

#include "doctor/cost.h"
#include "topology/devices.h"

namespace fairway::doctor {

namespace text = topology::text;

std::string some_names(const Machine& machine, const std::vector<NodeRef>& nodes) {
  if (nodes.empty()) return {};
  const auto first = name_of(machine, nodes.front());
  if (nodes.size() == 1) return first;
  if (nodes.size() == 2) return first + " and " + name_of(machine, nodes.back());
  return fmt::format("{} and {} others", first, nodes.size() - 1);
}

std::string folded_names(const Machine& machine, const std::vector<NodeRef>& nodes) {
  std::string out;
  for (std::size_t i = 0; i < nodes.size();) {
    const auto name = name_of(machine, nodes[i]);
    const auto digit = name.find_last_not_of("0123456789") + 1;
    const auto stem = name.substr(0, digit);
    auto number = text::to_u32(std::string_view(name).substr(digit));
    std::size_t end = i + 1;
    while (number && end < nodes.size() &&
           name_of(machine, nodes[end]) == fmt::format("{}{}", stem, *number + static_cast<std::uint32_t>(end - i))) {
      ++end;
    }
    out += (out.empty() ? "" : ", ") + name;
    if (end - i > 1) out += fmt::format("-{}", *number + static_cast<std::uint32_t>(end - i) - 1);
    i = end;
  }
  return out;
}

std::string joined_names(const Machine& machine, const std::vector<std::uint32_t>& nics) {
  std::string out;
  for (const auto nic : nics) out += (out.empty() ? "" : ",") + machine.nics[nic].name;
  return out;
}

Evidence evidence_of(const Facts& facts, const std::string& name, std::string_view said_as) {
  const auto* seen = facts.find(name);
  if (seen == nullptr) return {std::string(said_as), "unknown"};
  return {said_as.empty() ? seen->value : std::string(said_as), seen->where};
}

Level level_on_path(const Machine& machine, NodeRef device, Level level) {
  return on_a_path(machine, device) ? level : Level::note;
}

std::vector<std::uint32_t> nvidia_gpus(const Machine& machine) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    const auto& one = machine.gpus[gpu];
    const bool by_id = one.pci && machine.pci[one.pci.index].vendor_id.value_or(0) == topology::kVendorNvidia;
    if (one.vendor ? *one.vendor == "NVIDIA" : by_id) out.push_back(gpu);
  }
  return out;
}

bool is_ethernet(const topology::RdmaPort& port) {
  return port.link_layer.value_or("") == "Ethernet";
}

std::vector<RailPort> rail_ports(const Machine& machine) {
  std::vector<RailPort> out;
  for (const auto nic : rails(machine)) {
    if (const auto* port = port_of(machine, nic)) out.push_back({nic, port});
  }
  return out;
}

std::vector<RailPort> roce_ports(const Machine& machine) {
  auto out = rail_ports(machine);
  std::erase_if(out, [](const RailPort& rail) { return !is_ethernet(*rail.port); });
  return out;
}

std::vector<RailFunction> rail_functions(const Machine& machine, std::uint32_t vendor_id) {
  std::vector<RailFunction> out;
  for (const auto nic : bulk_nics(machine)) {
    const auto pci = topology::pci_of(machine, nic_ref(nic));
    if (pci && (vendor_id == 0 || machine.pci[pci.index].vendor_id.value_or(0) == vendor_id)) out.push_back({nic, pci});
  }
  return out;
}

std::optional<double> number_of(const RuleInput& input, const std::string& fact, RuleResult& result) {
  const auto number = input.facts.number(fact);
  if (!number) result.lacks(input.facts.why_not(fact));
  return number;
}

// NICs by type and board, where either is recorded.
std::map<std::string, std::vector<std::uint32_t>> alike_nics(const Machine& machine) {
  std::map<std::string, std::vector<std::uint32_t>> out;
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    const auto rdma = machine.nics[i].rdma;
    if (!rdma || machine.rdma[rdma.index].software.value_or(false)) continue;
    const auto& device = machine.rdma[rdma.index];
    if (!device.hca_type && !device.board_id) continue;
    out[device.hca_type.value_or("") + "/" + device.board_id.value_or("")].push_back(i);
  }
  return out;
}

std::vector<std::string> wires_of(const Machine& machine, std::uint32_t nic) {
  std::vector<std::string> out;
  const auto& one = machine.nics[nic];
  if (one.bond) {
    for (const auto& leg : machine.bonds[one.bond.index].legs)
      out.push_back(machine.interfaces[leg.interface.index].name);
  }
  const auto* port = port_of(machine, nic);
  if (out.empty()) out.push_back(port == nullptr ? "INTERFACE" : port->interface.value_or("INTERFACE"));
  return out;
}

std::string interface_of(const Machine& machine, std::uint32_t nic) {
  const auto bond = machine.nics[nic].bond;
  const auto own = bond ? machine.bonds[bond.index].interface : topology::Ref<topology::NetInterface> {};
  return own ? machine.interfaces[own.index].name : wires_of(machine, nic).front();
}

std::optional<std::uint32_t> nic_of_wire(const Machine& machine, const std::string& interface) {
  for (std::uint32_t nic = 0; nic < machine.nics.size(); ++nic) {
    const auto wires = wires_of(machine, nic);
    if (std::ranges::find(wires, interface) != wires.end()) return nic;
  }
  return {};
}

std::vector<std::string> interfaces_with_statistics(const Facts& facts) {
  std::vector<std::string> out;
  for (const auto& [name, seen] : facts.below("net")) {
    const auto at = name.rfind(".stat.");
    if (at == std::string::npos) continue;
    auto interface = name.substr(0, at);
    if (std::ranges::find(out, interface) == out.end()) out.push_back(std::move(interface));
  }
  return out;
}

std::string Statistic::text() const {
  return grown ? fmt::format("grew by {:.0f} since the baseline", value) : fmt::format("is {:.0f}", value);
}

Statistic statistic(const RuleInput& input, const std::string& interface, std::string_view counter) {
  Statistic out;
  out.fact = fmt::format("net.{}.stat.{}", interface, counter);
  out.now = out.value = input.facts.number(out.fact).value_or(0);
  const auto then = input.before == nullptr ? std::nullopt : input.before->number(out.fact);
  if (!then || out.now < *then) return out;
  out.grown = true;
  out.value = out.now - *then;
  return out;
}

void add_counted(const RuleInput& input, const std::string& interface, std::span<const char* const> counters,
                 std::string_view cause, const std::function<void(Finding&, std::optional<std::uint32_t>)>& mend,
                 RuleResult& result) {
  const auto nic = nic_of_wire(input.machine(), interface);
  const auto name = nic ? input.machine().nics[*nic].name : interface;
  const auto all = rails(input.machine());
  const bool matters = all.empty() || (nic && std::ranges::find(all, *nic) != all.end());
  if (matters && std::ranges::none_of(counters, [&](const char* counter) {
        return input.facts.find(statistic(input, interface, counter).fact) != nullptr;
      }))
    result.lacks(fmt::format("{}: none of its counters of {} is recorded", name, cause));
  for (const auto* counter : counters) {
    const auto count = statistic(input, interface, counter);
    if (count.value <= 0) continue;
    auto& finding = result.add();
    finding.title = fmt::format("{}: {} {}", name, counter, count.text());
    if (nic) finding.devices = {nic_ref(*nic)};
    finding.level = count.grown && nic ? Level::warning : Level::note;
    finding.path = name;
    finding.cause = fmt::format("{} {}", cause, name);
    finding.evidence.push_back(evidence_of(input.facts, count.fact, fmt::format("{} = {:.0f}", counter, count.now)));
    mend(finding, nic);
  }
}

bool is_mellanox(const Machine& machine, std::uint32_t nic) {
  const auto pci = topology::pci_of(machine, nic_ref(nic));
  if (pci && machine.pci[pci.index].vendor_id) return *machine.pci[pci.index].vendor_id == topology::kVendorMellanox;
  return machine.nics[nic].name.starts_with("mlx");
}

std::string show_pfc(const Machine& machine, std::uint32_t nic, const std::string& interface) {
  return is_mellanox(machine, nic) ? "mlnx_qos -i " + interface : "dcb pfc show dev " + interface;
}

namespace {

// "::ffff:172.16.4.10" and "0000:0000:0000:0000:0000:ffff:ac10:040a" as four numbers.
std::optional<std::array<std::uint32_t, 4>> ipv4_of(std::string_view gid) {
  const auto last = gid.substr(gid.rfind(':') + 1);
  std::array<std::uint32_t, 4> out{};
  if (last.find('.') != last.npos) {
    const auto parts = text::split(last, '.');
    if (parts.size() != 4) return {};
    for (std::size_t i = 0; i < 4; ++i) {
      const auto number = text::to_u32(parts[i]);
      if (!number || *number > 255) return {};
      out[i] = *number;
    }
    return out;
  }
  const auto parts = text::split(gid, ':');
  if (parts.size() < 2) return {};
  const auto high = text::to_hex(parts[parts.size() - 2]);
  const auto low = text::to_hex(parts.back());
  if (!high || !low || *high > 0xffff || *low > 0xffff) return {};
  return std::array<std::uint32_t, 4>{static_cast<std::uint32_t>(*high >> 8U), static_cast<std::uint32_t>(*high & 255U),
                                      static_cast<std::uint32_t>(*low >> 8U), static_cast<std::uint32_t>(*low & 255U)};
}

// The network of an IPv4 address, by the prefix that the interface has for it; 16 bits where that is not recorded.
std::string network_of(const Machine& machine, const topology::Gid& gid, const std::array<std::uint32_t, 4>& address) {
  std::uint32_t bits = 16;
  const auto own = fmt::format("{}.{}.{}.{}/", address[0], address[1], address[2], address[3]);
  for (const auto& interface : machine.interfaces) {
    if (!interface.addresses || (gid.interface && *gid.interface != interface.name)) continue;
    for (const auto& one : *interface.addresses) {
      if (one.starts_with(own)) bits = text::to_u32(std::string_view(one).substr(own.size())).value_or(bits);
    }
  }
  bits = std::min(bits, 32U);
  const auto whole = (address[0] << 24U) | (address[1] << 16U) | (address[2] << 8U) | address[3];
  const auto network = bits == 0 ? 0U : whole & (~0U << (32 - bits));
  return fmt::format("{}.{}.{}.{}/{}", network >> 24U, (network >> 16U) & 255U, (network >> 8U) & 255U, network & 255U,
                     bits);
}

}  // namespace

std::map<std::string, std::vector<NodeRef>> rail_networks(const Machine& machine) {
  std::map<std::string, std::vector<NodeRef>> out;
  for (const auto& [nic, port] : rail_ports(machine)) {
    for (const auto& gid : port->gids) {
      if (!gid.address) continue;
      std::string network;
      if (!is_ethernet(*port)) {
        network = "subnet " + text::lower(*gid.address).substr(0, 19);
      } else if (!is_routable(gid)) {
        continue;
      } else if (const auto address = gid.scope.value_or("") == "IPv4" ? ipv4_of(*gid.address) : std::nullopt) {
        network = network_of(machine, gid, *address);
      } else {
        network = text::lower(*gid.address).substr(0, 14) + "::/48";
      }
      out[network].push_back(nic_ref(nic));
      break;
    }
  }
  return out;
}

Finding nic_finding(const Machine& machine, std::uint32_t nic, std::string title) {
  Finding finding;
  finding.title = std::move(title);
  finding.devices = {nic_ref(nic)};
  finding.path = paths_text(machine, flows_through(machine, nic_ref(nic)));
  return finding;
}

std::vector<predict::Flow> gpu_flows(const Machine& machine) {
  std::vector<predict::Flow> out;
  for (const auto nic : rails(machine)) {
    for (auto& flow : flows_through(machine, nic_ref(nic))) {
      if (flow.from.kind == predict::EndpointKind::gpu) out.push_back(flow);
    }
  }
  return out;
}

void set_measured(Finding& finding, double now_gbps, double mended_gbps) {
  finding.confidence = Confidence::measured;
  finding.now_gbps = now_gbps;
  finding.mended_gbps = mended_gbps;
  finding.loss_gbps = mended_gbps - now_gbps;
}

std::optional<std::uint64_t> counter_of(const topology::RdmaPort& port, std::string_view name) {
  for (const auto* list : {&port.counters, &port.hw_counters}) {
    for (const auto& counter : *list) {
      if (counter.name == name) return counter.value;
    }
  }
  return {};
}

const topology::RdmaPort* port_before(const RuleInput& input, const std::string& device, std::uint32_t number) {
  if (input.before_machine == nullptr) return nullptr;
  const auto found = topology::find_rdma(*input.before_machine, device);
  if (!found) return nullptr;
  for (const auto& port : input.before_machine->rdma[found.index].ports) {
    if (port.number == number) return &port;
  }
  return nullptr;
}

std::optional<std::uint64_t> growth(const topology::RdmaPort* before, const topology::RdmaPort& now,
                                    std::string_view counter) {
  if (before == nullptr) return {};
  const auto a = counter_of(*before, counter);
  const auto b = counter_of(now, counter);
  if (!a || !b || *b < *a) return {};  // reset in between
  return *b - *a;
}

std::string interrupting(std::string command, Interrupts what, std::string_view remark) {
  command += what == Interrupts::gpus ? "    # ends every job on these GPUs"
                                      : "    # the port goes away for up to a minute, and ssh over it too";
  if (!remark.empty()) command += fmt::format("; {}", remark);
  return command;
}

std::string smi_id(const Machine& machine, std::uint32_t gpu) {
  const auto& one = machine.gpus[gpu];
  return topology::is_numbered(one) ? std::to_string(one.ordinal) : machine.pci[one.pci.index].bus_id.to_string();
}

std::string reset_of(const Machine& machine, std::uint32_t gpu, std::string_view remark) {
  const auto pci = machine.gpus[gpu].pci;
  const auto name = pci ? machine.pci[pci.index].bus_id.to_string() : std::to_string(machine.gpus[gpu].ordinal);
  return interrupting("nvidia-smi -r -i " + name, Interrupts::gpus, remark);
}

bool is_virtual_function(const RuleInput& input, topology::Ref<topology::PciDevice> pci) {
  const auto& device = input.machine().pci[pci.index];
  if (input.facts.find(pci_fact(input.machine(), pci, "physfn")) != nullptr) return true;
  if (device.device_name && device.device_name->find("Virtual Function") != std::string::npos) return true;
  // mlx5's, ice's and bnxt's ids of virtual functions (pci.ids).
  const auto vendor = device.vendor_id.value_or(0);
  const auto id = device.device_id.value_or(0);
  if (vendor == topology::kVendorMellanox)
    return id == 0x1014 || id == 0x1016 || id == 0x1018 || id == 0x101a || id == 0x101c || id == 0x101e;
  if (vendor == 0x8086) return id == 0x1889;
  return vendor == 0x14e4 && (id == 0x1806 || id == 0x1819);
}

std::vector<std::string> add_kernel_option(std::string_view option) {
  return {fmt::format("grubby --update-kernel=ALL --args={}    # Red Hat; then reboot", option),
          fmt::format("sed -i 's/^GRUB_CMDLINE_LINUX=\"/&{} /' /etc/default/grub && update-grub    # Debian, Ubuntu; "
                      "then reboot",
                      option)};
}

std::optional<std::uint32_t> gpu_of(const Measurement& row) {
  if (!row.flow) return {};
  for (const auto& end : {row.flow->from, row.flow->to}) {
    if (end.kind == predict::EndpointKind::gpu) return end.index;
  }
  return {};
}

std::optional<std::uint32_t> nic_of(const Machine& machine, const Measurement& row) {
  if (row.flow) {
    if (row.flow->loop) return *row.flow->loop;
    for (const auto& end : {row.flow->from, row.flow->to}) {
      if (end.kind == predict::EndpointKind::nic) return end.index;
    }
  }
  for (std::uint32_t i = 0; i < machine.nics.size() && !row.device.empty(); ++i) {
    if (machine.nics[i].name == row.device) return i;
  }
  return {};
}

std::string row_text(const Machine& machine, const Measurement& row) {
  std::string ends = row.flow ? predict::to_string(machine, *row.flow) : row.device;
  if (!row.flow)
    ends = (row.gpu_memory ? "GPU memory" : "host memory") + (row.device.empty() ? "" : " over " + row.device);
  std::string out = fmt::format("{}: {:.1f} Gb/s", ends, row.gbps);
  if (row.bytes > 0) out += fmt::format(" at {} bytes", row.bytes);
  if (row.qps > 1) out += fmt::format(", {} queue pairs", row.qps);
  if (row.both_ways) out += ", both ways at once";
  if (row.relaxed) out += *row.relaxed ? ", relaxed ordering" : ", strict ordering";
  return out;
}

Evidence evidence_of(const Machine& machine, const Measurement& row) {
  return {row_text(machine, row), fmt::format("{} ({})", row.where, row.program)};
}

std::optional<double> expected_gbps(const RuleInput& input, const predict::Flow& flow) {
  const auto prediction = input.model.predict(flow);
  if (!prediction || !prediction->known) return {};
  return prediction->gbs.expected * 8;
}

}  // namespace fairway::doctor
