#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "command.h"
#include "doctor/gather.h"
#include "doctor/measurement.h"
#include "doctor/rule.h"
#include "runs.h"

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
  bool strict = false;
  bool measure = false;
  bool confirm = false;
  OtherHost with;
};

// The job's settings: NCCL_* of this process's environment.
std::map<std::string, std::string> job_environment();

// Examines a case without measurements or baseline.
doctor::Report examine_alone(const doctor::Case& found);

// --measure: short runs, each a child process; to another host if `with` names one. `left_out` gets a sentence about
// each one that could not run.
std::vector<doctor::Measurement> measure_here(const doctor::Case& found, const OtherHost& with,
                                              std::vector<std::string>& left_out);
// --confirm: pairs of runs, in turn, that differ in one setting. Changes the findings that they confirm or refute;
// `told` gets a sentence about each one that they could not decide.
void confirm(const doctor::Case& found, const OtherHost& with, doctor::Report& report, std::vector<std::string>& told);

void add_doctor_fleet(Tool& tool, CLI::App& parent);
void add_doctor_rules(Tool& tool, CLI::App& parent);

}  // namespace fairway::tool
