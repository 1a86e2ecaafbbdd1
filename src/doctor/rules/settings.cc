// size: all rules on one job's environment
#include <algorithm>
#include <set>

#include "doctor/cost.h"
#include "doctor/nccl_settings.h"
#include "doctor/rules/common.h"

// The environment of a job: what its variables mean on this machine.
namespace fairway::doctor {
namespace {

namespace text = topology::text;

constexpr std::string_view kNotInJob = "run the doctor inside the job";
constexpr std::string_view kEveryJob = "every job with this setting";

// A variable of the job; if none of its variables is recorded the result says so.
bool environment_known(const RuleInput& input, RuleResult& result) {
  if (!input.facts.below("env").empty()) return true;
  result.lacks(fmt::format("the job's environment: no NCCL_ or UCX_ variable is recorded ({})", kNotInJob));
  return false;
}

Evidence variable(const std::string& name, const Seen& seen) {
  return {fmt::format("{}={}", name, seen.value), seen.where};
}

PathKind kind_of(const Machine& machine, std::uint32_t gpu, std::uint32_t nic) {
  const auto path = topology::path_class(machine, gpu_ref(gpu), nic_ref(nic));
  return path ? path->kind : PathKind::unknown;
}

// The nearest class of each GPU to any rail.
std::vector<PathKind> best_kinds(const Machine& machine) {
  const auto nics = rails(machine);
  std::vector<PathKind> best(machine.gpus.size(), PathKind::unknown);
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    for (const auto nic : nics) best[gpu] = std::min(best[gpu], kind_of(machine, gpu, nic));
  }
  return best;
}

// Whether NCCL relays over a GPU that has an NVLink to this one and a NIC within the level (PXN).
bool is_relayed(const Machine& machine, const std::vector<PathKind>& best, std::uint32_t gpu, PathKind level) {
  for (std::uint32_t other = 0; other < machine.gpus.size(); ++other) {
    if (other == gpu || best[other] > PathKind::pxb || best[other] > level) continue;
    const auto path = topology::path_class(machine, gpu_ref(gpu), gpu_ref(other));
    if (path && path->kind == PathKind::nvlink) return true;
  }
  return false;
}

// What a job's own log says, with the lines of one fact as evidence.
void add_gdr_off(const RuleInput& input, const std::string& fact, Finding finding, RuleResult& result) {
  finding.title = "NCCL's log: GPUDirect RDMA is disabled for " + finding.title;
  finding.confidence = Confidence::measured;
  for (const auto& [name, seen] : input.facts.below(fact)) {
    if (finding.evidence.size() < 4) finding.evidence.push_back({text::quote(seen->value, 160), seen->where});
  }
  cost_of_share(input, gpu_flows(input.machine()), 1 - 65.0 / 85).write_to(finding);  // ucx#11121's pair of figures
  result.add(std::move(finding));
}

// "GPU Direct RDMA Disabled for GPU 0 / HCA 0 (distance 5 > 4)"; "GPU Direct RDMA Disabled for HCA 0 'mlx5_0'": neither
// nvidia_peermem nor DMA-BUF serves the NIC. GPUs that share the CPU's memory (GB10) have none by design.
bool gdr_off_by_log(const RuleInput& input, RuleResult& result) {
  const auto& gpus = input.machine().gpus;
  const bool pairs = input.facts.number("nccl.gdr_off").value_or(0) != 0;
  const bool shared = std::ranges::any_of(
      gpus, [](const auto& gpu) { return gpu.model.value_or("").find("GB10") != std::string::npos; });
  const auto nics = shared ? 0 : input.facts.below("nccl.gdr_off_nic").size();
  Finding finding;
  if (pairs) {
    finding.title = input.facts.text("nccl.gdr_off") + " pairs of GPU and NIC";
    finding.path = "the pairs that the log names";
    finding.fix = {"export NCCL_NET_GDR_LEVEL=SYS"};
    finding.advice = "Measure first: across sockets GPU memory may be slower than host memory.";
    add_gdr_off(input, "nccl.gdr_off", finding, result);
  }
  if (nics > 0) {
    finding.title = text::count(nics, "NIC");
    finding.path = "every path of that job over these NICs";
    finding.fix = {"modprobe nvidia-peermem    # or DMA-BUF: kernel 5.12, open kernel modules"};
    finding.advice = "NCCL found no way to register GPU memory with the NIC, so it stages in host memory.";
    add_gdr_off(input, "nccl.gdr_off_nic", finding, result);
  }
  return pairs || nics > 0;
}

void gdr_refused(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (gdr_off_by_log(input, result)) return;
  const auto gpus = nvidia_gpus(machine);
  if (gpus.empty() || rails(machine).empty()) return result.not_applicable();
  if (!environment_known(input, result)) return;
  const std::string name = "NCCL_NET_GDR_LEVEL";
  const auto* set = input.facts.find("env." + name);
  const auto known = set == nullptr ? std::nullopt : nccl_level(set->value);
  const auto level = known.value_or(kNcclGdrLevel);
  const bool pxn = nccl_number(input.facts.text("env.NCCL_PXN_DISABLE")) == 0;
  const auto* over_c2c = input.facts.find("env.NCCL_NET_GDR_C2C");
  const auto nearest = best_kinds(machine);
  std::vector<NodeRef> refused;
  for (const auto gpu : gpus) {
    const auto best = nearest[gpu];
    if (best == PathKind::unknown || best <= level || (pxn && is_relayed(machine, nearest, gpu, level))) continue;
    // By NVLink-C2C NCCL reaches the NICs of the GPU's own CPU.
    const bool c2c = topology::c2c_gbs(machine, gpu) && (over_c2c == nullptr || nccl_number(over_c2c->value) != 0);
    if (c2c && best != PathKind::sys && !known) continue;
    refused.push_back(gpu_ref(gpu));
  }
  if (refused.empty()) return;
  std::vector<predict::Flow> flows;
  for (const auto& gpu : refused) {
    for (auto& flow : flows_through(machine, gpu)) flows.push_back(flow);
  }
  auto& finding = result.add();
  finding.devices = refused;
  if (known) {
    finding.title = fmt::format("{}={} makes NCCL stage {} in host memory: their best NIC is farther", name, set->value,
                                folded_names(machine, refused));
    finding.evidence.push_back(variable(name, *set));
  } else {
    finding.title = fmt::format("NCCL stages {} in host memory: their best NIC is farther than PXB, its default",
                                folded_names(machine, refused));
    // NCCL's own choice, and good where the root complex is slow between devices.
    finding.level = Level::note;
    finding.evidence.push_back(set != nullptr ? variable(name, *set)
                                              : Evidence{fmt::format("{} is not set", name), "the job's environment"});
    if (set != nullptr)
      finding.evidence.push_back(
          {fmt::format("NCCL does not know the word {}", text::quote(set->value)), "its source"});
  }
  finding.evidence.push_back({fmt::format("the nearest NIC of {} is {}", name_of(machine, refused.front()),
                                          topology::PathClass{nearest[refused.front().index], 0}.to_string()),
                              "path classes"});
  cost_of_share(input, flows, 1 - 65.0 / 85).write_to(finding);  // ucx#11121's pair of figures
  finding.fix = {"export NCCL_NET_GDR_LEVEL=SYS"};
  finding.advice = "Measure first: across sockets GPU memory may be slower than host memory.";
}

// Ports of a NIC that NCCL may use: active ones, or of unknown state.
std::vector<const topology::RdmaPort*> usable_ports(const Machine& machine, const topology::Nic& nic) {
  std::vector<const topology::RdmaPort*> out;
  for (const auto& port : machine.rdma[nic.rdma.index].ports) {
    const auto layer = port.link_layer.value_or("Ethernet");
    if (port.state.value_or("ACTIVE") == "ACTIVE" && (layer == "Ethernet" || layer == "InfiniBand"))
      out.push_back(&port);
  }
  return out;
}

bool allows(const NcclDevices& list, const Machine& machine, const topology::Nic& nic) {
  const auto& rdma = machine.rdma[nic.rdma.index];
  if (rdma.ports.empty()) return list.allows(rdma.name, 1);
  const auto ports = usable_ports(machine, nic);
  return std::ranges::any_of(ports, [&](const auto* port) { return list.allows(rdma.name, port->number); });
}

void wrong_device(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (machine.rdma.empty()) return result.not_applicable();
  const auto* set = input.facts.find("env.NCCL_IB_HCA");
  if (set == nullptr) return result.lacks(fmt::format("no NCCL_IB_HCA in the environment ({})", kNotInJob));
  const auto list = nccl_devices(set->value);
  std::vector<NodeRef> wrong;
  std::string reason;
  const auto good = rails(machine);
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    const auto& nic = machine.nics[i];
    if (!nic.rdma || std::ranges::find(good, i) != good.end() || !allows(list, machine, nic)) continue;
    wrong.push_back(nic_ref(i));
    reason = topology::rail_verdict(machine, {NodeKind::rdma, nic.rdma.index}).reason;
  }
  if (wrong.empty()) return;
  auto& finding = result.add();
  finding.title = fmt::format("NCCL_IB_HCA includes {}, which {} not for bulk traffic", some_names(machine, wrong),
                              wrong.size() == 1 ? "is" : "are");
  finding.devices = wrong;
  finding.path = kEveryJob;
  finding.evidence = {variable("NCCL_IB_HCA", *set), {reason, "fairway topo hca"}};
  finding.fix = {fmt::format("export NCCL_IB_HCA=={}", joined_names(machine, good))};
}

