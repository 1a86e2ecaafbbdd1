#include <algorithm>
#include <set>

#include "doctor/rules/common.h"

// PCIe links and the registers that bound what a NIC keeps in flight.
namespace fairway::doctor {
namespace {

using topology::PciDevice;
using topology::Ref;

std::string link_name(const Machine& machine, const PlacedDevice& device, Ref<PciDevice> pci) {
  const auto bus = machine.pci[pci.index].bus_id.to_string();
  return pci == device.pci ? fmt::format("{} ({})", name_of(machine, device.node), bus)
                           : fmt::format("the bridge {} above {}", bus, name_of(machine, device.node));
}

// A link as its lower end describes it, and the best both its ends could do.
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

void width(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  bool any = false;
  each_link(machine, [&](const PlacedDevice& device, Ref<PciDevice> pci) {
    any = true;
    const auto& link = machine.pci[pci.index].link;
    const auto best = best_of(machine, pci);
    if (!link.width || !best.width) return say.lacks(link_name(machine, device, pci) + ": its width is not recorded");
    if (*link.width == 0 || *link.width >= *best.width) return;
    // A hypervisor's emulated link is another rule's.
    if (topology::claims_least(machine.pci[pci.index]) && topology::is_virtual(machine)) return;
    Finding finding;
    finding.title =
        fmt::format("{}: the PCIe link runs x{} of x{}", link_name(machine, device, pci), *link.width, *best.width);
    finding.devices = {device.node, pci_ref(pci)};
    finding.level = level_on_path(machine, pci_ref(pci), Level::warning);
    finding.cause = "link " + machine.pci[pci.index].bus_id.to_string();
    finding.evidence.push_back({fmt::format("runs x{} at {:g} GT/s", *link.width, link.speed_gts.value_or(0)),
                                source_of(link.width.source, "link width")});
    finding.evidence.push_back(
        {fmt::format("both ends could x{}", *best.width), source_of(best.width.source, "largest link width")});
    const auto target = *best.width;
    put(finding, cost_of(look, flows_through(machine, pci_ref(pci)),
                         [&](Machine& mended) { mended.pci[pci.index].link.width.value = target; }));
    finding.fix = {fmt::format("lspci -vvs {} | grep -E 'LnkCap|LnkSta'", machine.pci[pci.index].bus_id.to_string())};
    finding.advice =
        "Reseat the card, look for a bent contact or a riser, and for bifurcation of the slot in the BIOS.";
    say.add(std::move(finding));
  });
  if (!any) say.absent();
}

void speed(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  bool any = false;
  each_link(machine, [&](const PlacedDevice& device, Ref<PciDevice> pci) {
    any = true;
    const auto& link = machine.pci[pci.index].link;
    const auto best = best_of(machine, pci);
    if (!link.speed_gts || !best.speed)
      return say.lacks(link_name(machine, device, pci) + ": its speed is not recorded");
    if (*link.speed_gts <= 0 || *link.speed_gts >= *best.speed) return;
    if (topology::claims_least(machine.pci[pci.index]) && topology::is_virtual(machine)) return;
    const bool gpu = pci == device.pci && device.node.kind == NodeKind::gpu;
    const bool port_known =
        machine.pci[pci.index].parent && machine.pci[machine.pci[pci.index].parent.index].link.max_speed_gts.known();
    const bool loaded = gpu && look.facts.text(gpu_fact(machine, device.node.index, "load")) == "yes";
    Finding finding;
    finding.title = fmt::format("{}: the PCIe link runs {:g} of {:g} GT/s", link_name(machine, device, pci),
                                *link.speed_gts, *best.speed);
    finding.devices = {device.node, pci_ref(pci)};
    finding.level =
        (gpu && !loaded) || !port_known ? Level::note : level_on_path(machine, pci_ref(pci), Level::warning);
    finding.cause = "link " + machine.pci[pci.index].bus_id.to_string();
    finding.evidence.push_back(
        {fmt::format("runs at {:g} GT/s", *link.speed_gts), source_of(link.speed_gts.source, "link speed")});
    finding.evidence.push_back({fmt::format("{} could {:g} GT/s", port_known ? "both ends" : "the device", *best.speed),
                                source_of(best.speed.source, "largest link speed")});
    const auto target = *best.speed;
    if (finding.level == Level::warning) {
      put(finding, cost_of(look, flows_through(machine, pci_ref(pci)),
                           [&](Machine& mended) { mended.pci[pci.index].link.speed_gts.value = target; }));
    }
    finding.fix = {
        fmt::format("lspci -vvs {} | grep -E 'LnkCap|LnkSta|LnkCtl2'", machine.pci[pci.index].bus_id.to_string())};
    finding.advice = gpu && !loaded ? "An idle GPU lowers its link to save power: look again under load."
                     : port_known   ? "Retrain the link; if it falls back, change riser or slot, or update firmware."
                                    : "The slot's own limit is not recorded: it may be all that the slot can.";
    say.add(std::move(finding));
  });
  if (!any) say.absent();
}

// A card whose ports together want more than its slot gives.
void slot(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  std::map<std::string, std::vector<std::uint32_t>> cards;  // by slot
  for (const auto nic : rails(machine)) {
    const auto pci = topology::pci_of(machine, nic_ref(nic));
    if (!pci) continue;
    auto bus = machine.pci[pci.index].bus_id;
    bus.function = 0;
    cards[bus.to_string()].push_back(nic);
  }
  if (cards.empty()) return say.absent();
  for (const auto& [bus, nics] : cards) {
    double wanted = 0;
    for (const auto nic : nics) wanted += topology::nic_capacity_gbps(machine, machine.nics[nic]).value_or(0);
    const auto pci = topology::pci_of(machine, nic_ref(nics.front()));
    const auto given = topology::believed_gbs(machine, machine.pci[pci.index]);
    if (wanted == 0 || !given) {
      say.lacks(fmt::format("{}: the rate of its ports or of its link is unknown", bus));
      continue;
    }
    // What a link carries of its raw rate, by the predictor's own table.
    const double carried = *given * 8 * look.model.planner().constants()[predict::ConstantId::pcie_dma].high;
    if (carried >= 0.97 * wanted) continue;
    // A link below its own best is the finding of width or speed.
    const auto& link = machine.pci[pci.index].link;
    const auto best = best_of(machine, pci);
    if ((link.width && best.width && *link.width < *best.width) ||
        (link.speed_gts && best.speed && *link.speed_gts < *best.speed))
      continue;
    std::vector<NodeRef> nodes;
    for (const auto nic : nics) nodes.push_back(nic_ref(nic));
    Finding finding;
    finding.title = fmt::format("{}: ports of {:.0f} Gb/s together behind a PCIe link that carries {:.0f}",
                                folded_names(machine, nodes), wanted, carried);
    finding.devices = nodes;
    finding.evidence.push_back({fmt::format("ports: {:.0f} Gb/s", wanted), "port rates"});
    finding.evidence.push_back(
        {fmt::format("link of {}: {:.1f} GB/s raw", bus, *given), source_of(given.source, "link")});
    finding.loss_gbps = wanted - carried;
    finding.now_gbps = carried;
    finding.mended_gbps = wanted;
    finding.path = name_of(machine, nodes.front());
    finding.cause = "slot " + bus;
    finding.advice = "Move the card to a slot with more lanes or a newer generation, or use one of its ports.";
    say.add(std::move(finding));
  }
}

void max_read_request(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  bool any = false;
  for (const auto nic : rails(machine)) {
    const auto pci = topology::pci_of(machine, nic_ref(nic));
    if (!pci || machine.pci[pci.index].vendor_id.value_or(0) != topology::kVendorMellanox) continue;
    any = true;
    const auto key = pci_fact(machine, pci, "max_read_request");
    const auto bytes = look.facts.number(key);
    if (!bytes) {
      say.lacks(look.facts.why_not(key));
      continue;
    }
    if (*bytes >= 4096) continue;
    // 512 is the kernel's usual value, and a NIC below 200 Gb/s is full with it.
    if (topology::nic_one_flow_gbps(machine, machine.nics[nic]).value_or(0) < 200) continue;
    const auto bus = machine.pci[pci.index].bus_id.to_string();
    Finding finding;
    finding.title =
        fmt::format("{}: MaxReadReq is {:.0f} bytes, and 4096 is asked for", machine.nics[nic].name, *bytes);
    finding.devices = {nic_ref(nic)};
    // The vendor names no figure for it; what small requests cost is not known here.
    finding.level = *bytes <= 256 ? Level::warning : Level::note;
    finding.path = paths_text(machine, flows_through(machine, nic_ref(nic)));
    finding.evidence.push_back(evidence_of(look.facts, key, fmt::format("MaxReadReq {:.0f} bytes", *bytes)));
    finding.fix = {fmt::format("setpci -s {} CAP_EXP+8.w    # bits 14:12 are the size: 5 is 4096", bus),
                   fmt::format("setpci -s {} CAP_EXP+8.w=5000:7000", bus)};
    say.add(std::move(finding));
  }
  if (!any) say.absent();
}

void outstanding_reads(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  bool any = false;
  for (const auto nic : rails(machine)) {
    const auto pci = topology::pci_of(machine, nic_ref(nic));
    if (!pci || machine.pci[pci.index].vendor_id.value_or(0) != topology::kVendorMellanox) continue;
    if (machine.cpu_vendor.value_or("") != "AuthenticAMD") continue;
    any = true;
    const auto key = fmt::format("mlxconfig.{}.MAX_ACC_OUT_READ", machine.pci[pci.index].bus_id.to_string());
    const auto value = look.facts.number(key);
    if (!value) {
      say.lacks(look.facts.why_not(key) + ": mlxconfig -d DEVICE query says it, as root");
      continue;
    }
    if (*value > 44) continue;
    Finding finding;
    finding.title = fmt::format("{}: MAX_ACC_OUT_READ is {:.0f} on an AMD host", machine.nics[nic].name, *value);
    finding.devices = {nic_ref(nic)};
    finding.level = Level::note;
    finding.path = paths_text(machine, flows_through(machine, nic_ref(nic)));
    finding.evidence.push_back(evidence_of(look.facts, key));
    finding.fix = {fmt::format("mlxconfig -d {} set ADVANCED_PCI_SETTINGS=1 MAX_ACC_OUT_READ=128",
                               machine.pci[pci.index].bus_id.to_string()),
                   fmt::format("mlxfwreset -d {} reset", machine.pci[pci.index].bus_id.to_string())};
    say.add(std::move(finding));
  }
  if (!any) say.absent();
}

void max_payload(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  if (topology::is_virtual(machine)) return say.absent();  // the host's registers count, and are not seen here
  std::map<std::string, std::vector<PlacedDevice>> slow;   // by the bridge or device that says 128
  bool any = false;
  for (const auto& device : placed_devices(machine)) {
    any = true;
    auto chain = device.above;
    chain.insert(chain.begin(), device.pci);
    for (const auto pci : chain) {
      const auto key = pci_fact(machine, pci, "max_payload");
      const auto bytes = look.facts.number(key);
      if (!bytes) {
        say.lacks(look.facts.why_not(key));
        continue;
      }
      const auto able = look.facts.number(pci_fact(machine, pci, "max_payload_able"));
      if (*bytes < 256 && able.value_or(256) >= 256) {
        slow[key].push_back(device);
        break;
      }
    }
  }
  if (!any) return say.absent();
  for (const auto& [key, devices] : slow) {
    std::vector<NodeRef> nodes;
    for (const auto& device : devices) nodes.push_back(device.node);
    Finding finding;
    finding.title = fmt::format("{}: packets of 128 bytes on the PCIe path", folded_names(machine, nodes));
    finding.devices = nodes;
    finding.evidence.push_back(evidence_of(look.facts, key, "MaxPayload 128 bytes"));
    // 128 of 152 bytes a packet against 256 of 280 (24 bytes of header and framing).
    put(finding, cost_of_share(look, flows_through(machine, nodes.front()), 1 - (128.0 / 152) / (256.0 / 280)));
    finding.fix = {"# add to the kernel's command line: pci=pcie_bus_perf"};
    finding.advice = "Or set the payload size in the BIOS.";
    say.add(std::move(finding));
  }
}

void emulated_bridge(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  std::vector<NodeRef> behind;
  std::set<std::string> bridges;
  const auto devices = placed_devices(machine);
  if (devices.empty()) return say.absent();
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
  Finding finding;
  finding.title = fmt::format("{}: behind an emulated bridge that claims 2.5 GT/s x1", folded_names(machine, behind));
  finding.devices = behind;
  finding.level = Level::note;  // no traffic is slower for it; programs that believe it choose other routes
  finding.evidence.push_back(
      {fmt::format("bridge {} claims a rate more than 8 times below the device's", *bridges.begin()), "PCI tree"});
  finding.fix = {"fairway topo export nccl -o topo.xml", "export NCCL_TOPO_FILE=$PWD/topo.xml"};
  finding.advice = "Fairway does not believe such links. Programs that do need a topology file.";
  say.add(std::move(finding));
}

constexpr Rule kRules[] = {
    {"pcie-width", Family::pcie, "A PCIe link runs with fewer lanes than both its ends have",
     "Half the lanes are half the rate: Gen4 x8 carries 15.75 GB/s, 126 Gb/s raw.",
     "Current width against the smaller of the device's and the port's largest, for links that a GPU or a rail stands "
     "on.",
     "Reseat the card; look at riser, slot and bifurcation.", "nccl#2397; 126 Gb/s est.", width},
    {"pcie-speed", Family::pcie, "A PCIe link runs at a lower generation than both its ends have",
     "Gen4 in place of Gen5: 48 to 24 GB/s of payload.",
     "Current speed against the smaller of the device's and the port's best. GPUs count only under load: idle they "
     "lower "
     "their link.",
     "Retrain the link, change riser or slot, update firmware.", "est.", speed},
    {"pcie-slot", Family::pcie, "A card's ports together need more than its slot carries",
     "Two 100 Gb/s ports behind Gen4 x8 share about 110 Gb/s.",
     "The sum of its ports' rates against what its link carries, from 3 % on.",
     "A slot with more lanes or a newer generation, or one port of the card.", "est.", slot},
    {"pcie-max-read-request", Family::pcie, "A NIC's read requests are small",
     "A NIC that sends reads memory; small requests leave more of them in flight than it can hold.",
     "MaxReadReq of a rail of 200 Gb/s or more below 4096 bytes.",
     "setpci, by a boot script: it is lost at each reset.",
     "ngc_multinode_perf and OCI's script ask for 4096; no figure found", max_read_request},
    {"pcie-outstanding-reads", Family::pcie, "A NIC on an AMD host keeps few reads in flight",
     "What it sends is bounded by the latency of its reads of memory.", "MAX_ACC_OUT_READ of 44 or less in mlxconfig.",
     "128, and a reset of the NIC.", "ROCm/gpu-cluster-networking, pull request 48; no figure", outstanding_reads},
    {"pcie-max-payload", Family::pcie, "PCIe packets of 128 bytes on a path",
     "84 % of the link is payload, where 256 bytes give 91 %.",
     "MaxPayload of a GPU, a rail or a bridge above either below 256, where it could be more.",
     "pci=pcie_bus_perf on the kernel's command line, or the BIOS.", "est.", max_payload},
    {"pcie-emulated-bridge", Family::pcie, "An emulated bridge claims 2.5 GT/s x1",
     "NCCL's graph showed 0.2 GB/s and chose worse routes; the traffic itself is not slower.",
     "A bridge of a hypervisor with a claim more than 8 times below the device behind it.",
     "Give programs a topology file.", "nccl-tests#256", emulated_bridge},
};

}  // namespace

std::span<const Rule> pcie_rules() {
  return kRules;
}

}  // namespace fairway::doctor
