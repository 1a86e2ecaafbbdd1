#include <fmt/format.h>

#include "doctor/outputs.h"
#include "topology/command_text.h"
#include "topology/text.h"

// GPUs that tools cannot read: cells such as "ERR!" within a good output, and sentences in its place.
namespace fairway::doctor {

namespace text = topology::text;

void ErrorCells::see(const std::string& whose, std::string_view field, std::string_view value,
                     const std::string& where) {
  if (whose.empty() || !topology::is_error_cell(value)) return;
  auto& of = by_gpu_[whose];
  const auto name = text::lower(field);
  // A fan or a power sensor may be unreadable alone; a name or the errors of the memory are not.
  if (topology::says_lost(value) || name.find("name") != std::string::npos || name.find("ecc") != std::string::npos ||
      ++of.cells >= 3)
    of.lost = true;
  if (of.words.empty()) {
    of.words = fmt::format("{}: {}", text::quote(text::trim(field), 40), text::quote(text::trim(value), 40));
    of.where = where;
  }
}

void ErrorCells::tell(Facts& facts) const {
  for (const auto& [whose, of] : by_gpu_) facts.set((of.lost ? "lost." : "unread.") + whose, of.words, of.where);
}

// "Unable to determine the device handle for GPU 0000:43:00.0: GPU is lost.  Reboot the system to recover this GPU"
std::string read_failure(const topology::Output& output, const Gathered& to) {
  std::size_t number = 0;
  for (const auto line : text::lines(output.text)) {
    ++number;
    if (line.find("Error 802") != line.npos)
      to.facts.set("fabric_manager.cuda_waits", text::quote(text::trim(line), 200), output.at(number));
    if (!topology::says_lost(line)) continue;
    std::string whose = "a GPU";
    for (auto word : text::words(line)) {
      if (word.ends_with(':') || word.ends_with(',')) word.remove_suffix(1);
      const auto ordinal = word.starts_with("GPU") ? text::to_u32(word.substr(3)) : std::nullopt;
      if (ordinal) whose = fmt::format("GPU{}", *ordinal);
      if (word.starts_with("GPU")) word.remove_prefix(3);
      if (const auto bus = topology::BusId::parse(word)) {
        whose = bus->to_string();
        break;
      }
    }
    to.facts.set("lost." + whose, text::quote(text::trim(line), 160), output.at(number));
  }
  return {};
}

}  // namespace fairway::doctor
