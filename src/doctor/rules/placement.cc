#include <algorithm>
#include <map>
#include <set>

#include "doctor/rules/common.h"
#include "predict/flow.h"
#include "topology/catalog.h"
#include "topology/edges.h"

// Which NIC serves which GPU, and what they share.
namespace fairway::doctor {
namespace {

using predict::EndpointKind;

PathKind kind_of(const Machine& machine, std::uint32_t gpu, std::uint32_t nic) {
  const auto path = topology::path_class(machine, gpu_ref(gpu), nic_ref(nic));
  return path ? path->kind : PathKind::unknown;
}

bool is_far(PathKind kind) {
  return kind == PathKind::sys;
}

// Rails nearer than SYS, nearest first.
std::vector<std::uint32_t> near_rails(const Machine& machine, std::uint32_t gpu) {
  std::vector<std::uint32_t> out;
  for (const auto nic : rails(machine)) {
    const auto kind = kind_of(machine, gpu, nic);
    if (kind != PathKind::unknown && !is_far(kind)) out.push_back(nic);
  }
  std::ranges::stable_sort(
      out, [&](std::uint32_t a, std::uint32_t b) { return kind_of(machine, gpu, a) < kind_of(machine, gpu, b); });
  return out;
}

predict::Flow through(const predict::Flow& flow, std::uint32_t nic) {
  predict::Flow other = flow;
  if (other.loop) other.loop = nic;
  for (auto* end : {&other.from, &other.to}) {
    if (end->kind == EndpointKind::nic) *end = {EndpointKind::nic, nic, {}};
  }
  return other;
}

void far_nic(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (machine.gpus.empty() || rails(machine).empty()) return result.not_applicable();
  struct Far {
    std::vector<NodeRef> gpus;
    std::set<std::uint32_t> nearer;
    Cost cost;
    std::vector<Evidence> evidence;
  };
  std::map<std::uint32_t, Far> by_nic;
  bool any = false;
  for (const auto& row : input.measured) {
    const auto gpu = gpu_of(row);
    const auto nic = nic_of(machine, row);
    if (!gpu || !nic || row.failed) continue;
    any = true;
    if (!is_far(kind_of(machine, *gpu, *nic))) continue;
    const auto near = near_rails(machine, *gpu);
    if (near.empty()) continue;
    auto& far = by_nic[*nic];
    if (std::ranges::find(far.gpus, gpu_ref(*gpu)) != far.gpus.end()) continue;
    // Through the nearer NIC: what a measured pair of that class reached; if there is none, the prediction.
    double mended = 0;
    for (const auto& other : input.measured) {
      const auto other_gpu = gpu_of(other);
      const auto other_nic = nic_of(machine, other);
      if (!other_gpu || !other_nic || other.failed || other.qps != row.qps || other.bytes != row.bytes ||
          other.both_ways != row.both_ways)
        continue;
      const auto kind = kind_of(machine, *other_gpu, *other_nic);
      if (kind == kind_of(machine, *gpu, near.front())) mended = std::max(mended, other.gbps);
    }
    if (mended == 0 && row.flow) mended = expected_gbps(input, through(*row.flow, near.front())).value_or(0);
    if (mended <= row.gbps) continue;
    far.gpus.push_back(gpu_ref(*gpu));
    for (const auto one : near) far.nearer.insert(one);
    far.cost.add(row.gbps, mended);
    if (far.evidence.size() < 8) far.evidence.push_back(evidence_of(machine, row));
  }
  for (auto& [nic, far] : by_nic) {
    if (far.gpus.empty()) continue;
    std::vector<NodeRef> nearer;
    for (const auto one : far.nearer) nearer.push_back(nic_ref(one));
    auto& finding = result.add();
    finding.title =
        fmt::format("{} cross{} sockets to {}: use {} instead", folded_names(machine, far.gpus),
                    far.gpus.size() == 1 ? "es" : "", machine.nics[nic].name, folded_names(machine, nearer));
    finding.devices = far.gpus;
    finding.confidence = Confidence::measured;
    finding.path = fmt::format("{} - {}", folded_names(machine, far.gpus), machine.nics[nic].name);
    far.cost.write_to(finding);
    finding.evidence = std::move(far.evidence);
    finding.cause = "far nic";
    finding.fix = {
        fmt::format("export NCCL_IB_HCA=={}    # for the ranks on {}",
                    joined_names(machine, {far.nearer.begin(), far.nearer.end()}), folded_names(machine, far.gpus)),
        fmt::format("fairway topo nics --gpu {}    # the NICs for one GPU, best first",
                    smi_id(machine, far.gpus.front().index))};
  }
  if (!any) result.lacks("no measured rows between GPUs and NICs (--measured)");
}

void no_near_nic(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto nics = rails(machine);
  if (machine.gpus.empty() || nics.empty()) return result.not_applicable();
  std::vector<NodeRef> far;
  std::size_t near = 0;
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    const bool known =
        std::ranges::any_of(nics, [&](std::uint32_t nic) { return kind_of(machine, gpu, nic) != PathKind::unknown; });
    if (!known) {
      result.lacks(topology::gpu_name(machine, machine.gpus[gpu]) + ": its path class to NICs is not recorded");
    } else if (near_rails(machine, gpu).empty()) {
      far.push_back(gpu_ref(gpu));
    } else {
      ++near;
    }
  }
  if (far.empty()) return;
  // Beside a Grace CPU each device has a PCI domain of its own: a matrix says SYS within a socket too.
  const bool own_domains = std::ranges::all_of(far, [&](const NodeRef& one) {
    const auto& model = machine.gpus[one.index].model;
    const auto* generation = model ? topology::find_gpu_generation(*model) : nullptr;
    return topology::c2c_gbs(machine, one.index) || (generation != nullptr && generation->c2c_gbs > 0);
  });
  if (near == 0 && own_domains && !machine.matrix.ends.empty()) return;
  // One rail for each, in turn: all of them can be busy at once.
  std::vector<predict::Flow> flows;
  for (std::size_t i = 0; i < far.size(); ++i) {
    auto& flow = flows.emplace_back(
        full_flow({EndpointKind::gpu, far[i].index, {}}, {EndpointKind::nic, nics[i % nics.size()], {}}));
    flow.conditions.ordering = predict::Ordering::unknown;
  }
  Finding finding;
  finding.title =
      fmt::format("{} {} every NIC across sockets", folded_names(machine, far), far.size() == 1 ? "has" : "have");
  finding.devices = far;
  finding.evidence.push_back({"the best class to any rail is SYS", "path classes"});
  Cost cost;
  cost.path = paths_text(machine, flows);
  std::string beyond;  // what relaying gives where no port's rate limits it
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const auto capacity = topology::nic_capacity_gbps(machine, machine.nics[flows[i].to.index]);
    const auto sharing = static_cast<double>((far.size() - 1 - i % nics.size()) / nics.size() + 1);
    const auto now = expected_gbps(input, flows[i]);
    const double most = capacity.value_or(0) * 0.97 / sharing;
    if (now && capacity) cost.add(std::min(*now, most), most);
    if (capacity || !beyond.empty() || near == 0) continue;
    const auto routes = input.model.routes(flows[i]);
    if (!now || !routes || routes->empty() || routes->front().name == "direct") continue;
    beyond = fmt::format(
        "The rate of its port is not recorded (ibv_devinfo -v prints it), so the cost is unknown: its "
        "PCIe side would give {:.0f} Gb/s {}, and {:.0f} directly.",
        routes->front().prediction.gbs.expected * 8, routes->front().name, *now);
  }
  cost.write_to(finding);
  // A GPU with a near NIC and an NVLink to them can relay for them. Otherwise the machine is built that way.
  const bool relayed = std::ranges::any_of(far, [&](const NodeRef& one) {
    for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
      if (std::ranges::find(far, gpu_ref(gpu)) != far.end()) continue;
      const auto path = topology::path_class(machine, one, gpu_ref(gpu));
      if (path && (path->kind == PathKind::nvlink || path->kind == PathKind::xgmi)) return true;
    }
    return false;
  });
  finding.level = near > 0 && relayed ? Level::warning : Level::note;
  if (near == 0) {
    finding.advice = "No GPU of this machine has a near NIC.";
  } else if (relayed) {
    finding.advice =
        "Relay by NVLink over a GPU with a near NIC (NCCL: NCCL_PXN_DISABLE=0), or add a NIC to that socket.";
  } else {
    finding.advice = "Give network traffic to the other GPUs first, or add a NIC to that socket.";
  }
  finding.fix = {
      relayed
          ? fmt::format(
                "fairway predict {}:remote --routes    # by NVLink over another GPU and its NIC",
                predict::argument_of(machine, predict::Endpoint{predict::EndpointKind::gpu, far.front().index, {}}))
          : fmt::format("fairway topo nics --gpu {}    # what each NIC is to it", smi_id(machine, far.front().index))};
  if (!beyond.empty()) finding.advice += " " + beyond;
  result.add(std::move(finding));
}

