#include <map>
#include <set>

#include <fmt/format.h>

#ifdef FAIRWAY_HAVE_JSON
#include <nlohmann/json.hpp>
#endif

#include "doctor/report.h"
#include "doctor/rule.h"
#include "render/layout.h"
#include "render/svg.h"

// The report for browsers and programs: a page, and JSON.
namespace fairway::doctor {

namespace {

constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark}
body{overflow-wrap:break-word;font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1100px;padding:0 1rem}
figure{margin:1rem 0;overflow-x:auto}
figure svg{max-width:100%;min-width:var(--least);height:auto;display:block}
h1 span{padding:.1em .5em;border-radius:.3em;color:#fff}
.ok{background:#1a7f37;color:#fff}.degraded{background:#b35900;color:#fff}.broken{background:#c62828;color:#fff}
.unclear{background:#5f6368;color:#fff}
.read{display:grid;grid-template-columns:fit-content(14rem) fit-content(12rem) 1fr;gap:.15rem 1rem;margin:.6rem 0}
.read>*{overflow-wrap:anywhere;min-width:0}.read .not{border-left:4px solid #b35900;padding-left:.4rem}
@media(max-width:600px){.read{grid-template-columns:1fr}.read b{margin-top:.5rem}body{padding:0 .6rem}td+td{overflow-wrap:anywhere}
pre{white-space:pre-wrap;overflow-wrap:anywhere}
.differences thead{display:none}.differences tr{display:block;padding:.4rem 0;border-bottom:1px solid rgba(128,128,128,.4)}
.differences td{display:grid;grid-template-columns:6.5rem 1fr;border:0;padding:.1rem 0}
.differences td::before{content:attr(data-is);opacity:.65}}
section{border-left:5px solid #888;padding:.2rem 1rem;margin:1rem 0}
section.broken{border-color:#c62828;background:none;color:inherit}section.warning{border-color:#b35900}
section h3{margin:.3rem 0}
dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.15rem 1rem;margin:.4rem 0}
dt{opacity:.65}dd{margin:0;overflow-wrap:anywhere}
pre{background:rgba(128,128,128,.15);padding:.6rem;overflow-x:auto;margin:.3rem 0}
table{border-collapse:collapse}td,th{padding:.2rem .7rem;text-align:left;border-bottom:1px solid rgba(128,128,128,.4)}
small{opacity:.65}
svg .fault-broken{stroke:#c62828 !important;stroke-width:4 !important}
svg .fault-warning{stroke:#e07b00 !important;stroke-width:4 !important}
svg .fault-note{stroke:#3b82c4 !important;stroke-width:2.5 !important;stroke-dasharray:5 3}
)";

// Frames the devices of findings in the colour of their worst level; the findings' titles become their tooltips.
void colour(const topology::Machine& machine, const Report& report, render::Scene& scene) {
  std::map<std::string, std::pair<Level, std::string>> faults;
  for (const auto& finding : report.findings) {
    for (auto device : finding.devices) {
      // RDMA devices, interfaces and bonds are drawn as the NIC that has them.
      for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
        const auto& nic = machine.nics[i];
        const bool same = (device.kind == topology::NodeKind::rdma && nic.rdma && nic.rdma.index == device.index) ||
                          (device.kind == topology::NodeKind::bond && nic.bond && nic.bond.index == device.index);
        if (same) {
          device = {topology::NodeKind::nic, i};
          break;
        }
      }
      auto& fault = faults.try_emplace(render::node_key(device), finding.level, "").first->second;
      fault.first = std::min(fault.first, finding.level);
      fault.second += (fault.second.empty() ? "" : "\n") + finding.title;
    }
  }
  std::set<Level> drawn;
  for (const auto& box : scene.boxes) {
    if (const auto found = faults.find(box.node); found != faults.end() && !box.node.empty())
      drawn.insert(found->second.first);
  }
  double x = 24;
  for (const auto level : drawn) {
    const render::Area sample{x, scene.height - 12, 16, 10};
    scene.boxes.push_back({sample, fmt::format("paper fault-{}", to_string(level)), "", "", 2});
    scene.add_text({x + 22, sample.bottom() - 1}, fmt::format("finding: {}", to_string(level)), "legend");
    x += 120;
  }
  if (!drawn.empty()) scene.height += 10;
  for (auto& box : scene.boxes) {
    const auto found = faults.find(box.node);
    if (found == faults.end() || box.node.empty()) continue;
    box.style += fmt::format(" fault-{}", to_string(found->second.first));
    box.title += (box.title.empty() ? "" : "\n") + found->second.second;
  }
}

}  // namespace

std::string page_of(const std::string& title, const std::string& picture, const std::string& body) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\">\n<title>{0}</title>\n<style>{1}{2}</style>\n</"
      "head>\n<body>\n{3}{4}</body>\n</html>\n",
      render::escape(title), picture.empty() ? "" : render::picture_css(render::Theme::automatic), kStyle,
      picture.empty() ? fmt::format("<h1>{}</h1>\n", render::escape(title)) : "", body);
}

std::string findings_of(const Report& report) {
  std::string out;
  for (const auto& finding : report.findings) {
    out += fmt::format("<section class=\"{0}\"><h3>{1} <small>{0}</small></h3><dl>", to_string(finding.level),
                       render::escape(finding.title));
    if (const auto costs = cost_text(finding); !costs.empty())
      out += fmt::format("<dt>costs</dt><dd>{}</dd>", render::escape(costs));
    if (!finding.path.empty()) out += fmt::format("<dt>path</dt><dd>{}</dd>", render::escape(finding.path));
    if (finding.ratio)
      out += fmt::format("<dt>A/B</dt><dd>ratio {:.2f}, 95 % confidence interval {:.2f} to {:.2f}</dd>",
                         finding.ratio->middle, finding.ratio->low, finding.ratio->high);
    for (const auto& seen : finding.evidence)
      out += fmt::format("<dt>seen</dt><dd>{} <small>{}</small></dd>", render::escape(seen.text),
                         render::escape(seen.where));
    out += fmt::format("<dt>confidence</dt><dd>{}</dd></dl>", to_string(finding.confidence));
    if (!finding.fix.empty()) {
      out += "<pre>";
      for (const auto& line : finding.fix) out += render::escape(line) + "\n";
      out += "</pre>";
    }
    if (!finding.advice.empty()) out += fmt::format("<p>{}</p>", render::escape(finding.advice));
    // The page has no links, so it repeats the rule.
    if (const auto* rule = find_rule(finding.rule))
      out += fmt::format("<p><small>{}: {}. {}</small></p>", render::escape(rule->id), render::escape(rule->title),
                         render::escape(rule->effect));
    out += "</section>\n";
  }
  return out;
}

namespace {

// What the verdict rests on.
std::string read_of(const Report& report) {
  std::string out;
  std::string subjects;
  for (const auto& one : unchecked_subjects(report)) subjects += (subjects.empty() ? "" : ", ") + one;
  // Of a clean verdict the line above says these.
  if (!report.verdict.ok) {
    out += fmt::format("<p>{}.</p>\n", rules_text(report));
    for (const auto& one : report.unseen) out += fmt::format("<p>{}</p>\n", render::escape(one));
  }
  if (!subjects.empty()) out += fmt::format("<p>Nothing was checked of: {}.</p>\n", render::escape(subjects));
  if (report.read.empty()) return out;
  out += "<div class=\"read\">\n";
  for (const bool read : {false, true}) {
    for (const auto& one : report.read) {
      if ((one.state == topology::ReadState::read) != read) continue;
      out += fmt::format("<b{}>{}</b><span>{}</span><span>{}{}</span>\n", read ? "" : " class=\"not\"",
                         render::escape(one.where), render::escape(one.what),
                         read ? std::string() : fmt::format("{}: ", to_string(one.state)), render::escape(one.gave));
    }
  }
  return out + "</div>\n";
}

}  // namespace

std::string html_of(const topology::Machine& machine, const Report& report) {
  auto scene = render::picture(machine);
  colour(machine, report, scene);
  const auto name = report.machine.empty() ? "This machine" : report.machine;
  std::string body = fmt::format("<h1>{} <span class=\"{}\">{}</span></h1>\n<p>{}</p>\n", render::escape(name),
                                 word(report.verdict), word(report.verdict), render::escape(line_of(report)));
  body += read_of(report);
  const auto picture = render::svg(scene, {.inside_page = true});
  // On a narrow window it scrolls: smaller than this nobody reads it.
  body += fmt::format("<figure style=\"--least:{:.0f}px\">\n{}</figure>\n", scene.width * 0.62, picture);
  body += findings_of(report);
  if (!report.not_looked.empty()) body += "<h2>Not checked</h2>\n<table><tbody>\n";
  for (const auto& one : report.not_looked)
    body += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", render::escape(one.rule), render::escape(one.why));
  if (!report.not_looked.empty()) body += "</tbody></table>\n";
  return page_of(name + ": " + std::string(word(report.verdict)), picture, body);
}

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
    auto& one = findings.emplace_back();
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
