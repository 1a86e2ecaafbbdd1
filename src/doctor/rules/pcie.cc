// size: the rules of one subject, which share how a link is told
#include <algorithm>
#include <set>

#include "doctor/rules/common.h"

// PCIe links, and the registers that limit how much a NIC keeps in flight.
namespace fairway::doctor {
namespace {

using topology::PciDevice;
using topology::Ref;

std::string link_name(const Machine& machine, const PlacedDevice& device, Ref<PciDevice> pci) {
  const auto bus = machine.pci[pci.index].bus_id.to_string();
  return pci == device.pci ? fmt::format("{} ({})", name_of(machine, device.node), bus)
                           : fmt::format("the bridge {} above {}", bus, name_of(machine, device.node));
}

// The most that both ends of a link support; the link belongs to its lower end.
struct Best {
  topology::Fact<std::uint32_t> width;
  topology::Fact<double> speed;
};
Best best_of(const Machine& machine, Ref<PciDevice> pci) {
  const auto& own = machine.pci[pci.index];
  Best best{own.link.max_width, own.link.max_speed_gts};
  if (!own.parent) return best;
  const auto& port = machine.pci[own.parent.index].link;
  if (port.max_width && best.width && *port.max_width < *best.width) best.width = port.max_width;
  if (port.max_speed_gts && best.speed && *port.max_speed_gts < *best.speed) best.speed = port.max_speed_gts;
  return best;
}

// Whether it is the lower end of a link: an endpoint, the upstream port of a switch or a whole switch.
bool is_lower_end(const PciDevice& device) {
  return device.kind == topology::PciKind::endpoint || device.kind == topology::PciKind::switch_upstream ||
         device.kind == topology::PciKind::pci_switch;
}

template <class F>
void each_link(const Machine& machine, F visit) {
  std::set<std::uint32_t> seen;
  for (const auto& device : placed_devices(machine)) {
    auto chain = device.above;
    chain.insert(chain.begin(), device.pci);
    for (const auto pci : chain) {
      if (is_lower_end(machine.pci[pci.index]) && seen.insert(pci.index).second) visit(device, pci);
    }
  }
}

// What the findings on width and speed share.
Finding link_finding(const Machine& machine, const PlacedDevice& device, Ref<PciDevice> pci, const std::string& what) {
  Finding finding;
  finding.title = fmt::format("{}: the PCIe link runs {}", link_name(machine, device, pci), what);
  finding.devices = {device.node, pci_ref(pci)};
  finding.level = level_on_path(machine, pci_ref(pci), Level::warning);
  finding.cause = "link " + machine.pci[pci.index].bus_id.to_string();
  finding.fix = {
      fmt::format("lspci -vvs {} | grep -E 'LnkCap|LnkSta|LnkCtl2'", machine.pci[pci.index].bus_id.to_string())};
  return finding;
}

// Whether no device is on a path between two others, as of a part of a machine.
bool has_no_paths(const Machine& machine) {
  const auto all = placed_devices(machine);
  return std::ranges::none_of(all, [&](const PlacedDevice& one) { return on_a_path(machine, one.node); });
}

// A hypervisor's emulated link says nothing of the hardware; pcie-emulated-bridge covers it.
bool is_emulated(const Machine& machine, Ref<PciDevice> pci) {
  return topology::claims_least(machine.pci[pci.index]) && topology::is_virtual(machine);
}

constexpr const char* kReseat =
    "Reseat the card; check its contacts, the riser, and the bifurcation of the slot in the BIOS.";

// Links whose lines do not say which device's they are: it may be a bridge's, or a slot's that has no more.
bool nameless_links(const RuleInput& input, RuleResult& result) {
  const auto lines = input.facts.below("pcie.nameless");
  for (const auto& [name, seen] : lines) {
    if (name.ends_with(".device")) continue;
    const auto device = input.facts.text(fmt::format("pcie.nameless.{}.device", name));
    auto& finding = result.add();
    finding.title =
        fmt::format("{}: it runs {}", device.empty() ? "A PCIe link" : "The PCIe link of " + device, seen->value);
    finding.level = Level::note;
    finding.path = device.empty() ? "a device that the line does not name" : device;
    finding.cause = "nameless " + name;
    finding.evidence.push_back({"LnkSta below LnkCap", seen->where});
    finding.fix = {"lspci -vv | grep -E '^[0-9a-f]|LnkCap:|LnkSta:'    # with the devices' lines"};
    finding.advice = "A slot may support no more, and an idle GPU lowers its speed.";
  }
  return !lines.empty();
}

void width(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool any = false;
  each_link(machine, [&](const PlacedDevice& device, Ref<PciDevice> pci) {
    any = true;
    const auto& link = machine.pci[pci.index].link;
    const auto best = best_of(machine, pci);
    if (!link.width || !best.width)
      return result.lacks(link_name(machine, device, pci) + ": its width is not recorded");
    if (*link.width == 0 || *link.width >= *best.width || is_emulated(machine, pci)) return;
    auto& finding = result.add(link_finding(machine, device, pci, fmt::format("x{} of x{}", *link.width, *best.width)));
    finding.evidence.push_back({fmt::format("runs x{} at {:g} GT/s", *link.width, link.speed_gts.value_or(0)),
                                source_of(link.width.source, "link width")});
    finding.evidence.push_back(
        {fmt::format("both ends support x{}", *best.width), source_of(best.width.source, "largest link width")});
    const auto target = *best.width;
    const auto mend = [&](Machine& mended) { mended.pci[pci.index].link.width.value = target; };
    cost_of(input, flows_through(machine, pci_ref(pci)), mend).write_to(finding);
    finding.advice = kReseat;
    // Both ends can do more; where no path of bulk data is recorded at all, what it costs is unknown, not nothing.
    if (has_no_paths(machine)) finding.level = Level::warning;
    // nvidia-smi alone gives no place, and the largest width that GPU and slot have together.
    const bool told = link.max_width.source == topology::Source::nvml && machine.host_bridges.empty();
    if (told && device.node.kind == NodeKind::gpu) finding.level = Level::warning;
    if (told && finding.path.empty()) finding.path = name_of(machine, device.node);
  });
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    const auto now = input.facts.number(gpu_fact(machine, gpu, "pcie_width"));
    const auto most = input.facts.number(gpu_fact(machine, gpu, "pcie_max_width"));
    if (machine.gpus[gpu].pci || !now || !most) continue;
    any = true;
    if (*now >= *most) continue;
    auto& finding = result.add();
    finding.title = fmt::format("{}: the PCIe link runs x{:g} of x{:g}", name_of(machine, gpu_ref(gpu)), *now, *most);
    finding.devices = {gpu_ref(gpu)};
    finding.path = name_of(machine, gpu_ref(gpu));
    finding.evidence.push_back(
        evidence_of(input.facts, gpu_fact(machine, gpu, "pcie_width"), fmt::format("runs x{:g}", *now)));
    finding.fix = {fmt::format("nvidia-smi -q -i {} | grep -A8 'GPU Link Info'", smi_id(machine, gpu))};
    finding.advice = kReseat;
  }
  any = nameless_links(input, result) || any;
  if (!any) result.not_applicable();
}

void speed(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool any = false;
  each_link(machine, [&](const PlacedDevice& device, Ref<PciDevice> pci) {
    any = true;
    const auto& link = machine.pci[pci.index].link;
    const auto best = best_of(machine, pci);
    if (!link.speed_gts || !best.speed)
      return result.lacks(link_name(machine, device, pci) + ": its speed is not recorded");
    if (*link.speed_gts <= 0 || *link.speed_gts >= *best.speed || is_emulated(machine, pci)) return;
    // The bridges inside an AMD accelerator's card idle with it.
    const bool of_card = machine.pci[pci.index].vendor_id.value_or(0) == topology::kVendorAmd;
    const bool gpu = device.node.kind == NodeKind::gpu && (pci == device.pci || of_card);
    // NVML's largest generation is that of the device and its slot together.
    const bool port_known =
        link.max_speed_gts.source == topology::Source::nvml ||
        (machine.pci[pci.index].parent && machine.pci[machine.pci[pci.index].parent.index].link.max_speed_gts.known());
    const bool loaded = gpu && input.facts.text(gpu_fact(machine, device.node.index, "load")) == "yes";
    auto& finding =
        result.add(link_finding(machine, device, pci, fmt::format("{:g} of {:g} GT/s", *link.speed_gts, *best.speed)));
    if ((gpu && !loaded) || !port_known) finding.level = Level::note;
    finding.evidence.push_back(
        {fmt::format("runs at {:g} GT/s", *link.speed_gts), source_of(link.speed_gts.source, "link speed")});
    finding.evidence.push_back({port_known ? fmt::format("both ends support {:g} GT/s", *best.speed)
                                           : fmt::format("the device supports {:g} GT/s", *best.speed),
                                source_of(best.speed.source, "largest link speed")});
    if (finding.level == Level::warning) {
      const auto target = *best.speed;
      const auto mend = [&](Machine& mended) { mended.pci[pci.index].link.speed_gts.value = target; };
      cost_of(input, flows_through(machine, pci_ref(pci)), mend).write_to(finding);
    }
    finding.advice = gpu && !loaded ? "An idle GPU lowers its link speed to save power: check again under load."
                     : port_known   ? "Retrain the link; if it falls back, change riser or slot, or update firmware."
                                    : "The slot's own limit is not recorded: the slot may support no more.";
  });
  if (!any) result.not_applicable();
}

// A card whose ports together are faster than its slot: by its slot, its ports, what they want and what the link
// carries.
struct Card {
  std::vector<std::uint32_t> nics;
  double wanted = 0;
  double largest = 0;  // of one port
  double carried = 0;
  topology::Fact<double> raw_gbs;
  [[nodiscard]] bool is_starved() const { return carried < 0.97 * wanted; }
};

std::string kind_of_card(const Machine& machine, const Card& card) {
  const auto& device = machine.pci[topology::pci_of(machine, nic_ref(card.nics.front())).index];
  return fmt::format("{:x}:{:x}", device.vendor_id.value_or(0), device.device_id.value_or(0));
}

void slot(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  std::map<std::string, Card> cards;  // by slot
  for (const auto nic : bulk_nics(machine)) {
    const auto pci = topology::pci_of(machine, nic_ref(nic));
    if (!pci) continue;
    auto bus = machine.pci[pci.index].bus_id;
    bus.function = 0;
    cards[bus.to_string()].nics.push_back(nic);
  }
  if (cards.empty()) return result.not_applicable();
  std::map<std::string, std::pair<std::size_t, std::size_t>> kinds;  // cards of a kind, those of them that are starved
  for (auto& [bus, card] : cards) {
    for (const auto nic : card.nics) {
      const auto gbps = topology::nic_capacity_gbps(machine, machine.nics[nic]).value_or(0);
      card.wanted += gbps;
      card.largest = std::max(card.largest, gbps);
    }
    const auto pci = topology::pci_of(machine, nic_ref(card.nics.front()));
    card.raw_gbs = topology::believed_gbs(machine, machine.pci[pci.index]);
    if (card.wanted == 0 || !card.raw_gbs) {
      result.lacks(fmt::format("{}: the rate of its ports or of its link is unknown", bus));
      card.carried = card.wanted;
      continue;
    }
    // The payload that a link carries, by the predictor's constants.
    card.carried = *card.raw_gbs * 8 * input.model.planner().constants()[predict::ConstantId::pcie_dma].high;
    auto& kind = kinds[kind_of_card(machine, card)];
    ++kind.first;
    if (card.is_starved()) ++kind.second;
  }
  for (const auto& [bus, card] : cards) {
    if (!card.is_starved()) continue;
    // A link that runs below what it supports is pcie-width's or pcie-speed's finding.
    const auto pci = topology::pci_of(machine, nic_ref(card.nics.front()));
    const auto& link = machine.pci[pci.index].link;
    const auto best = best_of(machine, pci);
    if ((link.width && best.width && *link.width < *best.width) ||
        (link.speed_gts && best.speed && *link.speed_gts < *best.speed))
      continue;
    std::vector<NodeRef> nodes;
    for (const auto nic : card.nics) nodes.push_back(nic_ref(nic));
    auto& finding = result.add();
    finding.title = fmt::format("{}: ports of {:.0f} Gb/s in all on a PCIe link that carries {:.0f}",
                                folded_names(machine, nodes), card.wanted, card.carried);
    finding.devices = nodes;
    finding.evidence.push_back({fmt::format("ports: {:.0f} Gb/s", card.wanted), "port rates"});
    finding.evidence.push_back(
        {fmt::format("link of {}: {:.1f} GB/s raw", bus, *card.raw_gbs), source_of(card.raw_gbs.source, "link")});
    finding.path = name_of(machine, nodes.front());
    finding.cause = "slot " + bus;
    // All cards of the kind alike, or a second port beside one that its slot feeds: the machine is built that way.
    const auto& kind = kinds[kind_of_card(machine, card)];
    const bool all_alike = kind.first > 1 && kind.second == kind.first;
    if (all_alike || card.carried >= 0.97 * card.largest) {
      finding.level = Level::note;
      finding.advice = all_alike
                           ? "All cards of this kind here are wired so: the machine is built that way. Plan with what "
                             "the link carries."
                           : "One of its ports is fed whole; both together share what the link carries.";
    } else {
      finding.loss_gbps = card.wanted - card.carried;
      finding.now_gbps = card.carried;
      finding.mended_gbps = card.wanted;
      finding.advice = "Move the card to a slot with more lanes or a newer generation.";
    }
  }
}

void max_read_request(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto functions = rail_functions(machine, topology::kVendorMellanox);
  if (functions.empty()) return result.not_applicable();
  for (const auto& [nic, pci] : functions) {
    if (is_virtual_function(input, pci)) continue;
    const auto key = pci_fact(machine, pci, "max_read_request");
    const auto bytes = number_of(input, key, result);
    if (!bytes || *bytes >= 4096) continue;
    // 512 is the kernel's usual value; it is enough for a NIC below 200 Gb/s.
    if (topology::nic_one_flow_gbps(machine, machine.nics[nic]).value_or(0) < 200) continue;
    const auto bus = machine.pci[pci.index].bus_id.to_string();
    auto finding =
        nic_finding(machine, nic,
                    fmt::format("{}: MaxReadReq is {:.0f} bytes, 4096 is recommended", machine.nics[nic].name, *bytes));
    // The vendor gives no figure for what small requests cost.
    finding.level = *bytes <= 256 ? Level::warning : Level::note;
    finding.evidence.push_back(evidence_of(input.facts, key, fmt::format("MaxReadReq {:.0f} bytes", *bytes)));
    finding.fix = {fmt::format("setpci -s {} CAP_EXP+8.w    # bits 14:12 are the size: 5 is 4096", bus),
                   fmt::format("setpci -s {} CAP_EXP+8.w=5000:7000", bus)};
    result.add(std::move(finding));
  }
}

void outstanding_reads(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto functions = rail_functions(machine, topology::kVendorMellanox);
  if (functions.empty() || machine.cpu_vendor.value_or("") != "AuthenticAMD") return result.not_applicable();
  for (const auto& [nic, pci] : functions) {
    const auto key = fmt::format("mlxconfig.{}.MAX_ACC_OUT_READ", machine.pci[pci.index].bus_id.to_string());
    const auto value = input.facts.number(key);
    if (!value) {
      result.lacks(input.facts.why_not(key) + " (mlxconfig -d DEVICE query as root prints it)");
      continue;
    }
    if (*value > 44) continue;
    auto finding = nic_finding(
        machine, nic, fmt::format("{}: MAX_ACC_OUT_READ is {:.0f} on an AMD host", machine.nics[nic].name, *value));
    finding.level = Level::note;
    finding.evidence.push_back(evidence_of(input.facts, key));
    finding.fix = {fmt::format("mlxconfig -d {} set ADVANCED_PCI_SETTINGS=1 MAX_ACC_OUT_READ=128",
                               machine.pci[pci.index].bus_id.to_string()),
                   interrupting(fmt::format("mlxfwreset -d {} reset", machine.pci[pci.index].bus_id.to_string()),
                                Interrupts::port)};
    result.add(std::move(finding));
  }
}

void max_payload(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (topology::is_virtual(machine))
    return result.not_applicable();                       // the host's registers count, and a guest does not see them
  std::map<std::string, std::vector<PlacedDevice>> slow;  // by the bridge or device that says 128
  bool any = false;
  for (const auto& device : placed_devices(machine)) {
    any = true;
    auto chain = device.above;
    chain.insert(chain.begin(), device.pci);
    for (const auto pci : chain) {
      if (is_virtual_function(input, pci)) continue;
      const auto key = pci_fact(machine, pci, "max_payload");
      const auto bytes = number_of(input, key, result);
      if (!bytes) continue;
      const auto able = input.facts.number(pci_fact(machine, pci, "max_payload_able"));
      if (*bytes < 256 && able.value_or(256) >= 256) {
        slow[key].push_back(device);
        break;
      }
    }
  }
  if (!any) return result.not_applicable();
  for (const auto& [key, devices] : slow) {
    std::vector<NodeRef> nodes;
    for (const auto& device : devices) nodes.push_back(device.node);
    auto& finding = result.add();
    finding.title = fmt::format("{}: PCIe packets carry at most 128 bytes", folded_names(machine, nodes));
    finding.devices = nodes;
    finding.evidence.push_back(evidence_of(input.facts, key, "MaxPayload 128 bytes"));
    // 128 of 152 bytes a packet against 256 of 280 (24 bytes of header and framing).
    cost_of_share(input, flows_through(machine, nodes.front()), 1 - (128.0 / 152) / (256.0 / 280)).write_to(finding);
    finding.fix = add_kernel_option("pci=pcie_bus_perf");
    finding.advice = "Or set the payload size in the BIOS.";
  }
}

void emulated_bridge(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  std::vector<NodeRef> behind;
  std::set<std::string> bridges;
  const auto devices = placed_devices(machine);
  if (devices.empty()) return result.not_applicable();
  if (machine.host_bridges.empty() &&
      std::ranges::all_of(devices, [](const PlacedDevice& one) { return one.above.empty(); }))
    return result.lacks("the bridges above GPUs and NICs are not recorded (lspci -vvv as root)");
  for (const auto& device : devices) {
    const auto own = topology::current_gbs(machine.pci[device.pci.index].link);
    for (const auto bridge : device.above) {
      const auto& at = machine.pci[bridge.index];
      const auto claim = topology::current_gbs(at.link);
      const auto vendor = at.vendor_id.value_or(0);
      const bool known_kind =
          (vendor == 0x104c && at.device_id.value_or(0) == 0x8232) || vendor == topology::kVendorQemu;
      if (!claim || !(known_kind || topology::claims_least(at))) continue;
      if (own ? *own / *claim <= 8 : !known_kind) continue;
      behind.push_back(device.node);
      bridges.insert(at.bus_id.to_string());
      break;
    }
  }
  if (behind.empty()) return;
  auto& finding = result.add();
  finding.title = fmt::format("{}: behind an emulated bridge that reports 2.5 GT/s x1", folded_names(machine, behind));
  finding.devices = behind;
  finding.level = Level::note;  // no traffic is slower; programs that believe the rate choose other routes
  finding.evidence.push_back(
      {fmt::format("bridge {} reports a rate more than 8 times below the device's", *bridges.begin()), "PCI tree"});
  finding.fix = {"fairway topo export nccl -o topo.xml", "export NCCL_TOPO_FILE=$PWD/topo.xml"};
  finding.advice = "Fairway ignores such rates. Programs that believe them need a topology file.";
}

constexpr Rule kRules[] = {
    {"pcie-width", Family::pcie, "A PCIe link runs with fewer lanes than both its ends support",
     "Half the lanes give half the rate: Gen4 x8 has 15.75 GB/s, 126 Gb/s raw.",
     "The current width against the largest that device and port both support, for links of GPUs and rails and above "
     "them. A warning where a recorded path crosses the link, where none is recorded at all, and of GPUs of which "
     "nvidia-smi alone tells; else a note. Links below their best whose device no line names (lspci | grep LnkSta) are "
     "notes.",
     "Reseat the card; check riser, slot and bifurcation.", "nccl#2397; 126 Gb/s est.", width},
    {"pcie-speed", Family::pcie, "A PCIe link runs at a lower generation than both its ends support",
     "Gen4 in place of Gen5: 24 in place of 48 GB/s of payload.",
     "The current speed against the highest that device and port both support. Idle GPUs lower their link speed, so "
     "they count only under load.",
     "Retrain the link, change riser or slot, update firmware.", "est.", speed},
    {"pcie-slot", Family::pcie, "A card's ports together are faster than its slot",
     "Two 100 Gb/s ports behind Gen4 x8 share about 110 Gb/s.",
     "The sum of its ports' rates is more than 3 % above what its link carries: a warning if one port alone is; a note "
     "if "
     "all cards of its kind are wired so, or if only its ports together are.",
     "Use a slot with more lanes or a newer generation, or one port of the card.", "est.", slot},
    {"pcie-max-read-request", Family::pcie, "A NIC's read requests are small",
     "To send, a NIC reads memory; with small requests it has too little in flight.",
     "MaxReadReq of a rail of 200 Gb/s or more below 4096 bytes.", "setpci in a boot script: each reset undoes it.",
     "ngc_multinode_perf and OCI's script ask for 4096; no figure found", max_read_request},
    {"pcie-outstanding-reads", Family::pcie, "A NIC on an AMD host keeps few reads in flight",
     "The latency of its memory reads limits how fast it sends.", "MAX_ACC_OUT_READ of 44 or less in mlxconfig.",
     "Set 128 and reset the NIC.", "ROCm/gpu-cluster-networking, pull request 48; no figure", outstanding_reads},
    {"pcie-max-payload", Family::pcie, "PCIe packets carry at most 128 bytes",
     "84 % of the link is payload; with 256 bytes it is 91 %.",
     "MaxPayload of a GPU, a rail or a bridge above them is below 256, and the device supports more.",
     "pci=pcie_bus_perf on the kernel's command line, or the BIOS.", "est.", max_payload},
    {"pcie-emulated-bridge", Family::pcie, "An emulated bridge reports 2.5 GT/s x1",
     "NCCL's graph showed 0.2 GB/s and chose worse routes; the traffic itself is not slower.",
     "A hypervisor's bridge that reports a rate more than 8 times below that of the device behind it.",
     "Give programs a topology file.", "nccl-tests#256", emulated_bridge},
};

}  // namespace

std::span<const Rule> pcie_rules() {
  return kRules;
}

}  // namespace fairway::doctor
