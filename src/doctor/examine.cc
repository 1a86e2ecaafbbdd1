#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "doctor/cost.h"
#include "doctor/nccl_settings.h"
#include "doctor/report.h"
#include "doctor/rule.h"
#include "predict/model.h"
#include "render/phrases.h"
#include "topology/pci.h"

namespace fairway::doctor {

std::string_view to_string(Level level) {
  switch (level) {
    case Level::broken: return "broken";
    case Level::warning: return "warning";
    case Level::note: break;
  }
  return "note";
}

std::string_view to_string(Confidence confidence) {
  switch (confidence) {
    case Confidence::confirmed: return "confirmed";
    case Confidence::measured: return "measured";
    case Confidence::suspected: break;
  }
  return "suspected";
}

std::string_view to_string(Family family) {
  switch (family) {
    case Family::placement: return "Placement";
    case Family::pcie: return "PCIe";
    case Family::iommu: return "IOMMU and ACS";
    case Family::vm: return "Virtual machines and ordering";
    case Family::roce: return "RDMA over Ethernet";
    case Family::bond: return "Bonds";
    case Family::port: return "Ports";
    case Family::registration: return "Registration";
    case Family::cpu: return "CPUs and host memory";
    case Family::gpu: return "GPUs";
    case Family::files: return "Files and baselines";
    case Family::measured: return "Measured curves";
    case Family::settings: return "Settings of jobs";
    case Family::logs: return "Logs";
    case Family::nvlink: return "NVLink";
    case Family::nic: return "NICs";
  }
  return "";
}

int exit_code(const Verdict& verdict) {
  if (verdict.ok) return verdict.whole ? 0 : 4;
  return verdict.worst == Level::broken ? 2 : 1;
}

std::string_view word(const Verdict& verdict) {
  if (verdict.ok) return verdict.whole ? "ok" : "unclear";
  return verdict.worst == Level::broken ? "broken" : "degraded";
}

std::vector<const Rule*> all_rules() {
  std::vector<const Rule*> out;
  // Causes before their effects: the port that is down before what follows from it.
  for (const auto family :
       {port_rules(), wire_rules(), nic_rules(), bond_rules(), pcie_rules(), iommu_rules(), registration_rules(),
        vm_rules(), placement_rules(), roce_rules(), settings_rules(), nvlink_rules(), lost_rules(), gpu_rules(),
        logs_rules(), cpu_rules(), file_rules(), way_rules(), measured_rules()}) {
    for (const auto& rule : family) out.push_back(&rule);
  }
  return out;
}

const Rule* find_rule(std::string_view id) {
  for (const auto* rule : all_rules()) {
    if (rule->id == id) return rule;
  }
  return nullptr;
}

namespace {

constexpr std::size_t kMaxOfOneRule = 64;

// Families whose rules check rails, and those of them that check what GPUs do over rails.
bool is_about_rails(Family family, bool has_gpus) {
  if (family == Family::port || family == Family::nic || family == Family::roce || family == Family::settings)
    return true;
  return has_gpus && (family == Family::placement || family == Family::registration);
}

// Of findings with one cause the first stays and takes over the others' evidence.
void merge(std::vector<Finding>& findings) {
  std::map<std::string, std::size_t> first;
  std::vector<Finding> kept;
  for (auto& finding : findings) {
    const auto found = finding.cause.empty() ? first.end() : first.find(finding.cause);
    if (found == first.end()) {
      if (!finding.cause.empty()) first[finding.cause] = kept.size();
      kept.push_back(std::move(finding));
      continue;
    }
    auto& stays = kept[found->second];
    // A note does not hide what costs something.
    if (stays.level == Level::note && finding.level != Level::note) std::swap(stays, finding);
    for (auto& evidence : finding.evidence) {
      if (std::ranges::find(stays.evidence, evidence) == stays.evidence.end())
        stays.evidence.push_back(std::move(evidence));
    }
    for (auto& fix : finding.fix) {
      if (std::ranges::find(stays.fix, fix) == stays.fix.end()) stays.fix.push_back(std::move(fix));
    }
    if (finding.level < stays.level) stays.level = finding.level;
    if (!stays.loss_gbps) {
      stays.loss_gbps = finding.loss_gbps;
      stays.paths = finding.paths;
    }
    if (!stays.now_gbps) stays.now_gbps = finding.now_gbps;
    if (!stays.mended_gbps) stays.mended_gbps = finding.mended_gbps;
    if (finding.confidence > stays.confidence) stays.confidence = finding.confidence;
  }
  findings = std::move(kept);
}

// A slow row whose devices another finding names needs none of its own.
void drop_explained(std::vector<Finding>& findings) {
  const auto explained = [&](const Finding& slow) {
    return std::ranges::any_of(findings, [&](const Finding& other) {
      if (other.rule == slow.rule || other.level == Level::note) return false;
      return std::ranges::any_of(other.devices, [&](const auto& device) {
        return std::ranges::find(slow.devices, device) != slow.devices.end();
      });
    });
  };
  std::vector<Finding> kept;
  for (const auto& finding : findings) {
    const bool general = finding.rule == "below-expectation" || finding.rule == "unequal-pairs";
    if (!general || !explained(finding)) kept.push_back(finding);
  }
  findings = std::move(kept);
}

}  // namespace

void conclude(Report& report) {
  report.verdict = {};
  report.verdict.whole =
      report.unseen.empty() &&
      std::ranges::all_of(report.read, [](const auto& one) { return one.state == topology::ReadState::read; }) &&
      (!report.strict || unchecked_subjects(report).empty());
  std::ranges::stable_sort(report.findings, [](const Finding& a, const Finding& b) {
    if (a.level != b.level) return a.level < b.level;
    return a.loss_gbps.value_or(0) > b.loss_gbps.value_or(0);
  });
  for (const auto& finding : report.findings) {
    if (finding.level == Level::note) continue;
    report.verdict.ok = false;
    report.verdict.worst = std::min(report.verdict.worst, finding.level);
    if (finding.loss_gbps && *finding.loss_gbps > report.verdict.loss_gbps.value_or(0)) {
      report.verdict.loss_gbps = finding.loss_gbps;
    }
  }
}

Report examine(const RuleInput& input) {
  Report report;
  const auto subject = [&report](const Rule& rule) -> Coverage& {
    const auto name = to_string(rule.family);
    const auto found = std::ranges::find(report.coverage, name, &Coverage::subject);
    if (found != report.coverage.end()) return *found;
    const bool by_machine = rule.family != Family::files && rule.family != Family::measured;
    return report.coverage.emplace_back(Coverage{std::string(name), 0, 0, by_machine});
  };
  report.machine = input.machine().name;
  std::string hidden;
  if (const auto by_ids = unrecorded_rails(input.machine()); !by_ids.empty() && rails(input.machine()).empty())
    hidden = fmt::format("the RDMA devices of {} are not recorded (ls -l /sys/class/infiniband, ibv_devinfo -v)",
                         render::count(by_ids.size(), "NIC"));
  for (const auto* rule : all_rules()) {
    RuleResult result;
    rule->check(input, result);
    if (result.is_not_applicable && result.findings.empty()) {
      // A NIC that is there and not recorded is not the same as none.
      if (!hidden.empty() && is_about_rails(rule->family, !input.machine().gpus.empty())) {
        report.not_looked.push_back({std::string(rule->id), hidden});
        ++subject(*rule).lacking;
      } else {
        ++report.absent;
      }
      continue;
    }
    if (result.findings.empty() && !result.missing.empty()) {
      report.not_looked.push_back({std::string(rule->id), result.missing});
      ++subject(*rule).lacking;
      continue;
    }
    ++report.rules;
    ++subject(*rule).looked;
    if (!result.missing.empty()) report.not_looked.push_back({std::string(rule->id), "partly: " + result.missing});
    if (result.findings.size() > kMaxOfOneRule) {
      report.not_looked.push_back(
          {std::string(rule->id), fmt::format("partly: {} findings more than the {} shown",
                                              result.findings.size() - kMaxOfOneRule, kMaxOfOneRule)});
      result.findings.resize(kMaxOfOneRule);
    }
    for (auto& finding : result.findings) {
      finding.rule = rule->id;
      report.findings.push_back(std::move(finding));
    }
  }
  merge(report.findings);
  drop_explained(report.findings);
  conclude(report);
  return report;
}

void name_recording(Report& report, const std::string& from) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+:,@%=";
  std::string word = from;
  if (from.find_first_not_of(kPlain) != from.npos) {  // for a shell
    word = "'";
    for (const char c : from) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
    word += "'";
  }
  for (auto& finding : report.findings) {
    for (auto& fix : finding.fix) {
      if (!fix.starts_with("fairway topo nics") && !fix.starts_with("fairway predict") &&
          !fix.starts_with("fairway topo export"))
        continue;
      const auto end = std::min(fix.find("    #"), fix.find(';'));
      fix.insert(std::min(end, fix.size()), " --from " + word);
    }
  }
}