std::string rdma_names(const Machine& machine) {
  std::string out;
  std::size_t count = 0;
  for (const auto& rdma : machine.rdma) {
    if (++count > 16) return out + " ...";
    out += (out.empty() ? "" : ", ") + rdma.name;
  }
  return out;
}

// What the parts of a list name: nothing that is here, or nothing that is up.
struct Named {
  std::vector<std::string> nothing;
  std::size_t something = 0;
  std::size_t active = 0;
};

void add_nothing(const RuleInput& input, const std::string& name, const Named& named, std::vector<Evidence> evidence,
                 RuleResult& result) {
  if (named.nothing.empty() && (named.active > 0 || named.something == 0)) return;
  const auto& machine = input.machine();
  const auto* set = input.facts.find("env." + name);
  auto& finding = result.add();
  std::string list;
  for (const auto& one : named.nothing) list += (list.empty() ? "" : ", ") + text::quote(one, 60);
  finding.title = named.nothing.empty() ? fmt::format("{} names only ports that are down", name)
                  : named.something > 0 ? fmt::format("{} names {}, which {} not here", name, list,
                                                      named.nothing.size() == 1 ? "is" : "are")
                                        : fmt::format("{} names nothing that is here ({})", name, list);
  finding.level = named.something > 0 && named.active > 0 ? Level::note : Level::warning;
  finding.path = kEveryJob;
  finding.evidence = {variable(name, *set)};
  for (auto& one : evidence) finding.evidence.push_back(std::move(one));
  const auto good = rails(machine);
  if (name == "NCCL_IB_HCA") finding.fix = {fmt::format("export NCCL_IB_HCA=={}", joined_names(machine, good))};
  if (name == "UCX_NET_DEVICES") {
    std::string devices;
    for (const auto nic : good) devices += fmt::format("{}{}:1", devices.empty() ? "" : ",", machine.nics[nic].name);
    finding.fix = {fmt::format("export UCX_NET_DEVICES={}", devices.empty() ? "all" : devices)};
  }
  if (name == "NCCL_SOCKET_IFNAME") finding.fix = {"unset NCCL_SOCKET_IFNAME", "ip -br addr    # the names here"};
  if (finding.level == Level::warning) finding.advice = "The job fails, or its bytes go by TCP.";
}

