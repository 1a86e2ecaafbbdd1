#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "doctor/report.h"
#include "doctor/rule.h"

namespace fairway::doctor {

using render::Ink;

std::string gbps_text(double gbps) {
  return gbps >= 10    ? fmt::format("{:.0f} Gb/s", gbps)
         : gbps >= 0.1 ? fmt::format("{:.1f} Gb/s", gbps)
                       : fmt::format("{:.3f} Gb/s", gbps);
}

namespace {

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
  if (finding.loss_gbps && *finding.loss_gbps >= 0.05) {
    std::string costs = gbps_text(*finding.loss_gbps);
    if (finding.now_gbps && finding.mended_gbps)
      costs += fmt::format(": {} now, {} without it", gbps_text(*finding.now_gbps), gbps_text(*finding.mended_gbps));
    out += indent(costs, "costs", style);
  } else if (finding.level != Level::note) {
    out += indent("how much is unknown", "costs", style);
  }
  if (!finding.path.empty()) out += indent(finding.path, "path", style);
  if (finding.ratio) {
    out += indent(fmt::format("{:.2f} times, between {:.2f} and {:.2f} (95 %)", finding.ratio->middle,
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
  out += indent(fmt::format("docs/doctor-rules.md#{}", finding.rule), "page", style);
  return out;
}

}  // namespace

std::string line_of(const Report& report) {
  const auto count = std::count_if(report.findings.begin(), report.findings.end(),
                                   [](const auto& f) { return f.level != Level::note; });
  if (report.verdict.ok) {
    return fmt::format("ok: {} looked, {} could not", render::count(report.rules, "rule"), report.not_looked.size());
  }
  std::string cost = report.verdict.loss_gbps ? fmt::format(", up to {}", gbps_text(*report.verdict.loss_gbps)) : "";
  return fmt::format("{}: {}{}: {}", word(report.verdict), render::count(static_cast<std::size_t>(count), "finding"),
                     cost, report.findings.front().title);
}

std::string text_of(const topology::Machine& machine, const Report& report, const render::TextStyle& style, bool all) {
  (void)machine;
  const auto serious = static_cast<std::size_t>(std::count_if(report.findings.begin(), report.findings.end(),
                                                              [](const auto& f) { return f.level != Level::note; }));
  const auto notes = report.findings.size() - serious;
  const auto ink = report.verdict.ok ? Ink::good : report.verdict.worst == Level::broken ? Ink::bad : Ink::poor;
  std::string verdict = std::string(word(report.verdict));
  std::string why =
      report.verdict.ok          ? fmt::format("no problem found ({} checked)", render::count(report.rules, "rule"))
      : report.verdict.loss_gbps ? fmt::format("{}, the worst costs {}", render::count(serious, "finding"),
                                               gbps_text(*report.verdict.loss_gbps))
                                 : fmt::format("{}, of unknown cost", render::count(serious, "finding"));
  std::string out = fmt::format("{}  {}: {}\n", style.ink(ink, verdict), report.machine, why);
  std::size_t number = 0;
  for (const auto& finding : report.findings) {
    if (finding.level == Level::note) break;
    out += "\n" + block(finding, ++number, style);
  }
  if (notes > 0) {
    out += fmt::format("\n{}\n", style.ink(Ink::faint, all ? "notes: no path is known to be affected"
                                                           : "notes (--all prints them in full)"));
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
    // Rules that lack the same thing stand together.
    std::vector<std::pair<std::string, std::vector<std::string>>> by_why;
    for (const auto& one : report.not_looked) {
      const auto found =
          std::find_if(by_why.begin(), by_why.end(), [&](const auto& group) { return group.first == one.why; });
      if (found == by_why.end()) {
        by_why.push_back({one.why, {one.rule}});
      } else {
        found->second.push_back(one.rule);
      }
    }
    out += fmt::format("\n{}\n", style.ink(Ink::faint, fmt::format("not looked at ({})",
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
  std::string out = "# HELP fairway_doctor_verdict 0 ok, 1 degraded, 2 broken\n# TYPE fairway_doctor_verdict gauge\n";
  out += fmt::format("fairway_doctor_verdict {}\n", exit_code(report.verdict));
  out += "# HELP fairway_doctor_findings Findings by level\n# TYPE fairway_doctor_findings gauge\n";
  for (const auto level : {Level::broken, Level::warning, Level::note}) {
    out += fmt::format(
        "fairway_doctor_findings{{level=\"{}\"}} {}\n", to_string(level),
        std::count_if(report.findings.begin(), report.findings.end(), [&](const auto& f) { return f.level == level; }));
  }
  out +=
      "# HELP fairway_doctor_rules_not_looked Rules that lacked what they need\n# TYPE fairway_doctor_rules_not_looked "
      "gauge\n";
  out += fmt::format("fairway_doctor_rules_not_looked {}\n", report.not_looked.size());
  if (report.findings.empty()) return out;
  // Several findings of one rule are told apart by a number.
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
      losses += fmt::format("fairway_doctor_loss_bits_per_second{{{}}} {:.0f}\n", labels, *finding.loss_gbps * 1e9);
  }
  if (!losses.empty())
    out +=
        "# HELP fairway_doctor_loss_bits_per_second What a finding costs\n# TYPE fairway_doctor_loss_bits_per_second "
        "gauge\n" +
        losses;
  return out;
}

}  // namespace fairway::doctor
