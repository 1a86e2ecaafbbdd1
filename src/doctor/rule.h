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

// A rule is a pure function of what is known: it adds findings, or says why it could not look.
namespace fairway::doctor {

// Everything a rule may look at. Borrows for one call.
struct Look {
  const predict::Model& model;
  const Facts& facts;
  std::span<const Measurement> measured;
  const Facts* before = nullptr;  // what it was, where a baseline is at hand
  const topology::Machine* before_machine = nullptr;
  [[nodiscard]] const topology::Machine& machine() const { return model.machine(); }
};

// What one rule has to say.
class Saying {
 public:
  Finding& add(Finding finding) { return findings.emplace_back(std::move(finding)); }
  // It lacks what it needs, for some or all of what it is about. Said once, by the first.
  void lacks(std::string why) {
    if (missing.empty()) missing = std::move(why);
  }
  // This machine has nothing that the rule is about.
  void absent() { nothing_there = true; }

  std::vector<Finding> findings;
  std::string missing;
  bool nothing_there = false;
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
  measured
};
std::string_view to_string(Family family);

struct Rule {
  std::string_view id;
  Family family;
  std::string_view title;   // what is wrong where it finds something
  std::string_view effect;  // what it does, with figures
  std::string_view looks;   // at what, and from when on it says something
  std::string_view mend;    // what to change
  std::string_view source;  // where the figures were reported; "est." where they are computed
  void (*check)(const Look&, Saying&);
};

// Of each family, then all; the order is that in which causes are taken.
std::span<const Rule> placement_rules();
std::span<const Rule> pcie_rules();
std::span<const Rule> iommu_rules();
std::span<const Rule> vm_rules();
std::span<const Rule> roce_rules();
std::span<const Rule> bond_rules();
std::span<const Rule> port_rules();
std::span<const Rule> registration_rules();
std::span<const Rule> cpu_rules();
std::span<const Rule> gpu_rules();
std::span<const Rule> file_rules();
std::span<const Rule> measured_rules();
std::vector<const Rule*> all_rules();
const Rule* find_rule(std::string_view id);

// Every rule on what is known: causes merged, findings sorted, the verdict drawn.
Report examine(const Look& look);

// Sorts the findings and draws the verdict anew, after some were changed.
void conclude(Report& report);

// docs/doctor-rules.md, whole.
std::string rules_page();

}  // namespace fairway::doctor
