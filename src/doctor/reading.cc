#include "doctor/reading.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "doctor/rule.h"
#include "predict/model.h"
#include "render/phrases.h"
#include "topology/pci_ids.h"

namespace fairway::doctor {

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

}  // namespace

namespace {

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
        std::count_if(report.read.begin(), report.read.end(), [state](const auto& one) { return one.state == state; }));
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