std::string rules_page() {
  std::string out =
      "# What the doctor checks\n\n"
      "The rules of `fairway doctor` ([doctor.md](doctor.md)), by the names that findings carry. Figures are those of "
      "the machines in the sources; \"est.\" is computed. Written by `fairway doctor rules --markdown`; a test "
      "compares.\n";
  const auto rules = all_rules();
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const auto& rule = *rules[i];
    if (i == 0 || rules[i - 1]->family != rule.family) out += fmt::format("\n# {}\n", to_string(rule.family));
    out += fmt::format("\n## {}\n\n{}. **Costs:** {} ({})\n\n- **Checks:** {}\n- **Fix:** {}\n", rule.id, rule.title,
                       rule.effect, rule.source, rule.checks, rule.fix);
  }
  return out + nccl_settings_page();
}

namespace {

using topology::ReadState;

// Accelerators of makers that no table knows: they are there, and no rule looks at them.
std::string unknown_accelerators(const topology::Machine& machine) {
  std::size_t count = 0;
  std::set<std::string> names;
  for (const auto& device : machine.pci) {
    if (topology::base_class(device) != 0x12 || topology::is_gpu(device)) continue;
    ++count;
    if (device.device_name && names.size() < 3) names.insert(*device.device_name);
  }
  if (count == 0) return {};
  std::string out = render::count(count, "accelerator") + " that Fairway does not know";
  for (const auto& name : names) out += (name == *names.begin() ? ": " : ", ") + name;
  return out;
}

std::vector<std::string> unseen_of(const Case& found, const Report& report) {
  std::vector<std::string> out;
  const auto& machine = found.machine;
  const auto accelerators = unknown_accelerators(machine);
  if (!accelerators.empty()) out.push_back(accelerators);
  if (machine.gpus.empty() && found.facts.find("gpu.kernel_module") != nullptr)
    out.emplace_back("NVIDIA's driver is loaded and no GPU can be seen");
  if (const auto* lines = found.facts.find("kernel.unjudged"); lines != nullptr)
    out.push_back(fmt::format("the kernel's log has {}", lines->value));
  for (const auto& note : machine.notes) {
    if (note.kind == topology::NoteKind::left_out) out.push_back(note.subject + ": " + note.text);
  }
  if (const auto more = found.facts.left_out(); more > 0)
    out.push_back(fmt::format("facts: {} are left out, behind {} others", more, found.facts.all().size()));
  if (machine.gpus.empty() && machine.nics.empty() && accelerators.empty())
    out.emplace_back("no GPU and no NIC was seen");
  if (report.rules == 0) out.emplace_back("no rule could check anything");
  return out;
}

// "port 1 (sysfs)" of a value that a command printed: which output that is.
void name_sources(const Case& found, std::vector<Finding>& findings) {
  for (auto& finding : findings) {
    for (auto& evidence : finding.evidence) {
      const auto open = evidence.where.rfind(" (");
      if (open == std::string::npos || !evidence.where.ends_with(')')) continue;
      const auto said = found.said_by.find(evidence.where.substr(open + 2, evidence.where.size() - open - 3));
      if (said != found.said_by.end()) evidence.where.replace(open, std::string::npos, " (" + said->second + ")");
    }
  }
}

// Each of the other hosts is examined by itself; what is found says whose it is.
void tell_hosts(const Case& found, Report& report) {
  if (found.hosts.empty()) return;
  for (auto& finding : report.findings) finding.title = found.host + ": " + finding.title;
  for (const auto& host : found.hosts) {
    const predict::Model model(host.machine);
    auto own = examine({model, host.facts, host.measured, nullptr, nullptr});
    name_sources(host, own.findings);
    report.read.push_back({host.read.empty() ? std::string() : host.read.front().where, "host " + host.host,
                           ReadState::read, rules_text(own)});
    report.read.insert(report.read.end(), host.read.begin(), host.read.end());
    for (auto& why : unseen_of(host, own)) report.unseen.push_back(host.host + ": " + why);
    for (auto& finding : own.findings) {
      finding.title = host.host + ": " + finding.title;
      finding.devices.clear();  // they are of another machine
      report.findings.push_back(std::move(finding));
    }
  }
}

}  // namespace

