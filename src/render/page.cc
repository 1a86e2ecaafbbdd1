#include "render/page.h"

#include <array>
#include <set>

#include <fmt/format.h>

#include "render/details.h"
#include "render/layout.h"
#include "render/matrix.h"
#include "render/phrases.h"
#include "render/summary.h"
#include "render/svg.h"
#include "topology/assess.h"

namespace fairway::render {
namespace {

using topology::Machine;
using topology::NodeKind;
using topology::NodeRef;
using topology::PathKind;

const char* class_style(PathKind kind) {
  switch (kind) {
    case PathKind::self: return "self";
    case PathKind::nvlink:
    case PathKind::xgmi: return "nv";
    case PathKind::pix: return "pix";
    case PathKind::pxb: return "pxb";
    case PathKind::phb: return "phb";
    case PathKind::node: return "node";
    case PathKind::sys: return "sys";
    case PathKind::unknown: return "unknown";
  }
  return "unknown";
}

std::string matrix_table(const Machine& machine, const ExpectRate& expect, const std::string& prefix) {
  const FoldedMatrix folded = fold(topology::path_matrix(machine));
  if (folded.groups.empty()) return "<p>No GPU and no NIC, so there is no path to show.</p>\n";
  std::string out = "<div class=\"wide\"><table class=\"matrix\"><thead><tr><td></td>";
  const auto keys_of = [&](const MatrixGroup& group) {
    std::string keys;
    for (const std::size_t member : group.members)
      keys += (keys.empty() ? "" : " ") + prefix + node_key(folded.paths.ends[member]);
    return keys;
  };
  const auto names_of = [&](const MatrixGroup& group) {
    std::vector<std::string> names;
    for (const std::size_t member : group.members)
      names.push_back(topology::node_name(machine, folded.paths.ends[member]));
    return fold_names(names);
  };
  for (const MatrixGroup& group : folded.groups) {
    out += fmt::format("<th scope=\"col\" title=\"{}\">{}</th>", escape(names_of(group)), escape(group.name));
  }
  out += "</tr></thead><tbody>\n";
  for (std::size_t row = 0; row < folded.groups.size(); ++row) {
    const MatrixGroup& group = folded.groups[row];
    const std::string names = names_of(group);
    out += fmt::format("<tr data-ends=\"{}\"><th scope=\"row\">{}{}</th>", keys_of(group), escape(group.name),
                       names == group.name ? "" : fmt::format("<small>{}</small>", escape(names)));
    for (std::size_t column = 0; column < folded.groups.size(); ++column) {
      const topology::PathClass path = folded.at(row, column);
      const auto [a, b] = folded.ends(row, column);
      const auto expected = expect && a != b ? expect(a, b) : std::nullopt;
      out += fmt::format("<td class=\"c-{}\"", class_style(path.kind));
      if (expected && !expected->bottleneck.empty())
        out += fmt::format(" title=\"bound by {}\"", escape(expected->bottleneck));
      out += fmt::format(">{}{}</td>", path.to_string(),
                         expected ? fmt::format("<small>{}</small>", range(*expected)) : "");
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

// Data for the script that runs on hovering: keys, classes and rates of every pair.
std::string matrix_data(const Machine& machine, const ExpectRate& expect, const std::string& prefix) {
  const topology::PathMatrix paths = topology::path_matrix(machine);
  std::string keys;
  std::string cells;
  for (std::size_t row = 0; row < paths.ends.size(); ++row) {
    keys += fmt::format("{}\"{}{}\"", row == 0 ? "" : ",", prefix, node_key(paths.ends[row]));
    for (std::size_t column = 0; column < paths.ends.size(); ++column) {
      const topology::PathClass& path = paths.at(row, column);
      const auto expected = expect && row != column ? expect(paths.ends[row], paths.ends[column]) : std::nullopt;
      cells += fmt::format("{}\"{}|{}|{}\"", cells.empty() ? "" : ",", class_style(path.kind), path.to_string(),
                           expected ? range(*expected) : "");
    }
  }
  return fmt::format("{{ends:[{}],cells:[{}]}}", keys, cells);
}

std::string cards(const Machine& machine, const Scene& scene, const std::string& prefix) {
  std::string out;
  std::set<std::string> done;
  static constexpr std::array kKinds = {NodeKind::package, NodeKind::numa_node, NodeKind::host_bridge, NodeKind::pci,
                                        NodeKind::gpu,     NodeKind::nic,       NodeKind::nv_switch};
  for (const SceneBox& box : scene.boxes) {
    if (box.node.rfind(prefix, 0) != 0 || box.node.empty() || !done.insert(box.node).second) continue;
    const std::string key = box.node.substr(prefix.size());
    for (const NodeKind kind : kKinds) {
      const std::string start = node_key({kind, 0}).substr(0, node_key({kind, 0}).size() - 1);
      if (key.rfind(start, 0) != 0 || key.find_first_not_of("0123456789", start.size()) != std::string::npos) continue;
      const Details shown = details(machine, {kind, static_cast<std::uint32_t>(std::stoul(key.substr(start.size())))});
      out += fmt::format("<template id=\"card-{}\"><h3>{}</h3><dl>", escape(box.node), escape(shown.title));
      for (const auto& [label, value] : shown.rows)
        out += fmt::format("<dt>{}</dt><dd>{}</dd>", escape(label), escape(value));
      out += "</dl></template>\n";
    }
  }
  return out;
}

std::string findings_section(const Machine& machine) {
  std::string out;
  const auto findings = topology::lint(machine);
  if (!findings.empty()) out += "<h2>To look at</h2>\n<ul class=\"findings\">\n";
  for (const topology::Finding& finding : findings) {
    const std::string severity(topology::to_string(finding.severity));
    out += fmt::format("<li class=\"{}\"><b>{}</b> {}{}</li>\n", severity, escape(severity),
                       finding.subject.empty() ? "" : fmt::format("<i>{}</i>: ", escape(finding.subject)),
                       escape(finding.text));
  }
  if (!findings.empty()) out += "</ul>\n";
  const auto verdicts = topology::rail_verdicts(machine);
  if (!verdicts.empty()) out += "<h2>Rails for bulk traffic</h2>\n<div class=\"wide\"><table class=\"list\">\n";
  for (const bool rails : {true, false}) {
    for (const topology::RailVerdict& verdict : verdicts) {
      if (verdict.rail != rails) continue;
      out += fmt::format("<tr><td class=\"{}\">{}</td><th scope=\"row\">{}</th><td>{}</td></tr>\n",
                         rails ? "yes" : "no", rails ? "rail" : "no",
                         escape(topology::node_name(machine, verdict.node)), escape(bare_reason(verdict.reason)));
    }
  }
  if (!verdicts.empty()) out += "</table></div>\n";
  if (!machine.notes.empty()) out += "<h2>How this was read</h2>\n<ul class=\"notes\">\n";
  for (const topology::Note& note : machine.notes) {
    out += fmt::format("<li><b>{}</b> {}{}</li>\n", escape(topology::to_string(note.kind)),
                       note.subject.empty() ? "" : fmt::format("<i>{}</i>: ", escape(note.subject)), escape(note.text));
  }
  if (!machine.notes.empty()) out += "</ul>\n";
  return out;
}

std::string key_of_classes() {
  return "<p class=\"key\">Hover over a device, or focus it with Tab: the others take the colour of their class from "
         "it. "
         "<span class=\"c-nv\">NVLink, xGMI</span> <span class=\"c-pix\">PIX: one switch</span> "
         "<span class=\"c-pxb\">PXB: several switches</span> <span class=\"c-phb\">PHB: host bridge</span> "
         "<span class=\"c-node\">NODE: same NUMA node</span> <span class=\"c-sys\">SYS: across sockets</span></p>\n";
}

std::string frame(const std::string& title, const Scene& scene, const std::string& body, const std::string& data) {
  std::string out = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out +=
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<meta name=\"color-scheme\" "
      "content=\"light dark\">\n";
  out += fmt::format("<title>{}</title>\n<style>\n{}{}</style>\n</head>\n<body>\n", escape(title),
                     picture_css(Theme::automatic), page_css());
  out += fmt::format("<h1>{}</h1>\n", escape(title));
  out += fmt::format("<figure style=\"--least:{:.0f}px\">\n{}</figure>\n", scene.width * 0.62,
                     svg(scene, {.inside_page = true}));
  out += key_of_classes() + body;
  out += fmt::format(
      "<div id=\"card\" role=\"status\" hidden></div>\n<script>\nconst matrices=[{}];\n{}</script>\n</body>\n</html>\n",
      data, page_script());
  return out;
}

std::string summary_block(const Machine& machine) {
  return fmt::format("<pre class=\"summary\">{}</pre>\n", escape(summary(machine, {.colour = false, .columns = 130})));
}

// Rates are shown between GPUs and other devices, not between NICs.
const char* matrix_heading(const Machine& machine, const ExpectRate& expect) {
  return expect && !machine.gpus.empty() ? "<h2>Paths: class, and GB/s per direction that one flow should reach</h2>\n"
                                         : "<h2>Path classes</h2>\n";
}

}  // namespace

std::string page(const Machine& machine, const ExpectRate& expect) {
  const Scene scene = picture(machine);
  std::string body = summary_block(machine);
  body += matrix_heading(machine, expect) + matrix_table(machine, expect, "") + findings_section(machine) +
          cards(machine, scene, "");
  return frame(machine.name.empty() ? "This machine" : machine.name, scene, body, matrix_data(machine, expect, ""));
}

std::string page(const topology::Fabric& fabric) {
  const Scene scene = picture(fabric);
  std::string body;
  std::string data;
  for (std::size_t i = 0; i < fabric.machines.size(); ++i) {
    const Machine& machine = fabric.machines[i];
    const std::string prefix = fmt::format("m{}-", i);
    body += fmt::format("<h2 class=\"machine-name\">{}</h2>\n",
                        escape(machine.name.empty() ? fmt::format("Machine {}", i) : machine.name));
    body += summary_block(machine) + matrix_table(machine, {}, prefix) + findings_section(machine) +
            cards(machine, scene, prefix);
    data += (i == 0 ? "" : ",") + matrix_data(machine, {}, prefix);
  }
  return frame(fabric.name.empty() ? "Machines and their network" : fabric.name, scene, body, data);
}

}  // namespace fairway::render
