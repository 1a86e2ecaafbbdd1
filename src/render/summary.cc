#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "render/links.h"
#include "render/matrix.h"
#include "render/reports.h"
#include "topology/assess.h"
#include "topology/catalog.h"
#include "topology/edges.h"
#include "topology/pci.h"
#include "topology/text.h"

namespace fairway::render {
namespace {

using topology::Machine;
using topology::NodeKind;

constexpr std::size_t kLabel = 9;

std::string row(const TextStyle& style, std::string_view label, const std::string& text) {
  std::string out;
  bool is_first = true;
  for (const std::string& line : wrap(text, style.columns > kLabel + 20 ? style.columns - kLabel : 20)) {
    out += (is_first ? style.ink(Ink::faint, pad(label, kLabel)) : pad("", kLabel)) + line + "\n";
    is_first = false;
  }
  return out;
}

std::string headline(const Machine& machine, const TextStyle& style) {
  std::vector<std::string> parts;
  if (machine.product) parts.push_back(*machine.product);
  if (topology::is_virtual(machine)) {
    parts.push_back(fmt::format("virtual ({})", *machine.virtual_machine));
  }
  if (machine.architecture) parts.push_back(*machine.architecture);
  if (machine.kernel) parts.push_back(fmt::format("kernel {}", *machine.kernel));
  if (machine.gpu_driver) parts.push_back(fmt::format("GPU driver {}", *machine.gpu_driver));
  std::string out = style.ink(Ink::bold, machine.name.empty() ? "This machine" : machine.name);
  for (const std::string& part : parts) out += " · " + part;
  return out + "\n";
}

std::string cpu_row(const Machine& machine) {
  std::vector<std::string> models;
  std::size_t cpus = 0;
  for (const topology::Package& package : machine.packages) {
    models.push_back(package.model ? short_cpu_model(*package.model) : "socket of unknown model");
    cpus += package.cpus ? package.cpus->count() : 0;
  }
  std::vector<std::string> parts;
  if (!models.empty()) parts.push_back(tally(models));
  if (cpus > 0) parts.push_back(count(cpus, "CPU"));
  std::uint64_t memory = 0;
  bool all_known = !machine.numa_nodes.empty();
  for (const topology::NumaNode& node : machine.numa_nodes) {
    memory += node.memory_bytes.value_or(0);
    all_known = all_known && node.memory_bytes;
  }
  if (!machine.numa_nodes.empty()) parts.push_back(count(machine.numa_nodes.size(), "NUMA node"));
  if (machine.memory_bytes) {
    parts.push_back(gibibytes(*machine.memory_bytes));
  } else if (all_known && memory > 0) {
    parts.push_back(gibibytes(memory));
  }
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : " · ") + part;
  return out.empty() ? "unknown" : out;
}

// "Gen5 x16 = 63 GB/s" if all links are equal, else "8 x A + 1 x B".
std::string link_tally(const Machine& machine, NodeKind kind, std::size_t n) {
  std::vector<std::string> links;
  std::size_t unknown = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    const auto pci = topology::pci_of(machine, {kind, i});
    const auto link = pci ? machine.pci[pci.index].link : topology::PcieLink{};
    const auto gbs = topology::current_gbs(link);
    const std::string words = pcie_words(link);
    if (words.empty() && !gbs) {
      ++unknown;
      continue;
    }
    links.push_back(fmt::format("{}{}{}", words, words.empty() || !gbs ? "" : " = ", gbs ? rate(gbs) + " GB/s" : ""));
  }
  const std::string out = tally(links);
  const bool one_kind = !links.empty() && std::ranges::all_of(links, [&](const auto& l) { return l == links[0]; });
  if (unknown == 0 || links.empty()) return one_kind ? links[0] : out;
  return fmt::format("{}, {} unknown", out, unknown);
}

