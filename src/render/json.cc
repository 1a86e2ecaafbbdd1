#include "render/json.h"

#ifdef FAIRWAY_HAVE_JSON
#include <nlohmann/json.hpp>

#include "render/layout.h"
#include "render/matrix.h"
#include "topology/assess.h"
#include "topology/load.h"
#include "topology/machine.h"
#include "topology/port_errors.h"

namespace fairway::render {
namespace {

using Json = nlohmann::ordered_json;
using topology::Machine;

template <class T>
Json value_of(const topology::Fact<T>& fact) {
  return fact ? Json(*fact) : Json();
}

Json name_or_null(topology::NodeRef node) {
  return node.kind == topology::NodeKind::none ? Json() : Json(node_key(node));
}

Json edges_of(const Machine& machine) {
  Json out = Json::array();
  for (const topology::Edge& edge : topology::edges(machine)) {
    out.push_back({{"kind", topology::to_string(edge.kind)},
                   {"a", name_or_null(edge.a)},
                   {"b", name_or_null(edge.b)},
                   {"gbs", value_of(edge.gbs)},
                   {"max_gbs", value_of(edge.max_gbs)},
                   {"count", edge.count},
                   {"source", topology::to_string(edge.gbs.source)}});
  }
  return out;
}

Json matrix_of(const Machine& machine, const ExpectRate& expect) {
  const topology::PathMatrix paths = topology::path_matrix(machine);
  Json ends = Json::array();
  Json classes = Json::array();
  Json expected = Json::array();
  for (std::size_t row = 0; row < paths.ends.size(); ++row) {
    ends.push_back({{"key", node_key(paths.ends[row])},
                    {"name", paths.names[row]},
                    {"device", topology::node_name(machine, paths.ends[row])}});
    Json class_row = Json::array();
    Json expected_row = Json::array();
    for (std::size_t column = 0; column < paths.ends.size(); ++column) {
      class_row.push_back(paths.at(row, column).to_string());
      const auto rate = expect && row != column ? expect(paths.ends[row], paths.ends[column]) : std::nullopt;
      expected_row.push_back(rate ? Json{{"low_gbs", rate->low_gbs},
                                         {"expected_gbs", rate->expected_gbs},
                                         {"high_gbs", rate->high_gbs},
                                         {"bottleneck", rate->bottleneck}}
                                  : Json());
    }
    classes.push_back(std::move(class_row));
    expected.push_back(std::move(expected_row));
  }
  Json out = {{"ends", std::move(ends)}, {"classes", std::move(classes)}};
  if (expect) out["expected"] = std::move(expected);
  return out;
}

Result<Json> machine_report(const Machine& machine, const ExpectRate& expect) {
  const Result<std::string> snapshot = topology::write_snapshot(machine);
  if (!snapshot) return snapshot.status();
  Json out;
  out["machine"] = Json::parse(snapshot.value(), nullptr, false);
  out["edges"] = edges_of(machine);
  out["matrix"] = matrix_of(machine, expect);
  out["rails"] = Json::array();
  for (const topology::RailVerdict& verdict : topology::rail_verdicts(machine)) {
    out["rails"].push_back(
        {{"device", topology::node_name(machine, verdict.node)}, {"rail", verdict.rail}, {"reason", verdict.reason}});
  }
  out["findings"] = Json::array();
  for (const topology::Finding& finding : topology::lint(machine)) {
    out["findings"].push_back({{"severity", topology::to_string(finding.severity)},
                               {"rule", finding.rule},
                               {"subject", finding.subject},
                               {"text", finding.text}});
  }
  return out;
}

Json head() {
  return {{"format", "fairway-topology"}, {"version", kReportVersion}};
}

// Names come from files: invalid UTF-8 is replaced.
std::string text_of(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

Result<std::string> json_report(const Machine& machine, const ExpectRate& expect) {
  Result<Json> report = machine_report(machine, expect);
  if (!report) return report.status();
  Json out = head();
  out.update(report.value());
  return text_of(out);
}

Result<std::string> json_report(const topology::Fabric& fabric) {
  Json out = head();
  out["name"] = fabric.name;
  out["machines"] = Json::array();
  for (const Machine& machine : fabric.machines) {
    Result<Json> report = machine_report(machine, {});
    if (!report) return report.status();
    out["machines"].push_back(std::move(report).value());
  }
  const auto end_of = [&fabric](const topology::CableEnd& end) -> Json {
    if (end.is_switch) return {{"switch", fabric.switches[end.index].name}};
    return {{"machine", end.machine}, {"nic", fabric.machines[end.machine].nics[end.index].name}};
  };
  out["switches"] = Json::array();
  for (const topology::NetSwitch& net_switch : fabric.switches) out["switches"].push_back(net_switch.name);
  out["cables"] = Json::array();
  for (const topology::Cable& cable : fabric.cables) {
    out["cables"].push_back({{"a", end_of(cable.a)}, {"b", end_of(cable.b)}, {"gbps", value_of(cable.gbps)}});
  }
  return text_of(out);
}

namespace {

std::string text_of(const char* format, Json rest) {
  Json out = {{"format", format}, {"version", 1}};
  out.update(rest);
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

Result<std::string> nic_choices_json(const topology::Machine& machine, topology::NodeRef memory,
                                     const std::string& name, std::span<const topology::NicChoice> choices,
                                     const ExpectRate& expect) {
  Json nics = Json::array();
  for (const topology::NicChoice& choice : choices) {
    const auto rate =
        choice.rail && expect ? expect(memory, {topology::NodeKind::nic, choice.nic.index}) : std::nullopt;
    nics.push_back({{"nic", machine.nics[choice.nic.index].name},
                    {"rail", choice.rail},
                    {"class", choice.path.to_string()},
                    {"capacity_gbs", choice.gbs ? Json(*choice.gbs) : Json()},
                    {"expected_gbs", rate ? Json(rate->expected_gbs) : Json()},
                    {"expected_low_gbs", rate ? Json(rate->low_gbs) : Json()},
                    {"expected_high_gbs", rate ? Json(rate->high_gbs) : Json()},
                    {"bound", rate ? Json(rate->bottleneck) : Json()},
                    {"reason", choice.reason}});
  }
  return text_of("fairway-topo-nics", {{"memory", name}, {"nics", std::move(nics)}});
}

Result<std::string> rails_json(const topology::Machine& machine) {
  Json ports = Json::array(), errors = Json::array();
  for (const topology::RailVerdict& verdict : topology::rail_verdicts(machine))
    ports.push_back(
        {{"port", topology::node_name(machine, verdict.node)}, {"rail", verdict.rail}, {"reason", verdict.reason}});
  for (const topology::PortError& error : topology::port_errors(machine))
    errors.push_back({{"device", machine.rdma[error.device.index].name},
                      {"port", error.port},
                      {"counter", error.counter},
                      {"value", error.value},
                      {"meaning", error.meaning.empty() ? Json() : Json(error.meaning)}});
  return text_of("fairway-topo-nics", {{"ports", std::move(ports)}, {"errors", std::move(errors)}});
}

Result<std::string> findings_json(std::span<const topology::Finding> findings, std::span<const topology::Note> notes) {
  Json found = Json::array(), noted = Json::array();
  for (const topology::Finding& finding : findings)
    found.push_back({{"severity", topology::to_string(finding.severity)},
                     {"rule", finding.rule},
                     {"subject", finding.subject},
                     {"text", finding.text}});
  for (const topology::Note& note : notes) noted.push_back({{"subject", note.subject}, {"text", note.text}});
  return text_of("fairway-topo-lint", {{"findings", std::move(found)}, {"notes", std::move(noted)}});
}

Result<std::string> differences_json(const std::string& a, const std::string& b,
                                     std::span<const topology::Difference> differences) {
  Json all = Json::array();
  for (const topology::Difference& one : differences)
    all.push_back({{"subject", one.subject},
                   {"field", one.field},
                   {"a", one.a},
                   {"b", one.b},
                   {"cost", one.cost == 0 ? Json() : Json(one.cost)},
                   {"b_is_better", one.b_is_better},
                   {"text", one.text}});
  return text_of("fairway-topo-diff", {{"a", a}, {"b", b}, {"differences", std::move(all)}});
}

}  // namespace fairway::render

#else

namespace fairway::render {
Result<std::string> json_report(const topology::Machine&, const ExpectRate&) {
  return no_json();
}
Result<std::string> json_report(const topology::Fabric&) {
  return no_json();
}
Result<std::string> nic_choices_json(const topology::Machine&, topology::NodeRef, const std::string&,
                                     std::span<const topology::NicChoice>, const ExpectRate&) {
  return no_json();
}
Result<std::string> rails_json(const topology::Machine&) {
  return no_json();
}
Result<std::string> findings_json(std::span<const topology::Finding>, std::span<const topology::Note>) {
  return no_json();
}
Result<std::string> differences_json(const std::string&, const std::string&, std::span<const topology::Difference>) {
  return no_json();
}

}  // namespace fairway::render
#endif
