#include <map>

#include <fmt/format.h>

#include "doctor/gather.h"
#include "topology/commands/command_text.h"
#include "topology/port_errors.h"
#include "topology/text.h"

// What tools say of links and of the InfiniBand fabric: mlxlink, perfquery, iblinkinfo, ibnetdiscover.
namespace fairway::doctor {

namespace text = topology::text;
using topology::Output;

namespace {

// "CA: node1 mlx5_0:" and "Switch: 0x0002c9020046c588 Infiniscale-IV:" without the colons.
std::string node_of_heading(std::string_view line) {
  auto name = text::trim(line.substr(line.find(':') + 1));
  if (name.ends_with(':')) name.remove_suffix(1);
  if (name.starts_with("0x") && name.find(' ') != name.npos) name = text::trim(name.substr(name.find(' ')));
  return text::quote(name, 60);
}

// The port's number, which stands before "[  ]".
std::string port_before_bracket(std::string_view words) {
  const auto parts = text::words(words.substr(0, words.rfind('[')));
  return parts.empty() ? std::string("?") : text::quote(parts.back(), 8);
}

// "78 [-5..75]", "0.5,-11.2,0.6,0.4 [-7.9..6]": whether a value is outside the range that stands beside it.
bool is_outside(std::string_view value) {
  const auto open = value.rfind('[');
  const auto dots = open == value.npos ? value.npos : value.find("..", open);
  if (dots == value.npos || !value.ends_with(']')) return false;
  const auto least = text::to_double(text::trim(value.substr(open + 1, dots - open - 1)));
  const auto most = text::to_double(text::trim(value.substr(dots + 2, value.size() - dots - 3)));
  if (!least || !most || *least >= *most) return false;
  for (const auto part : text::split(value.substr(0, open), ',')) {
    const auto number = text::to_double(text::trim(part));
    if (number && (*number < *least || *number > *most)) return true;
  }
  return false;
}

}  // namespace

// "State : Active", "Status Opcode : 0", "Recommendation : No issue was observed", "Effective Physical Errors : 0"
std::string read_mlxlink_facts(const Output& output, const Gathered& to) {
  auto device = topology::device_of_mlxlink(output, to.machine);
  if (device.empty()) device = "of an unnamed device";
  const auto prefix = "mlxlink." + device;
  std::size_t number = 0;
  std::string gave;
  std::string outside;
  std::string outside_at;
  for (const auto line : text::lines(output.text)) {
    ++number;
    const auto colon = line.find(':');
    if (colon == line.npos) continue;
    const auto key = text::trim(line.substr(0, colon));
    const auto value = text::quote(text::trim(line.substr(colon + 1)), 200);
    if (value.empty() || value == "N/A") continue;
    if (key == "State") to.facts.set(prefix + ".state", value, output.at(number));
    if (key == "FEC") to.facts.set(prefix + ".fec", value, output.at(number));
    if (key == "Status Opcode") to.facts.set(prefix + ".opcode", value, output.at(number));
    if (key == "Recommendation") {
      to.facts.set(prefix + ".recommendation", value, output.at(number));
      gave = text::lower(value);
    }
    if (is_outside(value)) {
      outside += fmt::format("{}{}: {}", outside.empty() ? "" : "; ", key, value);
      if (outside_at.empty()) outside_at = output.at(number);
    }
    for (const auto& [counter, fact] :
         {std::pair{"Link Down Counter", ".link_down"}, std::pair{"Link Error Recovery Counter", ".link_recovery"}}) {
      if (key == counter && text::to_unsigned(value)) to.facts.set(prefix + fact, value, output.at(number));
    }
    if (key == "Effective Physical Errors" || key == "Symbol Errors") {
      if (!text::to_unsigned(value)) continue;
      to.facts.set(prefix + (key == "Symbol Errors" ? ".symbol_errors" : ".effective_errors"), value,
                   output.at(number));
    }
  }
  if (!outside.empty()) to.facts.set(prefix + ".outside", text::quote(outside, 300), outside_at);
  if (!gave.empty()) return gave;
  return to.facts.find(prefix + ".state") == nullptr ? std::string() : "the link of " + device;
}

namespace {

// "LinkErrorRecoveryCounter" as the kernel names it; empty: it counts no errors.
std::string kernel_name(std::string_view counter) {
  if (counter == "VL15Dropped") return "VL15_dropped";
  if (counter == "QP1Dropped" || counter == "CounterSelect") return {};
  if (counter.ends_with("Counter")) counter.remove_suffix(7);
  std::string out;
  for (const char c : counter) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper && !out.empty()) out += '_';
    out += upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return topology::meaning_of_counter(out).empty() ? std::string() : out;
}

// The port of a LID; where no output tells whose that is, the LID itself.
std::string port_of_lid(const topology::Machine& machine, std::string_view lid, std::string_view port) {
  const auto number = text::to_u32(lid);
  for (const auto& device : machine.rdma) {
    for (const auto& one : device.ports) {
      if (number && one.lid && *one.lid == *number && text::to_u32(port) == one.number) return device.name;
    }
  }
  return fmt::format("LID {} port {}", text::quote(lid, 8), text::quote(port, 8));
}

}  // namespace

