#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/status.h"

#include "doctor/finding.h"
#include "doctor/gather.h"
#include "render/phrases.h"
#include "topology/machine.h"

// A report for people and for programs. Pure functions.
namespace fairway::doctor {

// The verdict first, then findings, then what was not checked and why.
std::string text_of(const Report& report, const render::TextStyle& style, bool all);
// One line: "degraded: 3 findings, the costliest costs 288 Gb/s over 4 GPUs: GPU4-7 cross ...".
std::string line_of(const Report& report);
// docs/schemas/fairway-doctor.json; unknown is null.
Result<std::string> json_of(const topology::Machine& machine, const Report& report);
// The same object where there is no report: the verdict "failed", exit code 3, and why.
Result<std::string> json_of_failure(const std::string& machine, const std::string& why);
// One self-contained page: verdict, picture with the faults in colour, findings.
std::string html_of(const topology::Machine& machine, const Report& report);
// For node-exporter's textfile collector.
std::string prom_of(const Report& report);

// "195 Gb/s", "1.2 Gb/s".
std::string gbps_text(double gbps);
// What a finding costs: "288 Gb/s over 4 GPUs, 72 Gb/s each: 123 Gb/s now, 195 Gb/s without it". Empty for a note of
// unknown cost.
std::string cost_text(const Finding& finding);

// ---- what a report rests on ----

// Tells in the report what was read of the case and what of the machine could not be seen, and sets the verdict anew.
void tell_reading(const Case& found, Report& report);
// For gates: a report in which a whole subject was not checked is unclear too.
void be_strict(Report& report);

// "3 texts not understood, 1 failed"; empty: all was read.
std::string unread_text(const Report& report);
// "7 of 41 rules checked".
std::string rules_text(const Report& report);

// ---- the parts of the doctor's pages ----

// A whole document; `picture` is an SVG or empty.
std::string page_of(const std::string& title, const std::string& picture, const std::string& body);
std::string findings_of(const Report& report);

}  // namespace fairway::doctor
