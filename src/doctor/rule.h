#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/facts.h"
#include "doctor/finding.h"
#include "doctor/measurement.h"
#include "predict/model.h"
#include "topology/machine.h"

// A rule is a pure function of its input: it adds findings, or says which input it lacks.
namespace fairway::doctor {

// What is known of one machine. Borrows for one call.
struct RuleInput {
  const predict::Model& model;
  const Facts& facts;
  std::span<const Measurement> measured;
  // The baseline's, where there is one.
  const Facts* before = nullptr;
  const topology::Machine* before_machine = nullptr;
  [[nodiscard]] const topology::Machine& machine() const { return model.machine(); }
};

// What one rule found, or why it could not check.
class RuleResult {
 public:
  Finding& add(Finding finding = {}) { return findings.emplace_back(std::move(finding)); }
  // Input is missing for a device or for all of them. Only the first reason is kept.
  void lacks(std::string why) {
    if (missing.empty()) missing = std::move(why);
  }
  // This machine has nothing that the rule checks.
  void not_applicable() { is_not_applicable = true; }

  std::vector<Finding> findings;
  std::string missing;
  bool is_not_applicable = false;
};

enum class Family : std::uint8_t {
  placement,
  pcie,
  iommu,
  vm,
  roce,
  bond,
  port,
  registration,
  cpu,
  gpu,
  files,
  measured,
  settings,
  logs,
  nvlink,
  nic
};
std::string_view to_string(Family family);

struct Rule {
  std::string_view id;
  Family family;
  std::string_view title;   // what is wrong where it finds something
  std::string_view effect;  // what it costs, with figures
  std::string_view checks;  // what it checks, and its threshold
  std::string_view fix;     // what to change
  std::string_view source;  // where the figures were reported; "est." where they are computed
  void (*check)(const RuleInput&, RuleResult&);
};

// The rules of each family, and of all: of findings with one cause the rule that stands first here keeps its own.
std::span<const Rule> placement_rules();
std::span<const Rule> pcie_rules();
std::span<const Rule> iommu_rules();
std::span<const Rule> vm_rules();
std::span<const Rule> roce_rules();
std::span<const Rule> bond_rules();
std::span<const Rule> port_rules();
std::span<const Rule> wire_rules();
std::span<const Rule> way_rules();
std::span<const Rule> registration_rules();
std::span<const Rule> cpu_rules();
std::span<const Rule> lost_rules();
std::span<const Rule> gpu_rules();
std::span<const Rule> file_rules();
std::span<const Rule> measured_rules();
std::span<const Rule> settings_rules();
std::span<const Rule> logs_rules();
std::span<const Rule> nvlink_rules();
std::span<const Rule> nic_rules();
std::vector<const Rule*> all_rules();
const Rule* find_rule(std::string_view id);

// Runs every rule, merges findings with one cause, sorts them and sets the verdict.
Report examine(const RuleInput& input);

// Sorts the findings and sets the verdict again, after some were changed.
void conclude(Report& report);

// Adds `--from FILE` to the fixes that ask Fairway about the machine: this report is of a recording.
void name_recording(Report& report, const std::string& from);

// docs/doctor-rules.md, whole.
std::string rules_page();

}  // namespace fairway::doctor
