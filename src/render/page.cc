#include "render/page.h"

#include <array>
#include <set>

#include <fmt/format.h>

#include "render/layout.h"
#include "render/matrix.h"
#include "render/phrases.h"
#include "render/reports.h"
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

// Style and script of the page. Colours of classes are the page's own; those of the picture are in svg.cc.
std::string page_css() {
  return R"(:root{--paper:#fff;--ink:#18212b;--faint:#5c6773;--rule:#d5dbe1;--card:#fff;
--nv:#d6eed9;--pix:#d0ecec;--pxb:#dbe8fb;--phb:#e6e3fb;--node:#fbebcb;--sys:#fadbd6;--unknown:#eceff2;
--nvl:#3a8a43;--pixl:#0d8284;--pxbl:#2f77b8;--phbl:#6a55b5;--nodel:#b26a00;--sysl:#c22a26}
@media screen and (prefers-color-scheme:dark){:root{--paper:#11161c;--ink:#e7ecf1;--faint:#9aa7b4;--rule:#323c47;--card:#1b232c;
--nv:#1c4326;--pix:#124445;--pxb:#1a3757;--phb:#332d61;--node:#4f3a12;--sys:#5a241f;--unknown:#252c34;
--nvl:#58b565;--pixl:#35b5b2;--pxbl:#5ea5e2;--phbl:#9a84d6;--nodel:#f3a640;--sysl:#ff7d75}}
body{margin:0;padding:0 24px 48px;background:var(--paper);color:var(--ink);font:14px/1.45 "Helvetica Neue",Helvetica,Arial,"DejaVu Sans",sans-serif}
figure{margin:0 -24px;overflow-x:auto}
figure svg{max-width:100%;min-width:var(--least);height:auto;display:block}
h1{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
h2{font-size:16px;margin:28px 0 8px}
pre.summary{font:12px/1.5 ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;white-space:pre-wrap;margin:14px 0}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:12px}
.matrix th,.matrix td{padding:3px 8px;text-align:center;border:1px solid var(--paper);white-space:nowrap}
.matrix th{font-weight:600}
.matrix tbody th{text-align:right}
.matrix small{display:block;font-weight:400;font-size:10.5px;opacity:.8}
.matrix .c-self{color:var(--faint)}
.matrix tr.lit th{text-decoration:underline;text-decoration-thickness:2px}
.c-nv{background:var(--nv)}.c-pix{background:var(--pix)}.c-pxb{background:var(--pxb)}.c-phb{background:var(--phb)}
.c-node{background:var(--node)}.c-sys{background:var(--sys)}.c-unknown{background:var(--unknown)}
.key{font-size:12px;color:var(--faint)}
.key span{color:var(--ink);padding:2px 7px;border-radius:3px;white-space:nowrap}
.list td,.list th{padding:3px 12px 3px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule);font-weight:400}
.list th{font-weight:600;white-space:nowrap}
.list .yes{color:var(--nvl);font-weight:600}.list .no{color:var(--faint)}
ul{padding-left:18px}
li{margin:3px 0}
li.error b{color:var(--sysl)}li.warning b{color:var(--nodel)}.notes b{font-weight:600}
[data-node]{cursor:pointer}
[data-node]:focus{outline:none;stroke-width:3px}
svg [data-near]{stroke-width:3px!important;stroke-dasharray:none!important}
svg [data-near=nv]{stroke:var(--nvl)!important}svg [data-near=pix]{stroke:var(--pixl)!important}
svg [data-near=pxb]{stroke:var(--pxbl)!important}svg [data-near=phb]{stroke:var(--phbl)!important}
svg [data-near=node]{stroke:var(--nodel)!important}svg [data-near=sys]{stroke:var(--sysl)!important}
svg [data-near=self]{stroke:var(--ink)!important}
.badge{font-size:9px;font-weight:600;paint-order:stroke;stroke:var(--paper);stroke-width:4px;pointer-events:none}
#card{position:fixed;z-index:2;max-width:360px;background:var(--card);border:1px solid var(--rule);border-radius:6px;padding:10px 14px;box-shadow:0 4px 18px #0003;pointer-events:none;font-size:12px}
#card h3{margin:0 0 6px;font-size:13px}
#card dl{display:grid;grid-template-columns:auto 1fr;gap:2px 12px;margin:0}
#card dt{color:var(--faint)}#card dd{margin:0}
@media print{@page{size:A4 landscape;margin:12mm}body{padding:0}figure{margin:0;overflow:visible}figure svg{min-width:0;width:100%}
.key,#card{display:none!important}.wide{overflow:visible}.matrix{font-size:9px;width:100%}.matrix th,.matrix td{padding:1px 3px}.matrix small{font-size:7.5px}
h2{break-after:avoid}tr,li{break-inside:avoid}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)";
}

const char* page_script() {
  return R"(const card=document.getElementById('card');
const svg=document.querySelector('svg.machine');
const drawn=[...svg.querySelectorAll('[data-node]')];
let pinned=null;
for(const shape of drawn){const title=shape.querySelector('title');if(title){shape.setAttribute('aria-label',title.textContent);title.remove();}shape.setAttribute('tabindex','0');}
function clear(){
  card.hidden=true;
  for(const shape of drawn)delete shape.dataset.near;
  for(const badge of svg.querySelectorAll('.badge'))badge.remove();
  for(const row of document.querySelectorAll('tr.lit'))row.classList.remove('lit');
}
function badge(shape,text){
  const label=document.createElementNS('http://www.w3.org/2000/svg','text');
  label.setAttribute('class','badge');label.setAttribute('text-anchor','end');
  label.setAttribute('x',+shape.getAttribute('x')+ +shape.getAttribute('width')-4);
  label.setAttribute('y',+shape.getAttribute('y')+2);
  label.textContent=text;svg.append(label);
}
function compare(key){
  for(const matrix of matrices){
    const at=matrix.ends.indexOf(key);
    if(at<0)continue;
    for(const shape of drawn){
      const other=matrix.ends.indexOf(shape.dataset.node);
      if(other<0)continue;
      const [kind,name,rate]=matrix.cells[at*matrix.ends.length+other].split('|');
      shape.dataset.near=kind;
      if(kind!=='self')badge(shape,rate?name+' '+rate:name);
    }
  }
  for(const row of document.querySelectorAll('tr[data-ends]'))if(row.dataset.ends.split(' ').includes(key))row.classList.add('lit');
}
function show(shape,x,y){
  clear();
  const key=shape.dataset.node,template=document.getElementById('card-'+key);
  if(template){
    card.replaceChildren(template.content.cloneNode(true));
    card.hidden=false;
    const box=card.getBoundingClientRect();
    card.style.left=Math.max(8,Math.min(x+16,innerWidth-box.width-8))+'px';
    card.style.top=(y+20+box.height<innerHeight?y+20:Math.max(8,y-box.height-14))+'px';
  }
  compare(key);
}
for(const shape of drawn){
  shape.addEventListener('pointerenter',event=>{if(!pinned)show(shape,event.clientX,event.clientY);});
  shape.addEventListener('pointerleave',()=>{if(!pinned)clear();});
  shape.addEventListener('focus',()=>{const box=shape.getBoundingClientRect();show(shape,box.left,box.bottom);});
  shape.addEventListener('blur',()=>{pinned=null;clear();});
  shape.addEventListener('click',event=>{pinned=pinned===shape?null:shape;show(shape,event.clientX,event.clientY);});
}
addEventListener('keydown',event=>{if(event.key==='Escape'){pinned=null;clear();}});
)";
}

}  // namespace fairway::render