void names_nothing(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const bool whole = topology::find_interface(machine, "lo").valid();  // the list of interfaces is whole
  if (machine.rdma.empty() && !whole) return result.not_applicable();
  if (!environment_known(input, result)) return;
  if (const auto* set = input.facts.find("env.NCCL_IB_HCA"); set != nullptr && !machine.rdma.empty()) {
    const auto list = nccl_devices(set->value);
    Named named;
    for (const auto& entry : list.entries) {
      bool found = false;
      for (const auto& nic : machine.nics) {
        if (!nic.rdma) continue;
        const auto& rdma = machine.rdma[nic.rdma.index];
        if (!list.names(entry, rdma.name, entry.port.value_or(1))) continue;
        found = true;
        if (rdma.ports.empty() || allows(list, machine, nic)) ++named.active;
      }
      if (found) ++named.something;
      if (!found) named.nothing.push_back(entry.name);
    }
    // A device that is excluded need not be there.
    if (!list.excludes)
      add_nothing(input, "NCCL_IB_HCA", named, {{"RDMA devices: " + rdma_names(machine), "the machine"}}, result);
  }
  if (const auto* set = input.facts.find("env.UCX_NET_DEVICES"); set != nullptr && !machine.rdma.empty()) {
    Named named;
    for (const auto word : text::split(set->value, ',')) {
      // Patterns, "all" and, where the list of interfaces is not whole, names without a port say nothing here.
      const auto name = word.substr(0, word.find(':'));
      const bool device = word.find(':') != word.npos;
      if (name.empty() || word.find_first_of("*?[^") != word.npos || name == "all" || (!device && !whole)) {
        named.something = named.active = 1;
      } else if (const auto rdma = topology::find_rdma(machine, name)) {
        ++named.something;
        const auto& ports = machine.rdma[rdma.index].ports;
        if (ports.empty() ||
            std::ranges::any_of(ports, [](const auto& port) { return port.state.value_or("ACTIVE") == "ACTIVE"; }))
          ++named.active;
      } else if (topology::find_interface(machine, name)) {
        ++named.something, ++named.active;
      } else {
        named.nothing.emplace_back(word);
      }
    }
    add_nothing(input, "UCX_NET_DEVICES", named, {{"RDMA devices: " + rdma_names(machine), "the machine"}}, result);
  }
  if (const auto* set = input.facts.find("env.NCCL_SOCKET_IFNAME"); set != nullptr && whole) {
    const auto list = nccl_devices(set->value);  // the same grammar
    Named named;
    for (const auto& entry : list.entries) {
      const bool found =
          std::ranges::any_of(machine.interfaces, [&](const auto& one) { return list.names(entry, one.name, 0); });
      if (found) ++named.something, ++named.active;
      if (!found) named.nothing.push_back(entry.name);
    }
    if (!list.excludes) add_nothing(input, "NCCL_SOCKET_IFNAME", named, {}, result);
  }
}

