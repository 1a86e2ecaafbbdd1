#include "machines/golden.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "topology/assess.h"

namespace fairway::machines {
namespace {

using namespace topology;

std::string rate(const Fact<double>& gbs) {
  return gbs ? fmt::format("{:.4g}", *gbs) : "?";
}

std::string describe_machine(const Machine& machine) {
  std::string out = fmt::format("machine {}\n\nmatrix\n", machine.name);
  const auto matrix = path_matrix(machine);
  for (std::size_t r = 0; r < matrix.ends.size(); ++r) {
    out += fmt::format("{:<12}", node_name(machine, matrix.ends[r]));
    for (std::size_t c = 0; c < matrix.ends.size(); ++c) out += fmt::format(" {:>5}", matrix.at(r, c).to_string());
    out += '\n';
  }
  out += "\nedges, GB/s per direction now and at best\n";
  for (const auto& edge : edges(machine)) {
    out += fmt::format("{:<8} {} - {} {} {} x{}\n", to_string(edge.kind), node_name(machine, edge.a),
                       edge.b.kind == NodeKind::none ? "network" : node_name(machine, edge.b), rate(edge.gbs),
                       rate(edge.max_gbs), edge.count);
  }
  out += "\nrails\n";
  for (const auto& verdict : rail_verdicts(machine))
    out += fmt::format("{}: {}\n", node_name(machine, verdict.node), verdict.reason);
  out += "\nNICs of each GPU, the best four\n";
  for (std::size_t g = 0; g < machine.gpus.size(); ++g) {
    auto choices = nics_for_gpu(machine, Ref<Gpu>(g));
    choices.resize(std::min<std::size_t>(choices.size(), 4));
    for (const auto& choice : choices) {
      out += fmt::format("GPU{} {} {}; {} GB/s raw\n", machine.gpus[g].ordinal, machine.nics[choice.nic.index].name,
                         choice.reason, rate(choice.gbs));
    }
  }
  out += "\nlint\n";
  for (const auto& finding : lint(machine))
    out += fmt::format("{} {} {}: {}\n", to_string(finding.severity), finding.rule, finding.subject, finding.text);
  return out;
}

}  // namespace

std::vector<std::string> recorded(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string golden(const Fabric& fabric) {
  std::string out;
  for (const auto& machine : fabric.machines) {
    if (!out.empty()) out += '\n';
    out += describe_machine(machine);
  }
  for (const auto& cable : fabric.cables) {
    const auto name = [&fabric](const CableEnd& end) {
      return end.is_switch ? fabric.switches[end.index].name
                           : fmt::format("{}/{}", fabric.machines[end.machine].name,
                                         fabric.machines[end.machine].nics[end.index].name);
    };
    out += fmt::format("cable {} - {} {} Gb/s\n", name(cable.a), name(cable.b), rate(cable.gbps));
  }
  return out;
}

}  // namespace fairway::machines
