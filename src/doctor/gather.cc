#include "doctor/gather.h"

#include <algorithm>
#include <exception>

#include <fmt/format.h>

#ifdef FAIRWAY_HAVE_JSON
#include <nlohmann/json.hpp>
#endif

#include "topology/discover.h"
#include "topology/file.h"
#include "topology/load.h"
#include "topology/pci.h"
#include "topology/text.h"

// A machine and its facts: looked at, read from what was recorded, and kept as a record.
namespace fairway::doctor {

namespace {

using topology::ReadState;
using topology::TextRead;

constexpr std::size_t kMaxCaseBytes = 33U << 20;

// What this machine's sources gave. One that should have and did not is named.
std::vector<TextRead> sources_of(const Case& found) {
  const auto& machine = found.machine;
  std::vector<TextRead> out;
  TextRead tree{"/sys", "PCI devices, NUMA nodes, interfaces", ReadState::read,
                fmt::format("{}, {}, {}", topology::text::count(machine.pci.size(), "PCI device"),
                            topology::text::count(machine.numa_nodes.size(), "NUMA node"),
                            topology::text::count(machine.interfaces.size(), "interface"))};
  if (!topology::list_directory("/sys/bus/pci/devices", topology::kMaxPciDevices) && machine.pci.empty()) {
    tree.state = ReadState::failed;
    tree.gave = "bus/pci/devices is not there: neither GPUs nor NICs can be seen here";
  }
  out.push_back(std::move(tree));
  const bool nvidia = std::ranges::any_of(machine.gpus, [&machine](const auto& gpu) {
    return gpu.pci && machine.pci[gpu.pci.index].vendor_id.value_or(0) == topology::kVendorNvidia;
  });
  if (nvidia) {
    const bool answers = machine.gpu_driver.known();
    out.push_back({"NVML", "state of GPUs", answers ? ReadState::read : ReadState::failed,
                   answers ? topology::text::count(machine.gpus.size(), "GPU")
                           : "no NVIDIA driver answers here (libnvidia-ml.so.1), so GPUs are not checked"});
  }
  std::size_t functions = 0;
  for (const auto& device : machine.pci) functions += topology::is_rdma_function(device) ? 1 : 0;
  if (!machine.rdma.empty() || functions > 0) {
    const bool seen = !machine.rdma.empty();
    out.push_back({"/sys/class/infiniband", "RDMA devices", seen ? ReadState::read : ReadState::failed,
                   seen ? topology::text::count(machine.rdma.size(), "RDMA device")
                        : topology::text::count(functions, "RDMA function") +
                              " on the bus and no RDMA device: driver, or container"});
  }
  return out;
}

// A file of `--save` has the machine; outputs give it and more.
Result<topology::Evidence> evidence_at(const std::string& path, const std::string& content) {
  return content.empty() ? topology::read_evidence(path) : topology::evidence_of(content, topology::input_name(path));
}

// Where a command read what it printed; empty: its facts name it, or it is no part of a machine.
std::string_view source_behind(topology::OutputKind kind) {
  using Kind = topology::OutputKind;
  switch (kind) {
    case Kind::ibstat:
    case Kind::ibstatus:
    case Kind::show_gids:
    case Kind::mlxlink:
    case Kind::sysfs_files:
    case Kind::sysfs_links:
    case Kind::numactl:
    case Kind::rocm_smi:
    case Kind::amd_smi:
    case Kind::mx_smi:
    case Kind::hl_smi: return "sysfs";
    case Kind::rdma_link:
    case Kind::rdma_statistic:
    case Kind::ethtool: return "netlink";
    case Kind::smi_query:
    case Kind::smi_table:
    case Kind::gpu_query:
    case Kind::nvlink:
    case Kind::topo_peers: return "nvml";
    case Kind::lscpu: return "procfs";
    case Kind::lspci: return "lspci";
    case Kind::ibv_devinfo: return "ibv_devinfo";
    case Kind::ibdev2netdev: return "ibdev2netdev";
    case Kind::ip_link: return "ip_link";
    case Kind::ip_brief: return "ip_addr";
    case Kind::bonding: return "bonding";
    case Kind::topo_matrix: return "topo_matrix";
    default: return {};
  }
}

// Not beside a description of the whole machine, which has these sources itself.
void name_sources(const topology::Evidence& evidence, Case& found) {
  for (const auto& other : evidence.others) {
    if (other.what.starts_with("captured")) return;
  }
  std::map<std::string, std::size_t> outputs;
  for (const auto& output : evidence.outputs) {
    if (output.state != ReadState::read) continue;
    if (output.kind >= topology::OutputKind::snapshot && output.kind <= topology::OutputKind::nccl_xml) return;
    const auto source = std::string(source_behind(output.kind));
    if (source.empty() || ++outputs[source] > 3) continue;
    auto& said = found.said_by[source];
    said += fmt::format("{}{}, {}", said.empty() ? "" : "; ", to_string(output.kind), output.at(1));
  }
  for (const auto& [source, count] : outputs) {
    if (count > 3) found.said_by[source] += fmt::format(" and {} more", count - 3);
  }
}

// The kernel's log below a root, whole or by name not at all; false: it gave nothing.
bool read_log(const std::string& root, Case& found) {
  const std::string file = "/var/log/dmesg";
  const auto log = topology::read_file(root + file, kMaxCaseBytes);
  if (log) return read_pasted(*log, file, found.machine, found.facts);
  if (log.status().code() == ErrorCode::out_of_range)
    found.read.push_back({file, "kernel log", ReadState::cut,
                          fmt::format("it is larger than {} MiB, so all of it is left out: keep its end (tail -c 30M)",
                                      kMaxCaseBytes >> 20U)});
  return false;
}

void read_outputs(topology::Evidence& evidence, Case& found) {
  found.host = evidence.host;
  const Gathered to{found.machine, found.facts, found.measured};
  for (auto& output : evidence.outputs) read_output(output, to);
  join_facts(found.facts);
  name_sources(evidence, found);
  for (auto& one : topology::texts_of(evidence)) found.read.push_back(std::move(one));
  for (const auto& [name, says] : found.facts.disputes())
    found.read.push_back({found.facts.find(name)->where, name, ReadState::contradicted, says});
}

}  // namespace

Result<Case> look_around(const std::map<std::string, std::string>& environment) {
  auto machine = topology::discover();
  if (!machine) return machine.status();
  Case found;
  found.machine = std::move(*machine);
  read_kernel_facts("", found.machine, found.facts);
  read_pci_facts("", found.machine, found.facts);
  read_nvml_facts(found.machine, found.facts);
  read_link_facts(found.machine, found.facts);
  found.read = sources_of(found);
  // The log is a device, which needs root or an open kernel.dmesg_restrict; it is not worth a blocking read.
  if (!read_log("", found)) {
    found.facts.miss("kernel.log", "run `dmesg > dmesg.txt` as root and give its folder with --from, or look yourself");
  }
  read_environment(environment, "environment", found.machine, found.facts);
  return found;
}

Result<Case> read_case(const std::string& path) {
  std::string content;
  const bool folder = topology::is_directory(path);
  if (!folder) {
    auto text = topology::read_input(path, kMaxCaseBytes);
    if (!text) return text.status();
    if (is_case(*text)) return parse_case(*text, topology::input_name(path));
    if (topology::text::trim(*text).empty()) return Status(ErrorCode::invalid_argument, path + ": the file is empty");
    content = std::move(*text);
  }
  auto evidence = evidence_at(path, content);
  if (!evidence) return evidence.status();
  Case found;
  found.machine = std::move(evidence->machine);
  if (folder && (topology::is_directory(path + "/sys") || topology::is_directory(path + "/proc"))) {
    read_kernel_facts(path, found.machine, found.facts);
    read_log(path, found);
    found.read.push_back({"proc/", "captured /proc and settings of /sys", ReadState::read,
                          topology::text::count(found.facts.all().size(), "fact")});
    read_pci_facts(path, found.machine, found.facts);
  }
  read_outputs(*evidence, found);
  for (auto& other : evidence->hosts) {
    auto& one = found.hosts.emplace_back();
    one.machine = std::move(other.machine);
    read_outputs(other, one);
  }
  // That a command failed is understood too.
  const bool any = std::ranges::any_of(found.read, [](const TextRead& one) {
    return one.state == ReadState::read || one.state == ReadState::cut || one.state == ReadState::failed;
  });
  if (!any && !evidence->described) return topology::not_described(*evidence, path);
  return found;
}

bool read_pasted(std::string_view text, const std::string& name, const topology::Machine& machine, Facts& facts) {
  std::vector<Measurement> rates;
  bool any = false;
  for (auto& output : topology::cut_outputs(text, name)) {
    if (is_measurement(output.kind)) continue;
    read_output(output, {machine, facts, rates});
    any = any || output.state == ReadState::read;
  }
  join_facts(facts);
  return any;
}

constexpr std::string_view kFormat = "fairway doctor record";
constexpr int kVersion = 1;

bool is_case(std::string_view text) {
  return text.substr(0, 200).find(kFormat) != std::string_view::npos;
}

#ifdef FAIRWAY_HAVE_JSON

using Json = nlohmann::ordered_json;

Result<std::string> write_case(const Case& one) {
  const auto snapshot = topology::write_snapshot(one.machine);
  if (!snapshot) return snapshot.status();
  Json out;
  out["format"] = kFormat;
  out["version"] = kVersion;
  out["machine"] = Json::parse(*snapshot);
  auto& facts = out["facts"] = Json::object();
  for (const auto& [name, seen] : one.facts.all()) facts[name] = {{"value", seen.value}, {"where", seen.where}};
  auto& missed = out["not_read"] = Json::object();
  for (const auto& [name, why] : one.facts.missed()) missed[name] = why;
  auto& read = out["read"] = Json::array();
  for (const auto& text : one.read)
    read.push_back({{"where", text.where}, {"what", text.what}, {"state", to_string(text.state)}, {"gave", text.gave}});
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Case> parse_case(std::string_view text, const std::string& name) {
  const auto bad = [&name](std::string_view why) {
    return Status(ErrorCode::invalid_argument, fmt::format("{}: {}", name, why));
  };
  // As of snapshots: none of ours is deep, and deep ones cost stack.
  const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth < 40; };
  const auto json = Json::parse(text, shallow, false);
  if (json.is_discarded() || !json.is_object()) return bad("is no JSON object");
  try {
    if (json.value("format", "") != kFormat) return bad(fmt::format("\"format\" is not \"{}\"", kFormat));
    if (json.value("version", 0) != kVersion)
      return Status(ErrorCode::version_mismatch, fmt::format("{}: a record of version {}, and this program reads {}",
                                                             name, json.value("version", 0), kVersion));
    if (!json.contains("machine")) return bad("\"machine\" is missing");
    auto machine = topology::read_snapshot(json["machine"].dump(), name);
    if (!machine) return machine.status();
    Case one;
    one.machine = std::move(*machine);
    for (const char* key : {"facts", "not_read"}) {
      if (!json.contains(key) || !json[key].is_object()) return bad(fmt::format("\"{}\" is no object", key));
    }
    for (const auto& [fact, seen] : json["facts"].items()) {
      one.facts.set(fact, seen.at("value").get<std::string>(), seen.at("where").get<std::string>());
    }
    for (const auto& [fact, why] : json["not_read"].items()) one.facts.miss(fact, why.get<std::string>());
    // Records of before had none.
    if (json.contains("read")) {
      for (const auto& entry : json["read"]) {
        const auto state = topology::read_state_from(entry.at("state").get<std::string>());
        if (!state) return bad("\"read\" has a state that this version does not know");
        one.read.push_back({entry.at("where").get<std::string>(), entry.at("what").get<std::string>(), *state,
                            entry.at("gave").get<std::string>()});
      }
    } else {
      one.read.push_back(
          {name, "record of --save", topology::ReadState::read, fmt::format("{} facts", one.facts.all().size())});
    }
    return one;
  } catch (const std::exception& error) {
    return bad(topology::text::quote(error.what(), 200));
  }
}

#else

namespace {
Status no_json() {
  return {ErrorCode::unsupported, "this build has no nlohmann-json: records can be neither read nor written"};
}
}  // namespace

Result<std::string> write_case(const Case&) {
  return no_json();
}
Result<Case> parse_case(std::string_view, const std::string& name) {
  return no_json().with_context(name);
}

#endif

}  // namespace fairway::doctor