// "# Port counters: Lid 77 port 1 (CapMask: 0x5A00)", "LinkDownedCounter:...............3"
std::string read_perfquery(const Output& output, const Gathered& to) {
  std::string whose;
  std::string grown;
  std::size_t number = 0;
  std::size_t counters = 0;
  for (const auto line : text::lines(output.text)) {
    ++number;
    if (line.starts_with("# Port ")) {
      const auto words = text::words(line);
      whose.clear();
      for (std::size_t i = 0; i + 3 < words.size(); ++i) {
        if (words[i] == "Lid" && words[i + 2] == "port") whose = port_of_lid(to.machine, words[i + 1], words[i + 3]);
      }
    }
    const auto colon = line.find(":.");
    const auto value = colon == line.npos ? line.npos : line.find_first_not_of('.', colon + 1);
    if (whose.empty() || value == line.npos) continue;
    const auto count = text::to_unsigned(text::trim(line.substr(value)));
    const auto name = kernel_name(line.substr(0, colon));
    if (!count) continue;
    ++counters;
    if (name.empty()) continue;
    to.facts.set(fmt::format("perfquery.{}.{}", whose, name), std::to_string(*count), output.at(number));
    if (*count > 0 && grown.size() < 100) grown += fmt::format("{}{} {}", grown.empty() ? ": " : ", ", name, *count);
  }
  return counters == 0 ? std::string() : fmt::format("{} counters of {}{}", counters, whose, grown);
}

// "2   17[  ] ==( 4X  25.78125 Gbps Active/  LinkUp)==>   4    1[  ] "n02 HCA-1" ( Could be 53.125 Gbps)"
std::string read_iblinkinfo(const Output& output, const Gathered& to) {
  std::string node = "?";
  std::size_t number = 0;
  std::size_t up = 0;
  std::size_t down = 0;
  std::size_t slow = 0;
  std::size_t waiting = 0;
  for (const auto line : text::lines(output.text)) {
    ++number;
    const auto open = line.find("==(");
    const auto close = line.find(")==>");
    if (open == line.npos || close == line.npos || close < open) {
      if (line.starts_with("CA: ") || line.starts_with("Switch: ") || line.starts_with("Router: "))
        node = node_of_heading(line);
      continue;
    }
    const auto inside = text::trim(line.substr(open + 3, close - open - 3));
    const auto remark = line.substr(close + 4);
    const auto name =
        fmt::format("{} port {}: {}", node, port_before_bracket(line.substr(0, open)), text::quote(inside, 60));
    if (inside.find("Active") == inside.npos) {
      // A port without a cable is ordinary; one whose link is up waits for the subnet manager.
      const bool link = inside.find("LinkUp") != inside.npos;
      ++(link ? waiting : down);
      if (link) to.facts.set(fmt::format("fabric.waiting.{:04}", waiting), name, output.at(number));
      continue;
    }
    ++up;
    const auto could = remark.find("Could be");
    if (could == remark.npos) continue;
    ++slow;
    to.facts.set(
        fmt::format("fabric.slow.{:04}", slow),
        fmt::format("{}; {}", name, text::quote(text::trim(remark.substr(could, remark.rfind(')') - could)), 40)),
        output.at(number));
  }
  if (up + down + waiting == 0) return {};
  to.facts.set("fabric.links", std::to_string(up), output.at(1));
  auto gave = fmt::format("{} links up, {} ports down", up, down);
  if (slow > 0) gave += fmt::format(", {} below what both ends support", slow);
  if (waiting > 0) gave += fmt::format(", {} not active", waiting);
  return gave;
}