// UCX's names and aliases of transports over RDMA (its manual, "Transports").
bool is_ucx_rdma(std::string_view word) {
  return word == "all" || word == "ib" || word == "srd" || word.starts_with("rc") || word.starts_with("dc") ||
         word.starts_with("ud") || word.starts_with("gga") || word.starts_with('\\');
}

// Whether a plug-in moves the job's bytes: NCCL_IB_DISABLE is of NCCL's own transport alone. EFA has no connections as
// that needs, so jobs there always use one.
bool has_plugin(const RuleInput& input) {
  const auto net = text::lower(input.facts.text("env.NCCL_NET"));
  const auto plugin = input.facts.text("env.NCCL_NET_PLUGIN");
  if ((!net.empty() && net != "ib" && net != "socket") || (!plugin.empty() && plugin != "none")) return true;
  const auto& machine = input.machine();
  const auto nics = rails(machine);
  return std::ranges::all_of(nics, [&](auto nic) {
    const auto& name = machine.nics[nic].name;
    return name.starts_with("rdmap") || name.starts_with("efa_");
  });
}

void rdma_disabled(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (rails(machine).empty()) return result.not_applicable();
  if (input.facts.find("ucx.transports") == nullptr && !environment_known(input, result)) return;
  std::vector<Finding> found;
  if (const auto* set = input.facts.find("env.NCCL_IB_DISABLE");
      set != nullptr && nccl_number(set->value) != 0 && !has_plugin(input)) {
    auto& finding = found.emplace_back();
    finding.title = fmt::format("NCCL_IB_DISABLE={}: NCCL uses sockets, not the RDMA devices", set->value);
    finding.evidence = {variable("NCCL_IB_DISABLE", *set)};
    finding.fix = {"unset NCCL_IB_DISABLE"};
  }
  // NCCL compares without case; other names are plug-ins'.
  if (const auto* set = input.facts.find("env.NCCL_NET"); set != nullptr && text::lower(set->value) == "socket") {
    auto& finding = found.emplace_back();
    finding.title = fmt::format("NCCL_NET={}: NCCL uses sockets, not the RDMA devices", set->value);
    finding.evidence = {variable("NCCL_NET", *set)};
    finding.fix = {"unset NCCL_NET"};
  }
  if (const auto* set = input.facts.find("env.UCX_TLS"); set != nullptr) {
    const bool excludes = set->value.starts_with('^');
    const auto words = text::split(std::string_view(set->value).substr(excludes ? 1 : 0), ',');
    const bool named = std::ranges::any_of(words, is_ucx_rdma);
    const bool all_gone = std::ranges::find(words, "ib") != words.end();
    if (excludes ? all_gone : !named) {
      auto& finding = found.emplace_back();
      finding.title = fmt::format("UCX_TLS={} leaves out RDMA: UCX goes by TCP", text::quote(set->value, 60));
      finding.evidence = {variable("UCX_TLS", *set)};
      finding.fix = {"unset UCX_TLS", "# or add rc: export UCX_TLS=rc,cuda_copy,cuda_ipc,sm,self"};
    }
  }
  if (const auto* built = input.facts.find("ucx.transports"); built != nullptr && found.empty()) {
    const auto words = text::split(built->value, ',');
    const bool any = std::ranges::any_of(words, [](std::string_view one) { return is_ucx_rdma(text::trim(one)); });
    if (!any) {
      auto& finding = found.emplace_back();
      finding.title = "This build of UCX has no transport over RDMA, or sees no device";
      finding.level = Level::note;
      finding.evidence = {{"transports: " + text::quote(built->value, 160), built->where}};
      finding.fix = {"ucx_info -d | grep Transport; ls /dev/infiniband"};
    }
  }
  for (auto& finding : found) {
    std::vector<NodeRef> nodes;
    for (const auto nic : rails(machine)) nodes.push_back(nic_ref(nic));
    finding.evidence.push_back({"rails: " + folded_names(machine, nodes), "fairway topo hca"});
    finding.path = kEveryJob;
    finding.advice = "Over TCP the CPU moves every byte, through host memory.";
    result.add(std::move(finding));
  }
}

