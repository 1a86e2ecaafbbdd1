#include <algorithm>
#include <array>
#include <set>

#include "doctor/rules/common.h"

// IOMMU and ACS: they can send traffic between two devices through the root complex.
namespace fairway::doctor {
namespace {

namespace text = topology::text;

// PCI Express Base Specification, ACS Control Register.
constexpr std::uint64_t kRequestRedirect = 0x04;
constexpr std::uint64_t kCompletionRedirect = 0x08;
constexpr std::uint64_t kUpstreamForwarding = 0x10;
constexpr std::uint64_t kRedirects = kRequestRedirect | kCompletionRedirect | kUpstreamForwarding;

std::string redirects(std::uint64_t control) {
  std::string out;
  if ((control & kRequestRedirect) != 0) out += "ReqRedir+ ";
  if ((control & kCompletionRedirect) != 0) out += "CmpltRedir+ ";
  if ((control & kUpstreamForwarding) != 0) out += "UpstreamFwd+ ";
  return out.empty() ? out : out.substr(0, out.size() - 1);
}

// Bridges on the path of two devices (GPUs and rails) that meet below the root complex.
std::set<std::uint32_t> inner_bridges(const Machine& machine) {
  std::set<std::uint32_t> out;
  const auto devices = placed_devices(machine);
  for (std::size_t a = 0; a < devices.size(); ++a) {
    for (std::size_t b = a + 1; b < devices.size(); ++b) {
      const auto meets = std::find_first_of(devices[a].above.begin(), devices[a].above.end(), devices[b].above.begin(),
                                            devices[b].above.end());
      if (meets == devices[a].above.end()) continue;
      for (auto at = devices[a].above.begin(); at != meets; ++at) out.insert(at->index);
      for (const auto bridge : devices[b].above) {
        if (bridge == *meets) break;
        out.insert(bridge.index);
      }
    }
  }
  return out;
}

void acs(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (topology::is_virtual(machine))
    return result.not_applicable();  // the host needs it, and a guest does not see its ports
  const auto bridges = inner_bridges(machine);
  if (bridges.empty()) return result.not_applicable();
  std::vector<NodeRef> redirecting;
  Finding finding;
  for (const auto index : bridges) {
    const topology::Ref<topology::PciDevice> bridge(std::size_t{index});
    // The upstream port of a switch has no ACS.
    if (machine.pci[index].kind == topology::PciKind::switch_upstream ||
        machine.pci[index].kind == topology::PciKind::pci_switch)
      continue;
    const auto key = pci_fact(machine, bridge, "acs");
    const auto control = input.facts.hex(key);
    if (!control) {
      result.lacks(input.facts.why_not(key));
      continue;
    }
    if ((*control & kRedirects) == 0) continue;
    redirecting.push_back({NodeKind::pci, index});
    finding.evidence.push_back(evidence_of(
        input.facts, key, fmt::format("{}: ACSCtl {}", machine.pci[index].bus_id.to_string(), redirects(*control))));
    finding.fix.push_back(fmt::format("setpci -s {} ECAP_ACS+0x6.w=0000    # until the next boot",
                                      machine.pci[index].bus_id.to_string()));
  }
  if (redirecting.empty()) return;
  finding.title = fmt::format("ACS sends traffic between devices of one switch through the root complex ({} port{})",
                              redirecting.size(), redirecting.size() == 1 ? "" : "s");
  finding.devices = redirecting;
  std::vector<predict::Flow> flows;
  for (const auto& bridge : redirecting) {
    for (auto& flow : flows_through(machine, bridge)) {
      const auto same = [&](const predict::Flow& other) { return other.from == flow.from && other.to == flow.to; };
      if (std::none_of(flows.begin(), flows.end(), same)) flows.push_back(flow);
    }
  }
  finding.level = flows.empty() ? Level::note : Level::warning;
  cost_of_share(input, flows, 0.5).write_to(finding);
  finding.fix.emplace_back("# to keep it: disable ACS in the BIOS, or pci=config_acs= on the kernel's command line");
  finding.advice = "Leave it on if this host passes devices of that switch to different virtual machines.";
  result.add(std::move(finding));
}

void translating(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (topology::is_virtual(machine)) return result.not_applicable();
  const auto devices = placed_devices(machine);
  if (devices.empty()) return result.not_applicable();
  std::vector<NodeRef> translated;
  Finding finding;
  for (const auto& device : devices) {
    const auto key = pci_fact(machine, device.pci, "iommu_type");
    const auto type = input.facts.text(key);
    if (type.empty()) {
      result.lacks(fmt::format("{}: {}", name_of(machine, device.node), input.facts.why_not(key)));
      continue;
    }
    if (!type.starts_with("DMA")) continue;
    translated.push_back(device.node);
    if (finding.evidence.size() < 4) {
      finding.evidence.push_back(
          evidence_of(input.facts, key, fmt::format("{}: {}", name_of(machine, device.node), type)));
    }
  }
  if (translated.empty()) return;
  finding.title = fmt::format("The IOMMU translates the addresses of {}", folded_names(machine, translated));
  finding.devices = translated;
  finding.path = paths_text(machine, flows_through(machine, translated.front()));
  finding.cause = "iommu";
  if (input.facts.find("kernel.cmdline") != nullptr)
    finding.evidence.push_back(evidence_of(input.facts, "kernel.cmdline"));
  finding.fix = add_kernel_option("iommu=pt");
  finding.advice = "Traffic between a GPU and a NIC was reported to hang or to be slow. Passthrough or off fixes it.";
  result.add(std::move(finding));
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> known) {
  return std::find(known.begin(), known.end(), word) != known.end();
}

// Documentation/admin-guide/kernel-parameters of the kernel: amd_iommu, intel_iommu, iommu.
bool is_known_value(std::string_view option, std::string_view value) {
  if (option == "amd_iommu") {
    return is_one_of(value, {"off", "on", "fullflush", "force_isolation", "force_enable", "pgtbl_v1", "pgtbl_v2",
                             "irtcachedis", "nohugepages", "v2_pgsizes_only"});
  }
  if (option == "intel_iommu") {
    return is_one_of(value,
                     {"on", "off", "igfx_off", "forcedac", "strict", "sp_off", "sm_on", "sm_off", "tboot_noforce"});
  }
  return is_one_of(value, {"off", "force", "noforce", "biomerge", "merge", "nomerge", "soft", "pt", "nopt", "nobypass",
                           "usedac", "nodac", "allowdac", "forcesac", "panic", "nopanic", "memaper", "fullflush"}) ||
         value.starts_with("memaper=");
}

void misspelled(const RuleInput& input, RuleResult& result) {
  const auto* line = input.facts.find("kernel.cmdline");
  if (line == nullptr) return result.lacks(input.facts.why_not("kernel.cmdline"));
  for (const auto word : text::words(line->value)) {
    const auto equals = word.find('=');
    if (equals == word.npos) continue;
    const auto option = word.substr(0, equals);
    if (!is_one_of(option, {"amd_iommu", "intel_iommu", "iommu"})) continue;
    for (const auto value : text::split(word.substr(equals + 1), ',')) {
      if (is_known_value(option, value)) continue;
      const bool meant_pt = value == "pt";
      Finding finding;
      finding.title = fmt::format("The kernel ignores {}={}", option, text::quote(value));
      finding.evidence.push_back({text::quote(word, 120), line->where});
      finding.cause = "iommu";
      // A warning unless the IOMMU is known not to translate.
      bool translated = false;
      bool known = false;
      for (const auto& device : placed_devices(input.machine())) {
        const auto type = input.facts.text(pci_fact(input.machine(), device.pci, "iommu_type"));
        known = known || !type.empty();
        translated = translated || type.starts_with("DMA");
      }
      finding.level = known && !translated ? Level::note : Level::warning;
      if (meant_pt && word == fmt::format("{}=pt", option)) {
        finding.fix = {
            fmt::format("grubby --update-kernel=ALL --remove-args={}=pt --args=iommu=pt    # Red Hat; then "
                        "reboot",
                        option),
            fmt::format("sed -i 's/{}=pt/iommu=pt/' /etc/default/grub && update-grub    # Debian, Ubuntu; then "
                        "reboot",
                        option)};
      } else {
        finding.advice =
            meant_pt ? "Use iommu=pt." : "Use a value of the kernel's documentation (kernel-parameters.txt).";
      }
      result.add(std::move(finding));
    }
  }
}

constexpr Rule kRules[] = {
    {"iommu-translating", Family::iommu, "The IOMMU translates addresses of GPUs or NICs on bare metal",
     "Traffic between devices fails, hangs or is slow.",
     "The IOMMU group of a GPU or a rail has type DMA or DMA-FQ; not in a virtual machine.", "iommu=pt, or off.",
     "nccl-tests#115, rccl#1129; no figure", translating},
    {"iommu-misspelled", Family::iommu, "An IOMMU option that the kernel does not know",
     "amd_iommu=pt looks like passthrough, but the kernel ignores it.",
     "Each value of iommu=, intel_iommu= and amd_iommu= on the kernel's command line.", "iommu=pt.",
     "amd-strix-halo-toolboxes#66", misspelled},
    {"acs-redirect", Family::iommu, "ACS redirects traffic between devices of one switch",
     "About half the rate, or hangs: 10 GB/s on 200 Gb/s until it was disabled.",
     "ReqRedir, CmpltRedir or UpstreamFwd is set in a downstream port on a path between devices that stays below the "
     "root complex; not in a virtual machine.",
     "BIOS, pci=config_acs=, or setpci.", "nccl#700, nccl-tests#112, nccl#603", acs},
};

}  // namespace

std::span<const Rule> iommu_rules() {
  return kRules;
}

}  // namespace fairway::doctor