std::string gpu_row(const Machine& machine) {
  if (machine.gpus.empty()) return "none";
  std::vector<std::string> models;
  for (const topology::Gpu& gpu : machine.gpus) {
    std::string model = gpu.model ? std::string(*gpu.model) : "GPU of unknown model";
    if (gpu.memory_bytes) model += fmt::format(", {}", gibibytes(*gpu.memory_bytes));
    models.push_back(model);
  }
  std::string out = models.size() == 1 ? models[0] : tally(models);
  const std::string links = link_tally(machine, NodeKind::gpu, machine.gpus.size());
  if (!links.empty()) out += " · PCIe " + links;
  return out;
}

std::string nic_kind(const Machine& machine, const topology::Nic& nic) {
  // A software RDMA device on a NIC is not a NIC of that model.
  if (nic.rdma && machine.rdma[nic.rdma.index].software.value_or(false)) return "software RDMA device";
  if (nic.model) return short_nic_model(*nic.model);
  if (nic.rdma) return "RDMA device";
  for (const auto interface : nic.interfaces) {
    const auto& driver = machine.interfaces[interface.index].driver;
    if (driver) return *driver + " device";
  }
  return "network device";
}

std::string nic_row(const Machine& machine) {
  std::vector<std::string> kinds;
  for (const topology::Nic& nic : machine.nics) {
    std::string kind = nic_kind(machine, nic);
    const auto whole = topology::nic_capacity_gbps(machine, nic);
    const auto one = topology::nic_one_flow_gbps(machine, nic);
    if (nic.bond) {
      const std::size_t legs = machine.bonds[nic.bond.index].legs.size();
      kind += fmt::format(", bond of {}{}", legs, one ? " x " + gigabits(*one) : " legs");
    } else if (whole) {
      kind += fmt::format(", {}", gigabits(*whole));
    } else if (const auto* generation = topology::find_nic_generation(machine, nic);
               generation != nullptr && generation->name.starts_with("EFA")) {
      kind += fmt::format(", {} by its PCI id", gigabits(generation->port_gbps));  // as in the picture
    } else {
      kind += ", rate unknown";
    }
    const bool hidden =
        !nic.rdma && !nic.functions.empty() && topology::is_rdma_function(machine.pci[nic.functions.front().index]);
    if (!nic.rdma) kind += hidden ? ", RDMA not recorded" : ", no RDMA";
    kinds.push_back(kind);
  }
  if (kinds.empty()) return "none";
  return kinds.size() == 1 ? kinds[0] : tally(kinds, "; ");
}

std::string rail_row(const Machine& machine) {
  std::vector<std::string> rails;
  std::map<std::string, std::vector<std::string>> others;
  for (const topology::RailVerdict& verdict : topology::rail_verdicts(machine)) {
    const std::string name = topology::node_name(machine, verdict.node);
    if (verdict.rail) {
      if (verdict.node.kind == NodeKind::rdma || machine.rdma.empty()) rails.push_back(name);
    } else {
      others[verdict.reason].push_back(name);
    }
  }
  // InfiniBand and EFA functions whose RDMA device is not recorded are rails by their ids.
  std::vector<std::string> hidden;
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    if (machine.nics[i].rdma) continue;
    const auto verdict = topology::rail_verdict(machine, {NodeKind::nic, i});
    const auto pci = topology::pci_of(machine, {NodeKind::nic, i});
    if (verdict.rail && pci && topology::is_rdma_function(machine.pci[pci.index]))
      hidden.push_back(machine.nics[i].name);
  }
  std::string out = rails.empty() ? "none" : fold_names(rails);
  if (!hidden.empty()) {
    const auto more = fmt::format("{} by PCI ids, RDMA not recorded", count(hidden.size(), "NIC"));
    out = rails.empty() ? more : out + ", " + more;
  }
  constexpr std::size_t kMostNames = 70;
  if (columns_of(out) > kMostNames) out = fmt::format("{}: {} to {}", rails.size(), rails.front(), rails.back());
  std::size_t left_out = 0;
  for (const auto& [reason, names] : others) left_out += names.size();
  if (left_out > 0)
    out += fmt::format(" · {} not for bulk traffic (fairway topo nics says why)", count(left_out, "other"));
  return out;
}