// Of a table that a program printed, a few pairs far below others that are alike; false: no table is large enough.
// GPUs that are joined in several ways have rates of several kinds, and no outliers.
bool slow_cells(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  std::map<std::uint32_t, std::vector<const Measurement*>> tables;
  for (const auto& row : input.measured) {
    if (row.table != 0 && !row.failed) tables[row.table].push_back(&row);
  }
  bool any = false;
  for (auto& [line, rows] : tables) {
    if (rows.size() < 4) continue;
    any = true;
    std::ranges::sort(rows, [](const auto* a, const auto* b) { return a->gbps < b->gbps; });
    const double median = rows[rows.size() / 2]->gbps;
    const auto alike = std::ranges::find_if(rows, [&](const auto* row) { return row->gbps >= 0.7 * median; });
    const auto slow = static_cast<std::size_t>(alike - rows.begin());
    if (slow == 0 || slow * 4 > rows.size() || (*alike)->gbps < 0.8 * median || rows.back()->gbps > 1.25 * median)
      continue;
    const auto name = [](const Measurement& row) {
      return fmt::format("{}{} {} GPU{}", row.from_cpu ? "CPU" : "GPU", row.row, row.both_ways ? "<->" : "and",
                         row.column);
    };
    auto& finding = result.add();
    finding.title = fmt::format("{}{} reach {:.0f} Gb/s, other pairs {:.0f}", name(*rows[0]),
                                slow > 1 ? fmt::format(" ({} cells of the table)", slow) : "", rows[0]->gbps, median);
    finding.path = name(*rows[0]);
    set_measured(finding, rows[0]->gbps, median);
    for (std::size_t i = 0; i < slow; ++i) {
      if (i < 4)
        finding.evidence.push_back({fmt::format("{}: {:.1f} Gb/s", name(*rows[i]), rows[i]->gbps),
                                    fmt::format("{} ({})", rows[i]->where, rows[i]->program)});
      for (const auto number : {rows[i]->row, rows[i]->column}) {
        const auto gpu = topology::find_gpu(machine, number);
        if (gpu && (number != rows[i]->row || !rows[i]->from_cpu) &&
            std::ranges::find(finding.devices, gpu_ref(gpu.index)) == finding.devices.end())
          finding.devices.push_back(gpu_ref(gpu.index));
      }
    }
    finding.advice = "Compare link width, NVLinks and root ports of both; measure again with nothing else running.";
    finding.fix = {"nvidia-smi nvlink -s; nvidia-smi topo -m    # are they joined as the others are?"};
  }
  return any;
}

