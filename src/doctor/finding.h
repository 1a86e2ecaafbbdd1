#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/fact.h"
#include "topology/output.h"

// The doctor's report: findings, rules that lacked their input, and one verdict.
namespace fairway::doctor {

enum class Level : std::uint8_t {
  broken,   // something cannot be used
  warning,  // it costs rate, or will
  note,     // worth knowing; it slows no known path, or its cost is unknown
};
std::string_view to_string(Level level);

enum class Confidence : std::uint8_t {
  suspected,  // concluded from configuration and state
  measured,   // a measurement agrees
  confirmed,  // two runs that differ in this setting alone differ in rate
};
std::string_view to_string(Confidence confidence);

struct Evidence {
  std::string text;   // "LnkSta: x8, and x16 is possible"
  std::string where;  // the file and line, or the call, it was read from
  friend bool operator==(const Evidence&, const Evidence&) = default;
};

// The ratio of two rates with its 95 % confidence interval.
struct Ratio {
  double low = 0;
  double middle = 0;
  double high = 0;
};

struct Finding {
  std::string rule;   // "pcie-width": stable, for scripts
  std::string title;  // "GPU3's PCIe link runs x8 of x16"
  Level level = Level::warning;
  Confidence confidence = Confidence::suspected;
  std::vector<topology::NodeRef> devices;  // what it is about
  std::string path;                        // the slower paths, "GPU3 - NIC3 and 2 others"; empty: none in particular
  std::vector<Evidence> evidence;
  std::optional<double> loss_gbps;    // Gb/s that all affected paths lose together; none: unknown
  std::size_t paths = 1;              // how many paths loss_gbps sums
  std::optional<double> now_gbps;     // of one path as it is; of several the mean
  std::optional<double> mended_gbps;  // the same without the fault
  std::optional<Ratio> ratio;         // of a confirming pair of runs
  std::vector<std::string> fix;       // commands or settings, to copy
  std::string advice;                 // one sentence, where the fix needs one
  // Findings with the same cause are merged into that of the first rule.
  std::string cause;
};

struct NotLooked {
  std::string rule;
  std::string why;
};

struct Verdict {
  Level worst = Level::note;
  bool ok = true;                   // no finding of warning or worse
  bool whole = true;                // all that was given was read, and there was something to check
  std::optional<double> loss_gbps;  // of the costliest finding: causes overlap, so losses do not add up
};

// How much of one subject - ports, PCIe, the IOMMU - was checked.
struct Coverage {
  std::string subject;
  std::size_t looked = 0;
  std::size_t lacking = 0;  // rules that lack their input altogether
  bool by_machine = true;   // its input is the machine's; else a measurement's or a baseline's
};

struct Report {
  std::string machine;
  Verdict verdict;
  std::vector<topology::TextRead> read;  // what the report rests on
  std::vector<std::string> unseen;       // why the machine itself could not be looked at
  std::vector<Coverage> coverage;        // of subjects that this machine has
  std::vector<Finding> findings;         // broken first, then by loss
  std::vector<NotLooked> not_looked;
  std::size_t rules = 0;   // rules that checked something
  std::size_t absent = 0;  // rules with nothing to check on this machine
  bool strict = false;     // a subject of which nothing was checked makes it unclear
};

// 0 ok, 1 degraded, 2 broken, 4 unclear: nothing wrong was found, and not all that was given was read.
int exit_code(const Verdict& verdict);
std::string_view word(const Verdict& verdict);
// The subjects of which nothing was checked although the machine has them.
std::vector<std::string> unchecked_subjects(const Report& report);

}  // namespace fairway::doctor
