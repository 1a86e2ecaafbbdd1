#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "topology/machine.h"
#include "topology/output.h"

// What several outputs say of one field of the machine, and where they differ: hosts, or times, in one paste.
namespace fairway::topology {

// Of two values the worse one counts where one can be told, else that of the later output.
class Contradictions {
 public:
  // `alone`: what one output says by itself. Outputs may come in any order; `order` is that of the texts, and `place`
  // "report.txt:12".
  void add(const Machine& alone, std::size_t order, const std::string& place);
  // Sets the values that count, notes each, and says what differs.
  std::vector<TextRead> settle(Machine& machine) const;

 private:
  using Value = std::variant<bool, std::uint32_t, std::uint64_t, double, std::string>;
  struct Slot {
    Value value;
    Source source = Source::none;
    std::size_t order = 0;
    std::string place;
    std::string says;  // how the outputs differ; empty: they do not
  };
  template <bool Settle, class M>
  friend class FieldWalk;
  void take(const std::string& key, Value value, Source source, std::size_t order, const std::string& place);

  std::map<std::string, Slot> slots_;
  std::vector<std::string> differing_;  // keys, in the order in which they were seen to differ
};

// Whether `b` is worse than `a` for a field, or a fact, of this name; none: that cannot be told.
std::optional<bool> is_worse(std::string_view field, std::string_view a, std::string_view b);

// How an output was cut off; empty: it was not, as far as it shows.
std::string cut_off(const Output& output);
// Whether a word is the begin of one of these, and none of them.
bool is_cut_word(std::string_view word, std::initializer_list<std::string_view> whole);

}  // namespace fairway::topology
