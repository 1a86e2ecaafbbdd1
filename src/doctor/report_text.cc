#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "doctor/report.h"
#include "doctor/rule.h"

namespace fairway::doctor {

using render::Ink;

std::string gbps_text(double gbps) {
  return gbps >= 10 || gbps == 0 ? fmt::format("{:.0f} Gb/s", gbps)
         : gbps >= 0.1           ? fmt::format("{:.1f} Gb/s", gbps)
                                 : fmt::format("{:.3f} Gb/s", gbps);
}

namespace {

// "288 Gb/s over 4 GPUs": the sum, and over how many paths.
std::string loss_text(const Finding& finding) {
  const auto sum = gbps_text(*finding.loss_gbps);
  if (finding.paths < 2) return sum;
  const bool one_each = finding.devices.size() == finding.paths;
  const auto all_are = [&](topology::NodeKind kind) {
    return one_each && std::ranges::all_of(finding.devices, [&](const auto& device) { return device.kind == kind; });
  };
  return fmt::format("{} over {} {}", sum, finding.paths,
                     all_are(topology::NodeKind::gpu)   ? "GPUs"
                     : all_are(topology::NodeKind::nic) ? "NICs"
                                                        : "paths");
}

// The costliest finding that is no note, if its cost is known.
const Finding* costliest(const Report& report) {
  const Finding* out = nullptr;
  for (const auto& finding : report.findings) {
    if (finding.level == Level::note || !finding.loss_gbps) continue;
    if (out == nullptr || *finding.loss_gbps > *out->loss_gbps) out = &finding;
  }
  return out != nullptr && *out->loss_gbps > 0 ? out : nullptr;
}

Ink ink_of(Level level) {
  return level == Level::broken ? Ink::bad : level == Level::warning ? Ink::poor : Ink::faint;
}

std::string indent(std::string_view text, std::string_view label, const render::TextStyle& style) {
  std::string out;
  const std::string left = render::pad(label, 12);
  bool first = true;
  for (const auto& line : render::wrap(text, style.columns > 30 ? style.columns - 14 : 80)) {
    out += fmt::format("    {}{}\n", first ? style.ink(Ink::faint, left) : std::string(12, ' '), line);
    first = false;
  }
  return out;
}

std::string block(const Finding& finding, std::size_t number, const render::TextStyle& style) {
  std::string head = fmt::format("{}. {}", number, finding.title);
  std::string out = fmt::format("{} {}\n", style.ink(ink_of(finding.level), render::pad(to_string(finding.level), 7)),
                                style.ink(Ink::bold, head));
  if (const auto costs = cost_text(finding); !costs.empty()) out += indent(costs, "costs", style);
  if (!finding.path.empty()) out += indent(finding.path, "path", style);
  if (finding.ratio) {
    out += indent(fmt::format("ratio {:.2f}, 95 % confidence interval {:.2f} to {:.2f}", finding.ratio->middle,
                              finding.ratio->low, finding.ratio->high),
                  "A/B", style);
  }
  constexpr std::size_t kShown = 8;
  for (std::size_t i = 0; i < finding.evidence.size() && i < kShown; ++i) {
    out += indent(fmt::format("{}  [{}]", finding.evidence[i].text, finding.evidence[i].where), i == 0 ? "seen" : "",
                  style);
  }
  if (finding.evidence.size() > kShown)
    out += indent(fmt::format("and {} more lines", finding.evidence.size() - kShown), "", style);
  out += indent(std::string(to_string(finding.confidence)), "confidence", style);
  // Commands are not broken over lines: they are to be copied.
  for (std::size_t i = 0; i < finding.fix.size(); ++i)
    out += fmt::format("    {}{}\n", style.ink(Ink::faint, render::pad(i == 0 ? "fix" : "", 12)),
                       style.ink(Ink::accent, finding.fix[i]));
  if (!finding.advice.empty()) out += indent(finding.advice, finding.fix.empty() ? "fix" : "", style);
  out += indent(fmt::format("docs/doctor-rules.md#{0} (fairway doctor rules {0})", finding.rule), "page", style);
  return out;
}

// Findings that are no notes.
std::size_t serious_of(const Report& report) {
  return static_cast<std::size_t>(
      std::ranges::count_if(report.findings, [](const auto& f) { return f.level != Level::note; }));
}

// "3 findings, the costliest costs 288 Gb/s over 4 GPUs".
std::string sum_text(const Report& report) {
  const auto serious = serious_of(report);
  const auto* worst = costliest(report);
  if (worst == nullptr) return render::count(serious, "finding") + ", of unknown cost";
  return fmt::format("{}, {} {}", render::count(serious, "finding"), serious == 1 ? "it costs" : "the costliest costs",
                     loss_text(*worst));
}

// "nothing wrong in what was read; 3 texts not understood; 7 of 41 rules checked"
std::string clean_text(const Report& report) {
  std::string out = "nothing wrong in what was read";
  // What is worth knowing is not nothing: its cost is what is unknown.
  if (const auto notes = report.findings.size(); notes > 0)
    out =
        fmt::format("{}: {}{}", render::count(notes, "note"), report.findings.front().title, notes > 1 ? ", ..." : "");
  for (const auto& one : report.unseen) out += "; " + one;
  if (const auto unread = unread_text(report); !unread.empty()) out += "; " + unread;
  return out + "; " + rules_text(report);
}

// What the verdict rests on: what could not be read first.
std::string read_block(const Report& report, const render::TextStyle& style, bool all) {
  using topology::ReadState;
  std::string out;
  const auto rows = [&](bool read, std::size_t limit) {
    std::size_t where = 0;
    std::size_t what = 0;
    std::size_t count = 0;
    for (const auto& one : report.read) {
      if ((one.state == ReadState::read) != read || ++count > limit) continue;
      where = std::max(where, render::columns_of(one.where));
      what = std::max(what, render::columns_of(one.what));
    }
    if (count == 0) return;
    where = std::min<std::size_t>(where, 36);
    what = std::min<std::size_t>(what, 28);
    out += fmt::format("\n{}\n", read ? style.ink(Ink::faint, "read") : style.ink(Ink::poor, "not read"));
    std::size_t shown = 0;
    for (const auto& one : report.read) {
      if ((one.state == ReadState::read) != read) continue;
      if (++shown > limit) break;
      const auto said = read ? one.gave : fmt::format("{}: {}", to_string(one.state), one.gave);
      const auto left = fmt::format("  {}  {}  ", render::pad(render::cut(one.where, where), where),
                                    render::pad(render::cut(one.what, what), what));
      const auto room = style.columns > where + what + 30 ? style.columns - where - what - 6 : 60;
      bool first = true;
      for (const auto& line : render::wrap(said, room)) {
        out += (first ? left : std::string(where + what + 6, ' ')) + line + "\n";
        first = false;
      }
    }
    if (count > limit) out += fmt::format("  and {} more (--all lists them)\n", count - limit);
  };
  rows(false, all ? report.read.size() : 24);
  rows(true, all ? report.read.size() : 16);
  return out;
}

}  // namespace

std::string cost_text(const Finding& finding) {
  if (!finding.loss_gbps || *finding.loss_gbps < 0.05) return finding.level == Level::note ? "" : "unknown";
  auto out = loss_text(finding);
  if (finding.paths > 1)
    out += fmt::format(", {} each", gbps_text(*finding.loss_gbps / static_cast<double>(finding.paths)));
  if (finding.now_gbps && finding.mended_gbps)
    out += fmt::format(": {} now, {} without it", gbps_text(*finding.now_gbps), gbps_text(*finding.mended_gbps));
  return out;
}

std::string line_of(const Report& report) {
  if (report.verdict.ok) return fmt::format("{}: {}", word(report.verdict), clean_text(report));
  // The cost may be another finding's.
  const auto& first = report.findings.front();
  const auto* worst = costliest(report);
  return fmt::format("{}: {}{} {}", word(report.verdict), sum_text(report),
                     worst == nullptr || worst == &first ? ":" : "; the first is:", first.title);
}

std::string text_of(const Report& report, const render::TextStyle& style, bool all) {
  const auto notes = report.findings.size() - serious_of(report);
  const auto ink = report.verdict.ok && !report.verdict.whole ? Ink::fair
                   : report.verdict.ok                        ? Ink::good
                   : report.verdict.worst == Level::broken    ? Ink::bad
                                                              : Ink::poor;
  std::string verdict = std::string(word(report.verdict));
  std::string why =
      report.verdict.ok ? clean_text(report) : fmt::format("{}; {}", sum_text(report), rules_text(report));
  std::string out = fmt::format("{}  {}: {}\n", style.ink(ink, verdict), report.machine, why);
  if (!report.verdict.ok) {
    for (const auto& one : report.unseen) out += fmt::format("    {}\n", one);
  }
  std::string subjects;
  for (const auto& one : unchecked_subjects(report)) subjects += (subjects.empty() ? "" : ", ") + one;
  if (!subjects.empty()) {
    for (const auto& line :
         render::wrap("nothing was checked of: " + subjects, style.columns > 20 ? style.columns - 6 : 80))
      out += fmt::format("    {}\n", style.ink(Ink::faint, line));
  }
  out += read_block(report, style, all);
  std::size_t number = 0;
  for (const auto& finding : report.findings) {
    if (finding.level == Level::note) break;
    out += "\n" + block(finding, ++number, style);
  }
  if (notes > 0) {
    out += fmt::format(
        "\n{}\n", style.ink(Ink::faint, all ? "notes: not part of the verdict" : "notes (--all prints them in full)"));
    std::size_t shown = 0;
    for (const auto& finding : report.findings) {
      if (finding.level != Level::note) continue;
      if (all) {
        out += "\n" + block(finding, ++number, style);
      } else if (++shown <= 12) {
        out += fmt::format("  {}\n", render::cut(finding.title, style.columns > 10 ? style.columns - 4 : 80));
      }
    }
    if (!all && notes > 12) out += fmt::format("  and {} more\n", notes - 12);
  }
  if (!report.not_looked.empty()) {
    // Rules that lack the same input share a line.
    std::vector<std::pair<std::string, std::vector<std::string>>> by_why;
    for (const auto& one : report.not_looked) {
      const auto found = std::ranges::find_if(by_why, [&](const auto& known) { return known.first == one.why; });
      if (found == by_why.end()) {
        by_why.push_back({one.why, {one.rule}});
      } else {
        found->second.push_back(one.rule);
      }
    }
    out += fmt::format("\n{}\n", style.ink(Ink::faint, fmt::format("not checked ({})",
                                                                   render::count(report.not_looked.size(), "rule"))));
    for (const auto& [reason, rules] : by_why) {
      std::string names;
      for (const auto& rule : rules) names += (names.empty() ? "" : ", ") + rule;
      bool first = true;
      for (const auto& line :
           render::wrap(fmt::format("{}: {}", names, reason), style.columns > 20 ? style.columns - 6 : 80)) {
        out += fmt::format("  {}{}\n", first ? "" : "  ", line);
        first = false;
      }
    }
  }
  return out;
}

std::string prom_of(const Report& report) {
  const auto escape = [](std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      out += c == '\n' ? ' ' : c;
    }
    return out;
  };
  std::string out =
      "# HELP fairway_doctor_verdict 0 ok, 1 degraded, 2 broken, 4 unclear\n# TYPE fairway_doctor_verdict gauge\n";
  out += fmt::format("fairway_doctor_verdict {}\n", exit_code(report.verdict));
  out += "# HELP fairway_doctor_findings Findings by level\n# TYPE fairway_doctor_findings gauge\n";
  for (const auto level : {Level::broken, Level::warning, Level::note}) {
    out += fmt::format("fairway_doctor_findings{{level=\"{}\"}} {}\n", to_string(level),
                       std::ranges::count_if(report.findings, [&](const auto& f) { return f.level == level; }));
  }
  out +=
      "# HELP fairway_doctor_rules_not_looked Rules that lacked their input\n# TYPE fairway_doctor_rules_not_looked "
      "gauge\n";
  out += fmt::format("fairway_doctor_rules_not_looked {}\n", report.not_looked.size());
  out += "# HELP fairway_doctor_rules_looked Rules that checked something\n# TYPE fairway_doctor_rules_looked gauge\n";
  out += fmt::format("fairway_doctor_rules_looked {}\n", report.rules);
  out +=
      "# HELP fairway_doctor_texts_not_read Texts and sources that were not read\n# TYPE "
      "fairway_doctor_texts_not_read gauge\n";
  out += fmt::format("fairway_doctor_texts_not_read {}\n", std::ranges::count_if(report.read, [](const auto& one) {
                       return one.state != topology::ReadState::read;
                     }));
  if (report.findings.empty()) return out;
  // `number` tells findings of one rule apart.
  out +=
      "# HELP fairway_doctor_finding 1 for each finding of level warning or broken\n# TYPE fairway_doctor_finding "
      "gauge\n";
  std::map<std::string, std::size_t> numbers;
  std::string losses;
  for (const auto& finding : report.findings) {
    if (finding.level == Level::note) continue;
    const auto labels = fmt::format("rule=\"{}\",number=\"{}\",level=\"{}\",confidence=\"{}\",title=\"{}\"",
                                    finding.rule, numbers[finding.rule]++, to_string(finding.level),
                                    to_string(finding.confidence), escape(finding.title));
    out += fmt::format("fairway_doctor_finding{{{}}} 1\n", labels);
    if (finding.loss_gbps)
      losses +=
          fmt::format("fairway_doctor_loss_bytes_per_second{{{}}} {:.0f}\n", labels, *finding.loss_gbps * 1e9 / 8);
  }
  if (!losses.empty())
    out +=
        "# HELP fairway_doctor_loss_bytes_per_second What a finding costs, all its paths together\n# TYPE "
        "fairway_doctor_loss_bytes_per_second "
        "gauge\n" +
        losses;
  return out;
}

}  // namespace fairway::doctor
