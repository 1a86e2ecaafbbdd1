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

bool is_arm(const Machine& machine) {
  const auto architecture = machine.architecture.value_or("");
  return architecture == "aarch64" || architecture == "arm64";
}

bool has_word(std::string_view line, std::string_view word) {
  const auto words = text::words(line);
  return std::ranges::find(words, word) != words.end();
}

// Whether the IOMMU translates a device's addresses: by the type of its group, else by the kernel's log.
struct Translation {
  std::optional<bool> known;
  Evidence why;
};
Translation translation_of(const RuleInput& input, topology::Ref<topology::PciDevice> pci) {
  const auto key = pci_fact(input.machine(), pci, "iommu_type");
  if (const auto type = input.facts.text(key); !type.empty())
    return {type.starts_with("DMA"), evidence_of(input.facts, key, type)};
  if (const auto* domain = input.facts.find("kernel.iommu.default"))
    return {text::lower(domain->value).starts_with("translated"),
            {"default domain type: " + domain->value, domain->where}};
  return {};
}

// By the kernel's command line alone, where nothing better is recorded: x86 with the IOMMU turned on, and no word of
// passthrough.
bool may_translate(const RuleInput& input) {
  const auto line = input.facts.text("kernel.cmdline");
  return (has_word(line, "intel_iommu=on") || has_word(line, "amd_iommu=on") || has_word(line, "iommu=force")) &&
         !has_word(line, "iommu=pt") && !has_word(line, "iommu.passthrough=1");
}

// Ports whose ACS can send traffic between two devices (GPUs and rails) out of its way.
struct Ports {
  std::set<std::uint32_t> inner;  // below the switch where the two meet
  std::set<std::uint32_t> roots;  // root ports of devices that meet in the root complex
};
Ports ports_between(const Machine& machine) {
  Ports out;
  const auto devices = placed_devices(machine);
  for (std::size_t a = 0; a < devices.size(); ++a) {
    for (std::size_t b = a + 1; b < devices.size(); ++b) {
      const auto& first = devices[a].above;
      const auto& second = devices[b].above;
      const auto meets = std::find_first_of(first.begin(), first.end(), second.begin(), second.end());
      if (meets == first.end()) {
        // Only a GPU and a NIC of one host bridge, or two GPUs: others have nothing to say to each other.
        const bool gpu = devices[a].node.kind == NodeKind::gpu || devices[b].node.kind == NodeKind::gpu;
        if (!gpu || first.empty() || second.empty()) continue;
        const auto& one = machine.pci[first.back().index];
        const auto& other = machine.pci[second.back().index];
        if (!one.host_bridge || one.host_bridge != other.host_bridge) continue;
        if (one.kind == topology::PciKind::root_port) out.roots.insert(first.back().index);
        if (other.kind == topology::PciKind::root_port) out.roots.insert(second.back().index);
        continue;
      }
      for (auto at = first.begin(); at != meets; ++at) out.inner.insert(at->index);
      for (const auto bridge : second) {
        if (bridge == *meets) break;
        out.inner.insert(bridge.index);
      }
    }
  }
  return out;
}

// One finding on those of `ports` that redirect.
void redirecting(const RuleInput& input, const std::set<std::uint32_t>& ports, bool roots, RuleResult& result) {
  const auto& machine = input.machine();
  std::vector<NodeRef> found;
  Finding finding;
  for (const auto index : ports) {
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
    found.push_back({NodeKind::pci, index});
    finding.evidence.push_back(evidence_of(
        input.facts, key, fmt::format("{}: ACSCtl {}", machine.pci[index].bus_id.to_string(), redirects(*control))));
    finding.fix.push_back(fmt::format("setpci -s {} ECAP_ACS+0x6.w=0000    # until the next boot",
                                      machine.pci[index].bus_id.to_string()));
  }
  if (found.empty()) return;
  const auto count = fmt::format("{} port{}", found.size(), found.size() == 1 ? "" : "s");
  finding.devices = found;
  std::vector<predict::Flow> flows;
  for (const auto& bridge : found) {
    for (auto& flow : flows_through(machine, bridge)) {
      const auto same = [&](const predict::Flow& other) { return other.from == flow.from && other.to == flow.to; };
      if (std::ranges::none_of(flows, same)) flows.push_back(flow);
    }
  }
  finding.level = flows.empty() ? Level::note : Level::warning;
  cost_of_share(input, flows, 0.5).write_to(finding);
  finding.fix.emplace_back("# to keep it: disable ACS in the BIOS, or pci=config_acs= on the kernel's command line");
  finding.advice = "Leave it on if this host passes devices of that switch to different virtual machines.";
  if (roots) {
    finding.title =
        fmt::format("ACS sends traffic between devices through a translating IOMMU (root complex, {})", count);
    finding.cause = "iommu";
    finding.evidence.push_back(evidence_of(input.facts, "kernel.cmdline"));
    auto options = add_kernel_option("iommu=pt");
    finding.fix.insert(finding.fix.begin(), options.begin(), options.end());
    finding.advice = "With passthrough the root complex forwards without translation, and ACS may stay.";
  } else {
    finding.title = fmt::format("ACS sends traffic between devices of one switch through the root complex ({})", count);
  }
  result.add(std::move(finding));
}