void tell_reading(const Case& found, Report& report) {
  report.read = found.read;
  report.unseen = unseen_of(found, report);
  name_sources(found, report.findings);
  tell_hosts(found, report);
  conclude(report);
}

void be_strict(Report& report) {
  report.strict = true;
  conclude(report);
}

std::vector<std::string> unchecked_subjects(const Report& report) {
  std::vector<std::string> out;
  for (const auto& one : report.coverage) {
    if (one.by_machine && one.looked == 0 && one.lacking > 0) out.push_back(one.subject);
  }
  return out;
}

std::string unread_text(const Report& report) {
  std::string out;
  bool first = true;
  for (const auto state : {ReadState::contradicted, ReadState::cut, ReadState::not_understood, ReadState::failed,
                           ReadState::empty, ReadState::not_used}) {
    const auto count = static_cast<std::size_t>(
        std::ranges::count_if(report.read, [state](const auto& one) { return one.state == state; }));
    if (count == 0) continue;
    // Of contradictions and texts.
    if (state == ReadState::contradicted) {
      out += render::count(count, "contradiction");
      continue;
    }
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ",
                       first ? render::count(count, "text") : fmt::format("{}", count), to_string(state));
    first = false;
  }
  return out;
}

std::string rules_text(const Report& report) {
  // Rules that checked a part stand in both lists.
  std::size_t lacking = 0;
  for (const auto& one : report.coverage) lacking += one.lacking;
  return fmt::format("{} of {} checked", report.rules, render::count(report.rules + lacking, "rule"));
}

}  // namespace fairway::doctor
