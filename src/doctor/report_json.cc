#ifdef FAIRWAY_HAVE_JSON
#include <nlohmann/json.hpp>
#endif

#include "doctor/report.h"
#include "doctor/rule.h"

namespace fairway::doctor {

#ifdef FAIRWAY_HAVE_JSON

using Json = nlohmann::ordered_json;

namespace {

Json number(const std::optional<double>& gbps) {
  return gbps ? Json(*gbps * 1e9) : Json(nullptr);
}

}  // namespace

Result<std::string> json_of(const topology::Machine& machine, const Report& report) {
  Json out;
  out["format"] = "fairway-doctor";
  out["version"] = 2;
  out["machine"] = report.machine;
  out["verdict"] = word(report.verdict);
  out["exit_code"] = exit_code(report.verdict);
  out["loss_bits_per_second"] = number(report.verdict.loss_gbps);
  auto& read = out["read"] = Json::array();
  for (const auto& one : report.read)
    read.push_back({{"where", one.where},
                    {"what", one.what.empty() ? Json(nullptr) : Json(one.what)},
                    {"state", to_string(one.state)},
                    {"gave", one.gave}});
  out["unseen"] = report.unseen;
  auto& coverage = out["coverage"] = Json::array();
  for (const auto& one : report.coverage)
    coverage.push_back({{"subject", one.subject}, {"rules_looked", one.looked}, {"rules_lacking", one.lacking}});
  out["rules_looked"] = report.rules;
  out["rules_absent"] = report.absent;
  auto& findings = out["findings"] = Json::array();
  for (const auto& finding : report.findings) {
    Json one;
    one["rule"] = finding.rule;
    one["level"] = to_string(finding.level);
    one["title"] = finding.title;
    one["confidence"] = to_string(finding.confidence);
    auto& devices = one["devices"] = Json::array();
    for (const auto& device : finding.devices) devices.push_back(topology::node_name(machine, device));
    one["path"] = finding.path.empty() ? Json(nullptr) : Json(finding.path);
    one["loss_bits_per_second"] = number(finding.loss_gbps);
    one["paths"] = finding.paths;
    one["now_bits_per_second"] = number(finding.now_gbps);
    one["mended_bits_per_second"] = number(finding.mended_gbps);
    one["ratio"] =
        finding.ratio
            ? Json({{"low", finding.ratio->low}, {"middle", finding.ratio->middle}, {"high", finding.ratio->high}})
            : Json(nullptr);
    auto& evidence = one["evidence"] = Json::array();
    for (const auto& seen : finding.evidence) evidence.push_back({{"text", seen.text}, {"where", seen.where}});
    one["fix"] = finding.fix;
    one["advice"] = finding.advice.empty() ? Json(nullptr) : Json(finding.advice);
    one["page"] = "docs/doctor-rules.md#" + finding.rule;
    findings.push_back(std::move(one));
  }
  auto& not_looked = out["not_looked"] = Json::array();
  for (const auto& one : report.not_looked) not_looked.push_back({{"rule", one.rule}, {"why", one.why}});
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::string> json_of_failure(const std::string& machine, const std::string& why) {
  Json out{{"format", "fairway-doctor"}, {"version", 2}, {"machine", machine}, {"verdict", "failed"}};
  out["exit_code"] = 3;
  out["error"] = why;
  out["loss_bits_per_second"] = nullptr;
  for (const auto* name : {"read", "unseen", "coverage", "findings", "not_looked"}) out[name] = Json::array();
  for (const auto* name : {"rules_looked", "rules_absent"}) out[name] = 0;
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

#else

Result<std::string> json_of_failure(const std::string&, const std::string&) {
  return Status(ErrorCode::unsupported, "this build has no nlohmann-json, so there is no --json");
}

Result<std::string> json_of(const topology::Machine&, const Report&) {
  return Status(ErrorCode::unsupported, "this build has no nlohmann-json, so there is no --json");
}

#endif

}  // namespace fairway::doctor
