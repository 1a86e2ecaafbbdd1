#include <algorithm>

#include "doctor/rules/common.h"
#include "topology/pci.h"

// What the kernel and the jobs themselves have said.
namespace fairway::doctor {
namespace {

namespace text = topology::text;

// The device that a line of the kernel's log is about, and a name for it. `key` ends in a bus id.
struct Subject {
  std::string name;
  std::vector<NodeRef> devices;
};
Subject subject_of(const Machine& machine, std::string_view bus_text) {
  Subject subject{std::string(bus_text), {}};
  const auto bus = topology::BusId::parse(bus_text);
  if (!bus) return subject;
  const auto take = [&](NodeRef node) {
    const auto pci = topology::pci_of(machine, node);
    if (!pci || !machine.pci[pci.index].bus_id.same_slot(*bus)) return;
    subject.devices = {node};
    subject.name = name_of(machine, node);
  };
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) take(gpu_ref(gpu));
  for (std::uint32_t nic = 0; nic < machine.nics.size() && subject.devices.empty(); ++nic) take(nic_ref(nic));
  return subject;
}

bool log_known(const RuleInput& input, RuleResult& result) {
  if (input.facts.find("kernel.log") != nullptr) return true;
  result.lacks("the kernel's log: " + input.facts.why_not("kernel.log"));
  return false;
}

// The XIDs that mean hardware or a link, by NVIDIA's catalogue ("Analyzing Xid Errors with the Xid Catalog", which has
// 1 to 172). Those that it gives to applications are none: 13, 31, 45, 137 (illegal accesses over NVLink) and others.
std::string_view xid_meaning(unsigned code) {
  switch (code) {
    case 48: return "an uncorrectable memory error";
    case 62: return "its microcontroller halted";
    case 63: return "a memory row was remapped";
    case 64: return "a memory row could not be remapped";
    case 74: return "an NVLink error";
    case 79: return "the GPU fell off the bus";
    case 92: return "many corrected memory errors";
    case 94: return "a contained memory error";
    case 95: return "an uncontained memory error";
    case 109: return "a context switch timed out";
    case 110: return "a security fault, rare without a hardware failure";
    case 119:
    case 120: return "the GPU's firmware did not answer";
    case 121: return "corrected errors of its NVLink-C2C";
    case 136: return "an NVLink could not be trained";
    case 140: return "an unrecovered memory error";
    case 143: return "the GPU could not be initialised";
    case 144:
    case 145:
    case 146:
    case 147:
    case 148:
    case 149:
    case 150: return "an NVLink error";
    case 154: return "the driver asks for a recovery";
    case 156: return "a part of its memory was retired";
    case 157: return "nothing is left to retire a bad part of its memory to";
    case 158: return "the GPU did not answer";
    case 167: return "PCIe did not answer";
    case 169: return "its security controller halted";
    case 171:
    case 172: return "an uncorrectable memory error";
    default: return {};
  }
}

// What the catalogue calls corrected, or mended by itself.
bool is_mended(unsigned code) {
  return code == 63 || code == 92 || code == 121 || code == 156;
}

bool is_broken(unsigned code) {
  return code == 64 || code == 79 || code == 95 || code == 140 || code == 143;
}

void xid(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto lines = input.facts.below("kernel.xid");
  if (nvidia_gpus(machine).empty() && lines.empty()) return result.not_applicable();
  if (lines.empty() && !log_known(input, result)) return;
  for (const auto& [name, seen] : lines) {
    // name: "0000:1b:00.0.79"; value: the log's line
    const auto dot = name.rfind('.');
    const auto code = text::to_u32(std::string_view(name).substr(dot + 1));
    const auto meaning = code ? xid_meaning(*code) : std::string_view{};
    if (meaning.empty()) continue;
    // "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    if (*code == 154 && text::trim(seen->value).ends_with("(None)")) continue;
    const auto subject = subject_of(machine, std::string_view(name).substr(0, dot));
    auto& finding = result.add();
    finding.devices = subject.devices;
    if (!subject.devices.empty() && subject.devices.front().kind == NodeKind::gpu)
      finding.cause = fmt::format("gpu {}", subject.devices.front().index);
    if (subject.devices.empty() && *code == 79) finding.cause = "lost " + subject.name;  // gpu-lost's
    // "149, NETIR_LINK_EVT Fatal": the link is gone
    const bool fatal = *code >= 144 && *code <= 150 && seen->value.find(" Fatal") != std::string::npos;
    finding.level = is_broken(*code) || fatal ? Level::broken : is_mended(*code) ? Level::note : Level::warning;
    finding.title = fmt::format("{}: XID {}, {}", subject.name, *code, meaning);
    finding.path = subject.name;
    finding.evidence.push_back({text::quote(seen->value, 160), seen->where});
    finding.fix = {*code == 79 ? "# power-cycle the server; if it happens again, change slot, riser or GPU"
                               : "nvidia-smi -q; dcgmi diag -r 3"};
  }
}

void sxid(const RuleInput& input, RuleResult& result) {
  const auto lines = input.facts.below("kernel.sxid");
  if (input.machine().nv_switches.empty() && lines.empty()) return result.not_applicable();
  if (lines.empty() && !log_known(input, result)) return;
  for (const auto& [name, seen] : lines) {
    const auto dot = name.rfind('.');
    const auto code = name.substr(dot + 1);
    auto& finding = result.add();
    const bool fatal = seen->value.find(" Fatal") != std::string::npos;
    finding.level = fatal ? Level::broken : Level::warning;
    finding.title = fmt::format("NVSwitch {}: SXid {}, {}", name.substr(0, dot), code,
                                fatal ? "a fatal error" : "an error that it survived");
    finding.path = "NVLink between the GPUs of this host";
    finding.cause = "sxid " + name.substr(0, dot);
    finding.evidence.push_back({text::quote(seen->value, 160), seen->where});
    finding.fix = {"systemctl status nvidia-fabricmanager    # its log names the port and the GPU",
                   interrupting("systemctl restart nvidia-fabricmanager", Interrupts::gpus, "after a fatal one")};
    finding.advice = "After a fatal error NVLink of this host is down until its GPUs and switches are reset.";
  }
}

// What the kernel says of a PCI function's link matters for GPUs, NICs and bridges on their way.
enum class Matters : std::uint8_t { yes, no, unknown };
Matters limit_matters(const RuleInput& input, const Subject& subject, const std::string& name) {
  const auto& machine = input.machine();
  if (!subject.devices.empty()) return Matters::yes;
  if (input.facts.find(fmt::format("kernel.pcie_limited.{}.driver", name)) != nullptr) return Matters::yes;
  auto code = input.facts.hex(fmt::format("kernel.pcie_limited.{}.class", name));
  const auto device =
      std::ranges::find_if(machine.pci, [&name](const auto& one) { return one.bus_id.to_string() == name; });
  if (device != machine.pci.end() && device->class_code) code = *device->class_code;
  if (!code) return Matters::unknown;
  const auto base = *code >> 16U;
  if (base != 0x06) return base == 0x02 || base == 0x03 || base == 0x0b || base == 0x12 ? Matters::yes : Matters::no;
  // A bridge: of those below it one is a GPU or a NIC, or nobody says what is below it.
  const auto below = [&](const topology::PciDevice& one) {
    for (auto parent = one.parent; parent; parent = machine.pci[parent.index].parent) {
      if (machine.pci[parent.index].bus_id.to_string() == name) return true;
    }
    return false;
  };
  auto found = Matters::unknown;
  for (const auto& one : machine.pci) {
    if (!below(one)) continue;
    if (topology::is_gpu(one) || topology::is_network(one)) return Matters::yes;
    found = Matters::no;
  }
  return found;
}

void limited(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto lines = input.facts.below("kernel.pcie_limited");
  if (machine.pci.empty() && machine.nics.empty() && lines.empty()) return result.not_applicable();
  if (lines.empty() && !log_known(input, result)) return;
  for (const auto& [name, seen] : lines) {
    const auto now = input.facts.number(fmt::format("kernel.pcie_limited.{}.gbps", name));
    const auto able = input.facts.number(fmt::format("kernel.pcie_limited.{}.able_gbps", name));
    if (!now || !able || *now >= *able) continue;
    const auto subject = subject_of(machine, name);
    auto& finding = result.add();
    finding.title = fmt::format("{}: the kernel found {:.0f} of {:.0f} Gb/s of PCIe for it", subject.name, *now, *able);
    finding.devices = subject.devices;
    // The line stands in the log too where a slot has no more, and where the device's ports need no more.
    double wanted = 0;
    if (!subject.devices.empty() && subject.devices.front().kind == NodeKind::nic)
      wanted = topology::nic_capacity_gbps(machine, machine.nics[subject.devices.front().index]).value_or(0);
    const bool enough = wanted > 0 && *now >= wanted;
    const auto matters = limit_matters(input, subject, name);
    finding.level = enough || *now * 2 > *able || matters != Matters::yes ? Level::note : Level::warning;
    finding.path = subject.name;
    finding.cause = "link " + name;
    if (finding.level == Level::warning) {
      finding.now_gbps = *now;
      finding.mended_gbps = wanted > 0 ? std::min(wanted, *able) : *able;
      finding.loss_gbps = *finding.mended_gbps - *now;
    }
    finding.evidence.push_back({text::quote(seen->value, 200), seen->where});
    finding.fix = {fmt::format("lspci -vvs {} | grep -E 'LnkCap|LnkSta|LnkCtl2'", name)};
    finding.advice = "The line names the link that is slow: reseat the card, or change the slot or riser.";
    if (matters == Matters::no) finding.advice = "It is no GPU, no NIC and no bridge on their way.";
    if (matters == Matters::unknown) {
      finding.title += "; what it is is not recorded";
      finding.advice = "Nothing here says whether it is a GPU, a NIC or a bridge on their way (lspci does).";
    }
  }
}

void complaints(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  struct Kind {
    const char* fact;
    const char* title;
    Level level;  // a log keeps what was mended since, so what heals by itself is a note
    const char* advice;
  };
  static constexpr Kind kKinds[] = {
      {"kernel.aer_uncorrected", "uncorrected PCIe errors in the kernel's log", Level::warning,
       "A bad slot, riser or card."},
      {"kernel.aer", "PCIe errors in the kernel's log", Level::note,
       "Corrected errors cost retries; many mean a bad slot, riser or card."},
      {"kernel.uncorrectable", "uncorrectable hardware errors in the kernel's log", Level::warning,
       "Drain the node: its memory or a part of the device is failing."},
      {"kernel.reset", "its driver had to reset it", Level::warning,
       "Its jobs ended: look for the lines before it, and for a job that hangs the GPU."},
      {"kernel.timeout", "it did not answer its driver in time", Level::warning,
       "Its firmware hangs or the device is failing: look for the lines before it, and for newer firmware."},
      {"kernel.hardware", "hardware errors in the kernel's log", Level::warning,
       "The platform's firmware reports them: the lines that follow name the part."},
      {"kernel.hardware_corrected", "corrected hardware errors in the kernel's log", Level::note,
       "Many mean a part that is failing: the lines that follow name it."},
      {"kernel.mlx5_fatal", "its driver lost the device for a time", Level::warning,
       "Its firmware stopped: look for the lines before it, and for newer firmware."},
      {"kernel.mlx5_heat", "its transceiver was too hot", Level::warning, "Check the transceiver and the air flow."},
      {"kernel.mlx5", "its driver complains in the kernel's log", Level::note, "Check the transceiver and the cable."},
      {"kernel.link_down", "its link went down", Level::note,
       "Once at boot is usual; again and again is a cable or a switch port."},
  };
  std::size_t lines = 0;
  for (const auto& kind : kKinds) lines += input.facts.below(kind.fact).size();
  if (machine.pci.empty() && machine.nics.empty() && lines == 0) return result.not_applicable();
  if (lines == 0 && !log_known(input, result)) return;
  for (const auto& kind : kKinds) {
    for (const auto& [bus, seen] : input.facts.below(kind.fact)) {
      const auto subject = subject_of(machine, bus);
      auto& finding = result.add();
      finding.title = fmt::format("{}: {}", subject.name, kind.title);
      finding.devices = subject.devices;
      finding.level = kind.level;
      finding.path = subject.name;
      finding.evidence.push_back({text::quote(seen->value, 200), seen->where});
      finding.advice = kind.advice;
    }
  }
}

void iommu_faults(const RuleInput& input, RuleResult& result) {
  const auto lines = input.facts.below("kernel.iommu_fault");
  if (placed_devices(input.machine()).empty() && lines.empty()) return result.not_applicable();
  if (lines.empty() && !log_known(input, result)) return;
  if (lines.empty()) return;
  auto& finding = result.add();
  finding.title = fmt::format("The IOMMU refused accesses of devices ({} line{} in the kernel's log)", lines.size(),
                              lines.size() == 1 ? "" : "s");
  finding.path = "devices that the lines name";
  finding.cause = "iommu";
  for (const auto& [number, seen] : lines) {
    if (finding.evidence.size() < 3) finding.evidence.push_back({text::quote(seen->value, 160), seen->where});
  }
  finding.fix = add_kernel_option("iommu=pt");
  finding.advice = "A device read or wrote where the IOMMU has no page for it: its transfer failed.";
}

void job_network(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto* network = input.facts.find("nccl.network");
  const auto* none = input.facts.find("nccl.no_ib_device");
  const bool seen_rails = !rails(machine).empty();
  if (!seen_rails && none == nullptr && network == nullptr) return result.not_applicable();
  if (network == nullptr && none == nullptr) return result.lacks("no log of a job (NCCL_DEBUG=INFO)");
  const bool socket = network != nullptr && text::lower(network->value).starts_with("socket");
  if (!socket && none == nullptr) return;
  auto& finding = result.add();
  finding.title = seen_rails ? "The job goes by TCP sockets, though this host has rails"
                             : "The job goes by TCP sockets; no RDMA device of its host is recorded";
  if (!seen_rails) finding.level = Level::note;
  finding.confidence = Confidence::measured;
  finding.path = "every path of that job over the network";
  if (none != nullptr) finding.evidence.push_back({none->value, none->where});
  if (network != nullptr) finding.evidence.push_back({"Using network " + network->value, network->where});
  std::vector<NodeRef> nodes;
  for (const auto nic : rails(machine)) nodes.push_back(nic_ref(nic));
  if (seen_rails) finding.evidence.push_back({"rails: " + folded_names(machine, nodes), "fairway topo hca"});
  finding.devices = nodes;
  finding.fix = {"ls -l /dev/infiniband; ibv_devinfo    # in the job's container: are the devices there?",
                 "# containers: --device=/dev/infiniband, and libibverbs with the NIC's provider inside"};
  finding.advice = "NCCL found no RDMA device that it may use: not passed to the container, no provider, or excluded.";
}

void complaints_of(const char* library, const std::vector<std::pair<std::string, const Seen*>>& lines,
                   RuleResult& result) {
  if (lines.empty()) return;
  auto& finding = result.add();
  finding.title = fmt::format("{} warned {} time{}: {}", library, lines.size(), lines.size() == 1 ? "" : "s",
                              text::quote(lines.front().second->value, 90));
  finding.level = Level::note;
  for (const auto& [number, seen] : lines) {
    const auto line = text::lower(seen->value);
    for (const auto* word : {"completion", "completed with error", "unresponsive", "timeout", "timed out", "unhandled",
                             "cuda failure", "async", "remote error", "call to ibv_", "connection closed",
                             "connection reset", "connection refused", "no route to host", "no space left",
                             "retry count exceeded", "failed to extend", "cannot allocate", "out of memory"}) {
      if (line.find(word) != std::string::npos) finding.level = Level::warning;
    }
    if (finding.evidence.size() < 4) finding.evidence.push_back({text::quote(seen->value, 200), seen->where});
  }
  finding.path = "that job";
  finding.advice = "The first warning is usually the cause, the others follow from it.";
}

void job_warnings(const RuleInput& input, RuleResult& result) {
  const auto nccl = input.facts.below("nccl.warning");
  const auto ucx = input.facts.below("ucx.warning");
  complaints_of("NCCL", nccl, result);
  complaints_of("UCX", ucx, result);
  if (nccl.empty() && ucx.empty() && input.facts.below("nccl").empty())
    result.lacks("no log of a job (NCCL_DEBUG=INFO)");
}

constexpr Rule kRules[] = {
    {"xid", Family::logs, "The driver logged an error of a GPU", "From a lost job to a lost GPU.",
     "XID lines of the kernel's log whose codes mean hardware or links.", "Depends on the code.",
     "NVIDIA's XID catalogue", xid},
    {"sxid", Family::logs, "The driver logged an error of an NVSwitch", "NVLink of the host slows down or is lost.",
     "SXid lines of the kernel's log: broken where they say Fatal.", "The fabric manager's log names the port.",
     "NVIDIA's fabric manager guide, NVSwitch SXid errors", sxid},
    {"pcie-limited", Family::logs, "The kernel found less PCIe bandwidth than a device could use",
     "In proportion; a Gen3 x8 link feeds 63 Gb/s.",
     "\"available PCIe bandwidth, limited by\" in the kernel's log: a warning at half or less, unless the ports need "
     "no more; a note for functions that are no GPU, NIC or bridge on their way.",
     "Reseat the card; change the slot or riser.", "the kernel's pcie_print_link_status", limited},
    {"log-complaints", Family::logs, "The kernel's log complains about a device", "Retries, flaps, heat.",
     "PCIe errors (AER), hardware errors (APEI), errors, resets and timeouts of drivers, links that went down: a "
     "warning for heat, resets, timeouts and uncorrected errors, else a note.",
     "Check slot, cable and transceiver.", "no figure", complaints},
    {"iommu-faults", Family::logs, "The IOMMU refused accesses of devices", "Transfers fail.",
     "Fault lines of DMAR, AMD-Vi or SMMU in the kernel's log.", "iommu=pt, or the driver.", "nccl-tests#115",
     iommu_faults},
    {"job-on-sockets", Family::logs, "A job's log says TCP on a host that has RDMA",
     "Every byte goes through the CPU and host memory.", "NCCL's INFO lines: no device found, network Socket.",
     "Pass the devices to the container.", "NCCL's documentation", job_network},
    {"job-warnings", Family::logs, "A job's log has warnings of NCCL or UCX", "From a retry to a job that hangs.",
     "WARN lines of NCCL's log, WARN and ERROR lines of UCX's: a warning for completion errors, timeouts and failures, "
     "else a note.",
     "Depends on the line.", "nccl#426, nccl#709", job_warnings},
};

}  // namespace

std::span<const Rule> logs_rules() {
  return kRules;
}

}  // namespace fairway::doctor
