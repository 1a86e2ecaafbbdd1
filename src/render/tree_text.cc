#include "render/tree_text.h"

#include <fmt/format.h>

#include "render/links.h"

namespace fairway::render {
namespace {

std::string link_text(const Box& box, const TextStyle& style) {
  if (!box.gbs && box.link_words.empty()) return {};
  std::string out = box.link_words;
  if (box.gbs) out += fmt::format("{}{} GB/s", out.empty() ? "" : " ", rate(box.gbs));
  if (box.health == Health::reduced && box.max_gbs && box.gbs) {
    return style.ink(Ink::poor, fmt::format("{}, of {} at its best", out, rate(box.max_gbs)));
  }
  return style.ink(Ink::faint, out);
}

std::string line_of(const Box& box, const TextStyle& style) {
  std::string out = style.ink(box.muted ? Ink::faint : Ink::bold, box.name);
  for (const std::string& part : {box.model, box.place}) {
    if (!part.empty() && part != box.name) out += "  " + part;
  }
  const std::string link = link_text(box, style);
  if (!link.empty()) out += "  " + link;
  if (box.health == Health::down) out += "  " + style.ink(Ink::bad, "down");
  if (!box.ports.empty()) {
    out += "  bond of";
    for (const BondPort& port : box.ports) {
      out += fmt::format(" {}{}", port.name, port.up && !*port.up ? style.ink(Ink::bad, "(down)") : "");
    }
  }
  if (box.inferred) out += style.ink(Ink::faint, "  (from the recorded classes)");
  if (!box.others.empty()) out += style.ink(Ink::faint, "  + " + box.others);
  return out;
}

void add_lines(const std::vector<Box>& boxes, const std::string& indent, const TextStyle& style, std::string& out) {
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const bool is_last = i + 1 == boxes.size();
    out += indent + (is_last ? "`- " : "|- ") + line_of(boxes[i], style) + "\n";
    add_lines(boxes[i].children, indent + (is_last ? "   " : "|  "), style, out);
  }
}

}  // namespace

std::string tree_text(const topology::Machine& machine, const TextStyle& style) {
  const Outline boxes = outline(machine);
  std::string out = style.ink(Ink::bold, machine.name.empty() ? "Machine" : machine.name) + "\n";
  add_lines(boxes.roots, "", style, out);
  const std::vector<std::string> links = link_lines(machine);
  if (!links.empty()) out += "Links between devices\n";
  for (std::size_t i = 0; i < links.size(); ++i) out += (i + 1 == links.size() ? "`- " : "|- ") + links[i] + "\n";
  return out;
}

std::string tree_text(const topology::Fabric& fabric, const TextStyle& style) {
  std::string out;
  for (const topology::Machine& machine : fabric.machines) out += tree_text(machine, style) + "\n";
  if (fabric.cables.empty()) return out;
  out += "Cables\n";
  const auto end_name = [&fabric](const topology::CableEnd& end) {
    if (end.is_switch) return fabric.switches[end.index].name;
    const topology::Machine& machine = fabric.machines[end.machine];
    return fmt::format("{} {}", machine.name, machine.nics[end.index].name);
  };
  for (std::size_t i = 0; i < fabric.cables.size(); ++i) {
    const topology::Cable& cable = fabric.cables[i];
    out += fmt::format("{}{} -- {}{}\n", i + 1 == fabric.cables.size() ? "`- " : "|- ", end_name(cable.a),
                       end_name(cable.b), cable.gbps ? "  " + gigabits(*cable.gbps) : "");
  }
  return out;
}

}  // namespace fairway::render