void unequal_pairs(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const bool tables = slow_cells(input, result);
  if (machine.gpus.empty() && !tables) return result.not_applicable();
  struct Key {
    PathKind kind;
    std::uint32_t nic;
    std::uint32_t qps;
    std::uint64_t bytes;
    bool both_ways;
    bool operator<(const Key& other) const {
      return std::tie(kind, nic, qps, bytes, both_ways) <
             std::tie(other.kind, other.nic, other.qps, other.bytes, other.both_ways);
    }
  };
  std::map<Key, std::vector<const Measurement*>> classes;
  for (const auto& row : input.measured) {
    const auto gpu = gpu_of(row);
    const auto nic = nic_of(machine, row);
    if (!gpu || !nic || row.failed) continue;
    const auto kind = kind_of(machine, *gpu, *nic);
    if (kind != PathKind::unknown) classes[{kind, *nic, row.qps, row.bytes, row.both_ways}].push_back(&row);
  }
  if (classes.empty() && tables) return;
  if (classes.empty()) return result.lacks("no measured rows between GPUs and NICs (--measured)");
  const auto enough = [](const auto& one) { return one.second.size() >= 3; };
  if (std::ranges::none_of(classes, enough))
    return result.lacks("fewer than three measured pairs of one class over one NIC (--measured)");
  for (auto& [key, rows] : classes) {
    if (rows.size() < 3) continue;
    std::vector<double> rates;
    for (const auto* row : rows) rates.push_back(row->gbps);
    std::ranges::sort(rates);
    const double median = rates[rates.size() / 2];
    for (const auto* row : rows) {
      if (row->gbps >= 0.9 * median) continue;
      const auto gpu = *gpu_of(*row);
      auto& finding = result.add();
      finding.title =
          fmt::format("{} reaches {} at {:.0f} Gb/s, paths of the same class at {:.0f}",
                      topology::gpu_name(machine, machine.gpus[gpu]), machine.nics[key.nic].name, row->gbps, median);
      finding.devices = {gpu_ref(gpu)};
      set_measured(finding, row->gbps, median);
      finding.path = fmt::format("{} - {}", topology::gpu_name(machine, machine.gpus[gpu]), machine.nics[key.nic].name);
      finding.evidence.push_back(evidence_of(machine, *row));
      finding.advice = fmt::format("All are {}: compare link width, root port, and which devices share the uplink.",
                                   topology::PathClass{key.kind, 0}.to_string());
      finding.fix = {"# measure again with nothing else running"};
    }
  }
}

