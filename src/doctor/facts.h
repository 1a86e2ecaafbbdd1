#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What is known of a machine beyond its topology: kernel settings, capability registers, limits, GPU states. Each fact
// has a name, a value, and the line it was read from.
namespace fairway::doctor {

struct Seen {
  std::string value;
  std::string where;  // "/proc/cmdline", "lspci.txt:42", "NVML"
  friend bool operator==(const Seen&, const Seen&) = default;
};

// Facts by name. Names are words joined by dots: "kernel.cmdline", "pci.0000:1a:00.0.acs".
class Facts {
 public:
  // Within one text the first value of a fact wins. Of two texts that differ the worse one counts where one can be
  // told, else the later, and it is a dispute.
  void set(std::string name, std::string value, std::string where);
  // What is set from here on is another text's.
  void next_text() { ++text_; }
  // Why a fact, or all below a name ("pci.0000:1a:00.0"), could not be read.
  void miss(std::string name, std::string why);
  void forget(const std::string& name);
  // How many were left out, since there are more than any machine has.
  [[nodiscard]] std::size_t left_out() const { return left_out_; }

  [[nodiscard]] const Seen* find(const std::string& name) const;
  [[nodiscard]] std::optional<double> number(const std::string& name) const;  // decimal
  [[nodiscard]] std::optional<std::uint64_t> hex(const std::string& name) const;
  [[nodiscard]] std::string text(const std::string& name) const;  // empty where unknown
  // All facts below a name, each with the rest of its name: below "gpu.3" there are "xid" and "persistence".
  [[nodiscard]] std::vector<std::pair<std::string, const Seen*>> below(const std::string& name) const;
  // Why it is unknown: the reason for it or for a name above it; else that it is not in the input.
  [[nodiscard]] std::string why_not(const std::string& name) const;

  [[nodiscard]] const std::map<std::string, Seen>& all() const { return facts_; }
  [[nodiscard]] const std::map<std::string, std::string>& missed() const { return missed_; }
  // What texts say of one fact where they differ, by its name: "a.txt:3 says 8, b.txt:4 says 64: the worse counts".
  [[nodiscard]] const std::map<std::string, std::string>& disputes() const { return disputes_; }

 private:
  std::size_t text_ = 0;
  std::size_t left_out_ = 0;
  std::map<std::string, Seen> facts_;
  std::map<std::string, std::size_t> texts_;  // of the value that counts
  std::map<std::string, std::string> disputes_;
  std::map<std::string, std::string> missed_;
};

}  // namespace fairway::doctor
