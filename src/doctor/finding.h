#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/ids.h"

// What the doctor says: findings, what it could not look at, and one verdict.
namespace fairway::doctor {

enum class Level : std::uint8_t {
  broken,   // something that is there cannot be used
  warning,  // it costs rate, or will
  note,     // worth knowing; no path of this machine pays for it, or nobody can say what it costs
};
std::string_view to_string(Level level);

enum class Confidence : std::uint8_t {
  suspected,  // concluded from what the machine says of itself
  measured,   // a measurement agrees
  confirmed,  // two runs that differ in this alone differ in rate
};
std::string_view to_string(Confidence confidence);

struct Evidence {
  std::string text;   // "LnkSta: x8, and x16 is possible"
  std::string where;  // the file and line, or the call, that said it
  friend bool operator==(const Evidence&, const Evidence&) = default;
};

// The ratio of two rates with the interval that holds it in 19 of 20 repetitions.
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
  std::string path;  // "GPU3 - NIC3 and 2 others": whose traffic pays; empty: nobody's in particular
  std::vector<Evidence> evidence;
  // Gb/s of the affected paths together; nothing where nobody can say.
  std::optional<double> loss_gbps;
  std::optional<double> now_gbps;     // of one path, as it is
  std::optional<double> mended_gbps;  // of the same path without the fault
  std::optional<Ratio> ratio;         // of a confirming pair of runs
  std::vector<std::string> fix;       // commands or settings, to copy
  std::string advice;                 // one sentence, where the fix needs one
  // Findings with one cause are one: of those that share a cause the first rule in the table stays.
  std::string cause;
};

struct NotLooked {
  std::string rule;
  std::string why;
};

struct Verdict {
  Level worst = Level::note;
  bool ok = true;                   // no finding of warning or worse
  std::optional<double> loss_gbps;  // of the dearest finding: causes overlap, so their losses do not add up
};

struct Report {
  std::string machine;
  Verdict verdict;
  std::vector<Finding> findings;  // broken first, then by loss
  std::vector<NotLooked> not_looked;
  std::size_t rules = 0;   // that looked
  std::size_t absent = 0;  // that this machine has nothing for
};

// 0 ok, 1 degraded, 2 broken.
int exit_code(const Verdict& verdict);
std::string_view word(const Verdict& verdict);

}  // namespace fairway::doctor