void shared_uplink(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  std::map<std::uint32_t, std::vector<NodeRef>> below;  // rails below each bridge
  for (const auto& device : placed_devices(machine)) {
    if (device.node.kind != NodeKind::nic) continue;
    for (const auto bridge : device.above) below[bridge.index].push_back(device.node);
  }
  if (below.empty()) return result.not_applicable();
  const auto edges = topology::edges(machine);
  const auto doubtful = topology::doubtful_edges(machine, edges);
  std::set<NodeRef> doubted;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (doubtful[i]) doubted.insert(edges[i].b);
  }
  std::set<std::vector<NodeRef>> said;
  for (const auto& [bridge, nics] : below) {
    if (nics.size() < 2) continue;
    const auto& device = machine.pci[bridge];
    if (device.kind == topology::PciKind::switch_downstream) continue;  // its link is that of the card below it
    if (doubted.contains({NodeKind::pci, bridge})) {
      result.lacks(fmt::format("{}: the rate it reports is far below that of a link under it, so it is ignored",
                               device.bus_id.to_string()));
      continue;
    }
    const auto uplink = topology::believed_gbs(machine, device);
    double wanted = 0;
    for (const auto& nic : nics) wanted += topology::nic_capacity_gbps(machine, machine.nics[nic.index]).value_or(0);
    if (!uplink || wanted == 0)
      result.lacks(
          fmt::format("{}: its rate or that of the ports below it is not recorded", device.bus_id.to_string()));
    if (!uplink || wanted <= *uplink * 8 || !said.insert(nics).second) continue;
    auto& finding = result.add();
    finding.title = fmt::format("{} share a PCIe uplink of {:.0f} Gb/s, and their ports have {:.0f}",
                                folded_names(machine, nics), *uplink * 8, wanted);
    finding.devices = nics;
    // The machine is built that way: a note for those who place jobs.
    finding.level = Level::note;
    finding.evidence.push_back({fmt::format("{}: {:.1f} GB/s raw", device.bus_id.to_string(), *uplink),
                                source_of(uplink.source, "PCIe link")});
    finding.advice =
        "Traffic to host memory and to GPUs of other switches crosses it; traffic to GPUs of the same switch does not.";
    finding.cause = "uplink " + device.bus_id.to_string();
  }
}

constexpr Rule kRules[] = {
    {"far-nic", Family::placement, "A GPU uses a NIC of the other socket while a nearer one is free",
     "124 in place of 195 Gb/s; 11 in place of 23 GB/s.",
     "Measured rows of a pair of class SYS, if the GPU has a rail of a nearer class.",
     "Give each GPU its near NIC; else relay by NVLink.", "an 8x H20 server; perftest#241", far_nic},
    {"no-near-nic", Family::placement, "GPUs have every NIC across sockets",
     "Their traffic takes the slowest path; the same figures as far-nic.",
     "The best class of a GPU to any rail is SYS; a warning if another GPU with a near rail is linked to it. Not of "
     "GPUs beside a Grace CPU where a matrix alone says so: it calls other PCI domains of one socket SYS.",
     "Relay by NVLink over a GPU with a near NIC.", "a recorded A100 server", no_near_nic},
    {"unequal-pairs", Family::placement, "One pair is slower than others of its class",
     "195, 179 and 176 Gb/s on one machine; 171 against 132.",
     "A measured pair below 0.9 of the median of its class over the same NIC; at least three pairs. Of a table of "
     "nvbandwidth or p2pBandwidthLatencyTest up to a quarter of its cells, where the others are alike.",
     "Check its root port and its uplink.", "an 8x H20 server; uccl#377", unequal_pairs},
    {"shared-uplink", Family::placement, "NICs share a PCIe uplink that carries less than their ports",
     "Computed from the rates of the ports and of the link.",
     "Two or more rails below a bridge whose link is slower than their ports together.",
     "Spread jobs over rails of different switches.", "est.", shared_uplink},
};

}  // namespace

std::span<const Rule> placement_rules() {
  return kRules;
}

}  // namespace fairway::doctor
