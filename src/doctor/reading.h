#pragma once

#include "doctor/finding.h"
#include "doctor/gather.h"

// What a report rests on.
namespace fairway::doctor {

// Tells in the report what was read of the case and what of the machine could not be seen, and sets the verdict anew.
void tell_reading(const Case& found, Report& report);
// For gates: a report in which a whole subject was not checked is unclear too.
void be_strict(Report& report);

// "3 texts not understood, 1 failed"; empty: all was read.
std::string unread_text(const Report& report);
// "7 of 41 rules checked".
std::string rules_text(const Report& report);

}  // namespace fairway::doctor