void acs(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (topology::is_virtual(machine))
    return result.not_applicable();  // the host needs it, and a guest does not see its ports
  const auto ports = ports_between(machine);
  // What meets in the root complex passes the IOMMU anyway: it costs where that translates.
  bool known = false;
  bool translates = false;
  for (const auto& device : placed_devices(machine)) {
    const auto translation = translation_of(input, device.pci);
    known = known || translation.known.has_value();
    translates = translates || translation.known.value_or(false);
  }
  if (!known && !is_arm(machine)) translates = may_translate(input);
  const bool roots = !ports.roots.empty() && translates && !is_arm(machine);
  if (ports.inner.empty() && !roots) return result.not_applicable();
  redirecting(input, ports.inner, false, result);
  if (roots) redirecting(input, ports.roots, true, result);
}

void translating(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  // On arm64 translation is the kernel's default, and peers reach each other with it.
  if (topology::is_virtual(machine) || is_arm(machine)) return result.not_applicable();
  const auto devices = placed_devices(machine);
  if (devices.empty()) return result.not_applicable();
  std::vector<NodeRef> translated;
  Finding finding;
  for (const auto& device : devices) {
    const auto translation = translation_of(input, device.pci);
    if (!translation.known) {
      const auto why = input.facts.why_not(pci_fact(machine, device.pci, "iommu_type"));
      result.lacks(may_translate(input)
                       ? fmt::format("{}: the kernel's command line turns the IOMMU on and does not say "
                                     "iommu=pt; whether it translates "
                                     "/sys/kernel/iommu_groups/*/type says",
                                     name_of(machine, device.node))
                       : fmt::format("{}: {}", name_of(machine, device.node), why));
      continue;
    }
    if (!*translation.known) continue;
    translated.push_back(device.node);
    if (finding.evidence.size() < 4)
      finding.evidence.push_back(
          {fmt::format("{}: {}", name_of(machine, device.node), translation.why.text), translation.why.where});
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
  return std::ranges::find(known, word) != known.end();
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
      const bool arm = is_arm(input.machine());
      if (is_known_value(option, value) && !(arm && value == "pt")) continue;
      const bool meant_pt = value == "pt";
      auto& finding = result.add();
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
      finding.level = arm || (known && !translated) ? Level::note : Level::warning;
      if (arm && meant_pt) {
        finding.title = fmt::format("{}=pt is x86's word: arm64 kernels ignore it", option);
        finding.fix = add_kernel_option("iommu.passthrough=1");
      } else if (meant_pt && word == fmt::format("{}=pt", option)) {
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
    }
  }
}

constexpr Rule kRules[] = {
    {"iommu-translating", Family::iommu, "The IOMMU translates addresses of GPUs or NICs on bare metal",
     "Traffic between devices fails, hangs or is slow.",
     "The IOMMU group of a GPU or a rail has type DMA or DMA-FQ, or the kernel's log says that its default domain is "
     "translated; not in a virtual machine, and not on arm64, where that is the default and harmless.",
     "iommu=pt, or off.", "nccl-tests#115, rccl#1129; no figure", translating},
    {"iommu-misspelled", Family::iommu, "An IOMMU option that the kernel does not know",
     "amd_iommu=pt looks like passthrough, but the kernel ignores it.",
     "Each value of iommu=, intel_iommu= and amd_iommu= on the kernel's command line; on arm64 iommu=pt, whose word "
     "there "
     "is iommu.passthrough=1 (a note).",
     "iommu=pt.", "amd-strix-halo-toolboxes#66", misspelled},
    {"acs-redirect", Family::iommu, "ACS redirects traffic between devices of one switch",
     "About half the rate, or hangs: 10 GB/s on 200 Gb/s until it was disabled.",
     "ReqRedir, CmpltRedir or UpstreamFwd is set in a downstream port on a path between devices that stays below the "
     "root complex; or in root ports of a GPU and a rail while the IOMMU translates. Not in a virtual machine.",
     "BIOS, pci=config_acs=, or setpci.", "nccl#700, nccl-tests#112, nccl#603", acs},
};

}  // namespace

std::span<const Rule> iommu_rules() {
  return kRules;
}

}  // namespace fairway::doctor
