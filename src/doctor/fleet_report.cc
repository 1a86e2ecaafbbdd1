#include <algorithm>

#include <fmt/format.h>

#ifdef FAIRWAY_HAVE_JSON
#include <nlohmann/json.hpp>
#endif

#include "doctor/fleet.h"
#include "doctor/report.h"
#include "doctor/rule.h"
#include "render/svg.h"

namespace fairway::doctor {

namespace {

std::string cost_text(const Deviation& one) {
  return one.loss_gbps ? gbps_text(*one.loss_gbps) : "-";
}

std::string heading_of(const Fleet& fleet, std::span<const Node> nodes) {
  auto out =
      fmt::format("{} in {}: {}", render::count(nodes.size(), "node"), render::count(fleet.groups.size(), "group"),
                  !fleet.deviations.empty() ? render::count(fleet.deviations.size(), "difference")
                  : fleet.compared == 0     ? "nothing compared, as no two have the same GPUs and NICs"
                                            : "no differences");
  if (fleet.compared > 0 && fleet.compared < nodes.size())
    out += fmt::format(", {} not compared", render::count(nodes.size() - fleet.compared, "node"));
  if (!fleet.undecided.empty())
    out += fmt::format(", {} without a majority", render::count(fleet.undecided.size(), "field"));
  return out;
}

// The rules on measured rates check nothing on a node whose file has none, as of those of --save; empty: each has some.
std::string unmeasured(std::span<const Node> nodes) {
  std::string names;
  std::size_t count = 0;
  for (const auto& node : nodes) {
    if (!node.found.measured.empty()) continue;
    names += (count++ == 0 ? "" : ", ") + node.name;
  }
  if (count == 0) return {};
  return fmt::format("no measured rates in the file of {}, so no rule on them checked anything there",
                     count == nodes.size() ? fmt::format("any of the {} nodes", count) : names);
}

}  // namespace

std::string text_of(const Fleet& fleet, std::span<const Node> nodes, const render::TextStyle& style) {
  std::string out;
  std::size_t name_width = 4;
  for (const auto& node : nodes) name_width = std::max(name_width, render::columns_of(node.name));
  name_width = std::min<std::size_t>(name_width, 40);
  out += heading_of(fleet, nodes) + "\n\n";
  for (const auto& node : nodes) {
    const auto ink = node.report.verdict.ok                       ? render::Ink::good
                     : node.report.verdict.worst == Level::broken ? render::Ink::bad
                                                                  : render::Ink::poor;
    const auto line = line_of(node.report);
    out += fmt::format("  {}  {}\n", render::pad(render::cut(node.name, name_width), name_width),
                       style.ink(ink, render::cut(line, 100)));
  }
  if (!fleet.deviations.empty()) {
    std::size_t widths[4] = {4, 6, 5, 5};
    for (const auto& one : fleet.deviations) {
      widths[0] = std::max(widths[0], render::columns_of(one.node));
      widths[1] = std::max(widths[1], render::columns_of(one.subject));
      widths[2] = std::max(widths[2], render::columns_of(one.field));
      widths[3] = std::max(widths[3], render::columns_of(one.value));
    }
    for (auto& width : widths) width = std::min<std::size_t>(width, 40);
    const auto row = [&](std::string_view a, std::string_view b, std::string_view c, std::string_view d,
                         std::string_view e, std::string_view f) {
      return fmt::format("  {}  {}  {}  {}  {}  {}\n", render::pad(render::cut(a, widths[0]), widths[0]),
                         render::pad(render::cut(b, widths[1]), widths[1]),
                         render::pad(render::cut(c, widths[2]), widths[2]),
                         render::pad(render::cut(d, widths[3]), widths[3]), render::pad_left(e, 9), f);
    };
    out += "\n" + style.ink(render::Ink::faint, row("node", "device", "field", "here", "costs", "most others"));
    for (const auto& one : fleet.deviations) {
      out += row(one.node, one.subject, one.field, one.value, cost_text(one),
                 fmt::format("{} ({} of {})", render::cut(one.usual, 60), one.agree, one.of));
    }
  }
  if (!fleet.undecided.empty()) out += "\nno majority\n";
  for (const auto& one : fleet.undecided) out += fmt::format("  {}\n", one);
  for (const auto& group : fleet.groups) {
    if (group.size() == 1 && fleet.compared > 0)
      out += fmt::format("\n{}: no other node has the same GPUs and NICs, so it was not compared\n", group.front());
  }
  if (const auto without = unmeasured(nodes); !without.empty()) out += "\n" + without + "\n";
  return out;
}

#ifdef FAIRWAY_HAVE_JSON

Result<std::string> json_of(const Fleet& fleet, std::span<const Node> nodes) {
  using Json = nlohmann::ordered_json;
  Json out;
  out["format"] = "fairway-doctor-fleet";
  out["version"] = 1;
  out["exit_code"] = exit_code(fleet, nodes);
  auto& all = out["nodes"] = Json::array();
  for (const auto& node : nodes) {
    const auto report = json_of(node.found.machine, node.report);
    if (!report) return report.status();
    auto& one = all.emplace_back();
    one["name"] = node.name;
    one["measured_rates"] = node.found.measured.size();
    one["report"] = Json::parse(*report);
  }
  out["compared"] = fleet.compared;
  out["groups"] = fleet.groups;
  auto& deviations = out["deviations"] = Json::array();
  for (const auto& one : fleet.deviations) {
    deviations.push_back({{"node", one.node},
                          {"device", one.subject},
                          {"field", one.field},
                          {"value", one.value},
                          {"usual", one.usual},
                          {"agree", one.agree},
                          {"of", one.of},
                          {"loss_bits_per_second", one.loss_gbps ? Json(*one.loss_gbps * 1e9) : Json(nullptr)}});
  }
  out["undecided"] = fleet.undecided;
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

#else

Result<std::string> json_of(const Fleet&, std::span<const Node>) {
  return Status(ErrorCode::unsupported, "this build has no nlohmann-json, so there is no --json");
}

#endif

std::string html_of(const Fleet& fleet, std::span<const Node> nodes) {
  std::string body;
  body += fmt::format("<p>{}</p>\n", heading_of(fleet, nodes));
  body += "<table><thead><tr><th>node</th><th>verdict</th></tr></thead><tbody>\n";
  for (const auto& node : nodes) {
    body += fmt::format("<tr><td>{}</td><td class=\"{}\">{}</td></tr>\n", render::escape(node.name),
                        word(node.report.verdict), render::escape(line_of(node.report)));
  }
  body += "</tbody></table>\n";
  if (!fleet.deviations.empty()) {
    body +=
        "<h2>Differences</h2>\n<table "
        "class=\"differences\"><thead><tr><th>node</th><th>device</th><th>field</th><th>here</th><th>most "
        "others</th><th>costs</th></tr></thead><tbody>\n";
    for (const auto& one : fleet.deviations) {
      body += fmt::format(
          "<tr><td data-is=\"node\">{}</td><td data-is=\"device\">{}</td><td data-is=\"field\">{}</td><td "
          "data-is=\"here\">{}</td>"
          "<td data-is=\"most others\">{} ({} of {})</td><td data-is=\"costs\">{}</td></tr>\n",
          render::escape(one.node), render::escape(one.subject), render::escape(one.field), render::escape(one.value),
          render::escape(one.usual), one.agree, one.of, cost_text(one));
    }
    body += "</tbody></table>\n";
  }
  if (!fleet.undecided.empty()) body += "<h2>No majority</h2>\n<ul>\n";
  for (const auto& one : fleet.undecided) body += fmt::format("<li>{}</li>\n", render::escape(one));
  if (!fleet.undecided.empty()) body += "</ul>\n";
  if (const auto without = unmeasured(nodes); !without.empty())
    body += fmt::format("<p>{}</p>\n", render::escape(without));
  for (const auto& node : nodes) {
    if (node.report.findings.empty()) continue;
    body += fmt::format("<h2>{}</h2>\n{}", render::escape(node.name), findings_of(node.report));
  }
  return page_of("Fleet", "", body);
}

}  // namespace fairway::doctor
