#include "render/reports_json.h"

#include "render/json.h"

#ifdef FAIRWAY_HAVE_JSON
#include <nlohmann/json.hpp>

#include "topology/machine.h"
#include "topology/port_errors.h"

namespace fairway::render {
namespace {

using Json = nlohmann::ordered_json;

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