// "Switch  24 "S-0054..."  # "ISR9024" ...", "Ca 2 "H-..."", "[22]  "H-..."[1](...)  # "node1 mlx5_0" lid 4 4xSDR"
std::string read_ibnetdiscover(const Output& output, const Gathered& to) {
  std::size_t switches = 0;
  std::size_t adapters = 0;
  std::size_t narrow = 0;
  std::size_t number = 0;
  std::map<std::string, std::size_t> rates;
  std::string node = "?";
  for (const auto line : text::lines(output.text)) {
    ++number;
    if (line.starts_with("Switch") || line.starts_with("Ca")) {
      ++(line.front() == 'S' ? switches : adapters);
      const auto remark = line.find("# \"");
      node =
          remark == line.npos ? "?" : text::quote(line.substr(remark + 3, line.find('"', remark + 3) - remark - 3), 60);
      continue;
    }
    if (!line.starts_with('[')) continue;
    const auto words = text::words(line);
    const auto rate = text::quote(words.back(), 20);
    const auto x = rate.find('x');
    if (x == std::string::npos || !text::to_u32(rate.substr(0, x))) continue;
    ++rates[rate];
    // One lane of four is a cable or a connector.
    if (rate.substr(0, x) != "1") continue;
    to.facts.set(fmt::format("fabric.slow.{:04}", ++narrow),
                 fmt::format("{} port {}: {}", node, text::quote(line.substr(1, line.find(']') - 1), 8), rate),
                 output.at(number));
  }
  if (switches + adapters == 0) return {};
  to.facts.set("fabric.nodes", std::to_string(switches + adapters), output.at(1));
  auto gave = fmt::format("{} switches, {} adapters", switches, adapters);
  for (const auto& [rate, count] : rates) gave += fmt::format(", {} ends of {}", count, rate);
  return gave;
}

// The last column of hl-smi's first line of each: uncorrected errors of its memory.
std::string read_hl_smi_errors(const Output& output, const Gathered& to) {
  std::size_t number = 0;
  std::size_t told = 0;
  for (const auto line : text::lines(output.text)) {
    ++number;
    const auto cells = text::split(line, '|');
    if (cells.size() < 4) continue;
    const auto left = text::words(cells[1]);
    const auto middle = text::words(cells[2]);
    const auto right = text::words(cells[3]);
    const auto ordinal = left.empty() ? std::nullopt : text::to_u32(left.front());
    // Some versions have the count beside the bus id.
    const auto count = !right.empty()      ? text::to_unsigned(right.back())
                       : middle.size() > 1 ? text::to_unsigned(middle.back())
                                           : std::nullopt;
    if (!ordinal || !count || middle.empty() || !topology::BusId::parse(middle.front())) continue;
    to.facts.set(fmt::format("gpu.{}.ecc_uncorrected", *ordinal), std::to_string(*count), output.at(number));
    ++told;
  }
  return told == 0 ? std::string() : fmt::format("the errors of {} accelerator{}", told, told == 1 ? "" : "s");
}

}  // namespace fairway::doctor