void cross_nic(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (rails(machine).size() < 2) return result.not_applicable();
  if (!environment_known(input, result)) return;
  const auto* set = input.facts.find("env.NCCL_CROSS_NIC");
  if (set == nullptr || nccl_number(set->value) != 1) return;
  const auto networks = rail_networks(machine);
  auto& finding = result.add();
  finding.title = networks.size() > 1
                      ? fmt::format("NCCL_CROSS_NIC=1, and the rails are in {} networks", networks.size())
                      : "NCCL_CROSS_NIC=1 lets a ring enter by one NIC and leave by another";
  finding.level = networks.size() > 1 ? Level::warning : Level::note;
  finding.path = kEveryJob;
  finding.evidence = {variable("NCCL_CROSS_NIC", *set)};
  for (const auto& [network, nics] : networks) {
    if (finding.evidence.size() < 8) finding.evidence.push_back({network + ": " + folded_names(machine, nics), "GIDs"});
  }
  finding.fix = {"export NCCL_CROSS_NIC=0    # where each rail has a switch of its own", "unset NCCL_CROSS_NIC"};
  finding.advice = "Between rails connections fail on a rail-only network and cross the spine on a rail-optimised one.";
}

constexpr Rule kRules[] = {
    {"gdr-refused", Family::settings, "NCCL does not use GPUDirect RDMA on the paths of this machine",
     "Staging in host memory: 65 in place of 85 Gb/s.",
     "NCCL_NET_GDR_LEVEL, or NCCL's default of PXB (a note), nearer than the class of a GPU's best NIC, which no "
     "NVLink to a GPU with a nearer one avoids; or what NCCL's own INFO log says.",
     "NCCL_NET_GDR_LEVEL=SYS, after measuring.", "ucx#11121, nccl#1151; NCCL's graph/paths.cc", gdr_refused},
    {"wrong-device", Family::settings, "A job's list of devices includes one that is not for bulk traffic",
     "A slow rail, or a crash: nvidia-smi topo exited with 255.",
     "NCCL_IB_HCA allows a software, slow or management device whose port is active (it matches prefixes; ports that "
     "are down NCCL passes over).",
     "List the rails by exact name: NCCL_IB_HCA==NAME,NAME.", "NVSentinel#1485", wrong_device},
    {"setting-names-nothing", Family::settings, "A job's setting names devices that are not here",
     "The job fails, or its bytes go by TCP.",
     "NCCL_IB_HCA, UCX_NET_DEVICES and, where all interfaces are recorded, NCCL_SOCKET_IFNAME: a warning if nothing "
     "that they name is here and up, else a note.",
     "Name what is here, or unset it.", "nixl#1614, sglang#28737", names_nothing},
    {"rdma-disabled", Family::settings, "A job's setting turns RDMA off on a machine that has it",
     "All bytes go by TCP, through host memory.",
     "NCCL_IB_DISABLE, unless a plug-in moves the bytes; NCCL_NET=Socket; UCX_TLS without a transport over RDMA.",
     "Unset it.", "nixl#1614; NCCL's documentation", rdma_disabled},
    {"cross-nic", Family::settings, "NCCL_CROSS_NIC=1 joins rails that may not be joined",
     "Connections between rails fail on a rail-only network, and cross the spine on a rail-optimised one.",
     "NCCL_CROSS_NIC=1 with several rails: a warning if their addresses are of several networks, else a note.",
     "NCCL_CROSS_NIC=0, or unset it.", "vllm#44919; NCCL's documentation", cross_nic},
};

}  // namespace

std::span<const Rule> settings_rules() {
  return kRules;
}

}  // namespace fairway::doctor
