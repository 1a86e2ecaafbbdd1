#include "doctor/rules/common.h"

#include <algorithm>

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
  if (!row.flow && row.gpu_memory) ends = "GPU memory over " + row.device;
  if (!row.flow && !row.gpu_memory) ends = "host memory over " + row.device;
  std::string out = fmt::format("{}: {:.1f} Gb/s", ends, row.gbps);
  if (row.bytes > 0) out += fmt::format(" at {} bytes", row.bytes);
  if (row.qps > 1) out += fmt::format(", {} queue pairs", row.qps);
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