std::string unknown_row(const Machine& machine) {
  std::size_t conflicts = 0;
  std::size_t others = 0;
  for (const topology::Note& note : machine.notes) {
    if (note.kind == topology::NoteKind::conflict) ++conflicts;
    if (note.kind == topology::NoteKind::unknown || note.kind == topology::NoteKind::unreadable ||
        note.kind == topology::NoteKind::left_out)
      ++others;
  }
  std::vector<std::string> parts;
  if (others > 0) parts.push_back(count(others, "thing the source does not say", "things the source does not say"));
  if (conflicts > 0) parts.push_back(count(conflicts, "conflict"));
  std::size_t errors = 0;
  std::size_t warnings = 0;
  std::size_t notices = 0;
  for (const topology::Finding& finding : topology::lint(machine)) {
    errors += finding.severity == topology::Severity::error ? 1 : 0;
    warnings += finding.severity == topology::Severity::warning ? 1 : 0;
    notices += finding.severity == topology::Severity::notice ? 1 : 0;
  }
  if (errors > 0) parts.push_back(count(errors, "error"));
  if (warnings > 0) parts.push_back(count(warnings, "warning"));
  if (parts.empty()) return notices > 0 ? count(notices, "notice") + ": fairway topo lint" : "";
  if (notices > 0) parts.push_back(count(notices, "notice"));
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ", ") + part;
  return out.empty() ? out : out + " (fairway topo lint --notes lists them)";
}

}  // namespace

std::string summary(const Machine& machine, const TextStyle& style) {
  std::string out = headline(machine, style);
  out += row(style, "CPUs", cpu_row(machine));
  out += row(style, "GPUs", gpu_row(machine));
  for (const LinkFabric& fabric : link_fabrics(machine)) {
    const std::string text = describe(fabric);
    const std::size_t colon = text.find(": ");
    const std::string label = fabric.kind == topology::LinkKind::xgmi ? "xGMI" : "NVLink";
    out += row(style, label, fabric.name == label ? text.substr(colon + 2) : text);
  }
  if (const auto links = topology::unrecorded_gpu_links(machine); !links.empty())
    out += row(style, links, "not recorded here, though GPUs of this model have it");
  out += row(style, "NICs", nic_row(machine));
  out += row(style, "Rails", rail_row(machine));
  const std::string unknown = unknown_row(machine);
  if (!unknown.empty()) out += row(style, "Look at", unknown);
  return out;
}

std::string overview(const Machine& machine, const ExpectRate& expect, const TextStyle& style) {
  std::string out = summary(machine, style);
  out += "\n";
  const topology::PathMatrix paths = topology::path_matrix(machine);
  if (paths.ends.size() == 1) {
    return out +
           fmt::format("No path to show: {} is the only GPU or NIC\n", topology::node_name(machine, paths.ends[0]));
  }
  // Rates are shown between GPUs and other devices, not between NICs.
  if (expect && !machine.gpus.empty()) {
    out += style.ink(Ink::faint, "Path class, and the GB/s per direction that one flow should reach:") + "\n";
  } else {
    out += style.ink(Ink::faint, "Path classes:") + "\n";
  }
  out += matrix_text(machine, expect, style);
  bool has_unknown = false;
  for (const topology::PathClass& cell : paths.cells)
    has_unknown = has_unknown || cell.kind == topology::PathKind::unknown;
  if (const auto links = topology::unrecorded_gpu_links(machine); !links.empty()) {
    out += fmt::format("\n  ? between GPUs: {} not recorded\n", links);
  } else if (has_unknown) {
    out += "\n  ?: the place of a device is not recorded\n";
  }
  return out;
}

std::string overview(const topology::Fabric& fabric, const TextStyle& style) {
  std::string out = style.ink(Ink::bold, fabric.name.empty() ? "Machines and their network" : fabric.name) + "\n";
  out += fmt::format("{}, {}, {}\n\n", count(fabric.machines.size(), "machine"),
                     count(fabric.switches.size(), "switch", "switches"), count(fabric.cables.size(), "cable"));
  for (const Machine& machine : fabric.machines) out += overview(machine, {}, style) + "\n";
  return out;
}

}  // namespace fairway::render
