#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "command.h"
#include "doctor/gather.h"
#include "doctor/measurement.h"
#include "doctor/rule.h"

// What the files of `fairway doctor` share.
namespace fairway::tool {

struct DoctorOptions {
  std::string from;
  std::vector<std::string> measured;
  std::string nic;
  bool loop = false;
  std::string baseline;
  std::string save;
  bool json = false;
  std::string html;
  std::string prom;
  bool quiet = false;
  bool all = false;
  bool measure = false;
  bool confirm = false;
  std::string with;
};

// What this process was told of its job: NCCL_* of the environment.
std::map<std::string, std::string> job_environment();

// A case examined with nothing but itself.
doctor::Report examine_alone(const doctor::Case& found);

// --measure: the smallest runs that decide, each a child process of this program; with another host where one is named.
// What could not be measured goes to `left_out`, as sentences.
std::vector<doctor::Measurement> measure_here(const doctor::Case& found, const std::string& with,
                                              std::vector<std::string>& left_out);
// --confirm: pairs of runs in turn that differ in one thing. Findings that they prove or refute are changed; what they
// could not decide goes to `told`.
void confirm(const doctor::Case& found, const std::string& with, doctor::Report& report,
             std::vector<std::string>& told);

void add_doctor_fleet(Tool& tool, CLI::App& parent);
void add_doctor_rules(Tool& tool, CLI::App& parent);

}  // namespace fairway::tool
