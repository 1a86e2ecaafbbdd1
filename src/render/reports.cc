#include "render/reports.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "topology/port_errors.h"

namespace fairway::render {
namespace {

using topology::Severity;

// Text with a left margin on all lines but the first.
std::string hang(const std::string& text, std::size_t margin, const TextStyle& style) {
  std::string out;
  const std::size_t room = style.columns > margin + 30 ? style.columns - margin : 30;
  for (const std::string& line : wrap(text, room)) {
    if (!out.empty()) out += pad("", margin);
    out += line + "\n";
  }
  return out.empty() ? "\n" : out;
}

Ink ink_of(Severity severity) {
  switch (severity) {
    case Severity::error: return Ink::bad;
    case Severity::warning: return Ink::poor;
    case Severity::notice: return Ink::faint;
  }
  return Ink::plain;
}

}  // namespace

std::string nic_choices_text(const topology::Machine& machine, topology::NodeRef memory, const std::string& name,
                             std::span<const topology::NicChoice> choices, const ExpectRate& expect,
                             const TextStyle& style) {
  std::string out = style.ink(Ink::bold, fmt::format("NICs for {}, best first", name)) + "\n";
  if (choices.empty()) return out + "  none: no NIC of this machine is recorded\n";
  std::size_t width = 0;
  for (const topology::NicChoice& choice : choices) {
    if (choice.rail) width = std::max(width, columns_of(machine.nics[choice.nic.index].name));
  }
  std::size_t place = 0;
  std::vector<std::pair<std::string, std::vector<std::string>>> others;  // by reason, in the order of their first
  for (const topology::NicChoice& choice : choices) {
    const std::string& nic = machine.nics[choice.nic.index].name;
    if (!choice.rail) {
      const auto same = std::ranges::find_if(others, [&](const auto& one) { return one.first == choice.reason; });
      if (same == others.end()) {
        others.push_back({choice.reason, {nic}});
      } else {
        same->second.push_back(nic);
      }
      continue;
    }
    const auto expected = expect ? expect(memory, {topology::NodeKind::nic, choice.nic.index}) : std::nullopt;
    const std::string reason =
        expected ? fmt::format("{}; {:.1f} GB/s expected ({:.1f}-{:.1f}), bound by {}", choice.reason,
                               expected->expected_gbs, expected->low_gbs, expected->high_gbs, expected->bottleneck)
                 : choice.reason + "; expected rate: unknown";
    out +=
        fmt::format("{:>3}  {}  ", ++place, style.ink(Ink::bold, pad(nic, width))) + hang(reason, 5 + width + 2, style);
  }
  for (const auto& [reason, names] : others) {
    out += "  -  " + hang(fmt::format("{}: {}", fold_names(names), reason), 5, style);
  }
  return out;
}

std::string rails_text(const topology::Machine& machine, const TextStyle& style) {
  const std::vector<topology::RailVerdict> verdicts = topology::rail_verdicts(machine);
  std::string out = style.ink(Ink::bold, "Rails for bulk traffic") + "\n";
  if (verdicts.empty()) return out + "  none: no RDMA device or network interface is recorded\n";
  std::size_t width = 0;
  for (const auto& verdict : verdicts) width = std::max(width, columns_of(topology::node_name(machine, verdict.node)));
  for (const bool rails : {true, false}) {
    for (const topology::RailVerdict& verdict : verdicts) {
      if (verdict.rail != rails) continue;
      const std::string name = pad(topology::node_name(machine, verdict.node), width);
      out += fmt::format("  {}  {}  ", rails ? style.ink(Ink::good, "rail") : style.ink(Ink::faint, "no  "),
                         rails ? style.ink(Ink::bold, name) : name);
      out += hang(bare_reason(verdict.reason), 8 + width + 2, style);
    }
  }
  return out;
}

std::string port_errors_text(const topology::Machine& machine, const TextStyle& style) {
  const auto errors = topology::port_errors(machine);
  if (errors.empty()) return {};
  const auto name = [&](const topology::PortError& error) {
    return fmt::format("{}/{}", machine.rdma[error.device.index].name, error.port);
  };
  std::size_t port = 0, counter = 0, value = 0;
  for (const auto& error : errors) {
    port = std::max(port, columns_of(name(error)));
    counter = std::max(counter, columns_of(error.counter));
    value = std::max(value, fmt::format("{}", error.value).size());
  }
  std::string out = style.ink(Ink::bold, "Errors and retransmissions counted by ports") + "\n";
  for (const auto& error : errors)
    out += fmt::format("  {}  {}  {:>{}}", style.ink(Ink::bold, pad(name(error), port)), pad(error.counter, counter),
                       error.value, value) +
           (error.meaning.empty() ? "\n" : "  " + hang(std::string(error.meaning), 8 + port + counter + value, style));
  return out;
}

std::string findings_text(std::span<const topology::Finding> findings, const TextStyle& style) {
  std::string out;
  for (const topology::Finding& finding : findings) {
    const std::string severity(topology::to_string(finding.severity));
    out += style.ink(ink_of(finding.severity), pad(severity, 8)) + " " +
           style.ink(Ink::bold, finding.subject.empty() ? "machine" : finding.subject) +
           style.ink(Ink::faint, "  " + finding.rule) + "\n";
    out += "         " + hang(finding.text, 9, style);
  }
  return out;
}

std::string notes_text(std::span<const topology::Note> notes, const TextStyle& style) {
  std::string out;
  for (const topology::Note& note : notes) {
    const std::string head = fmt::format("{}{}", note.subject, note.subject.empty() ? "" : ": ");
    out += style.ink(note.kind == topology::NoteKind::conflict ? Ink::poor : Ink::faint,
                     pad(std::string(topology::to_string(note.kind)), 10)) +
           " " + hang(head + note.text, 11, style);
  }
  return out;
}

std::string differences_text(const std::string& a, const std::string& b,
                             std::span<const topology::Difference> differences, const TextStyle& style) {
  if (differences.empty()) return fmt::format("{} and {} do not differ\n", a, b);
  std::string out =
      style.ink(
          Ink::bold,
          fmt::format("{} of {} from {}, costliest first, with the share of a path's rate that the worse may lose",
                      count(differences.size(), "difference"), b, a)) +
      "\n";
  for (const topology::Difference& difference : differences) {
    const std::string cost = difference.cost <= 0      ? ""
                             : difference.cost < 0.005 ? "<1%"
                                                       : fmt::format("{:.0f}%", difference.cost * 100);
    out += style.ink(difference.cost >= 0.25 ? Ink::bad
                     : difference.cost > 0   ? Ink::poor
                                             : Ink::faint,
                     pad_left(cost, 5)) +
           "  ";
    out += style.ink(Ink::bold, difference.subject) + fmt::format(", {}: {} -> {}\n", difference.field,
                                                                  difference.a.empty() ? "absent" : difference.a,
                                                                  difference.b.empty() ? "absent" : difference.b);
    if (!difference.why.empty()) out += "       " + hang(difference.why, 7, style);
  }
  return out;
}

}  // namespace fairway::render
