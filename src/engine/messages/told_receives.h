#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/description.h"
#include "engine/messages/record_body.h"

namespace fairway::engine {

inline constexpr std::size_t kMostTold = 8;  // receives that a sender knows ahead; it keeps no more

// The sender's side of receives that are told ahead: those of the peer that this side knows, and the numbers of this
// side's sends. The peer tells of one receive of a tag, the first that waits, and of the number of sends that it had
// taken before. So both sides know which send it is for: the first of that tag with a higher number. A sender that has
// made that send already ignores what it is told, and so it may at any time. Owner: the peer's worker.
class ToldReceives {
 public:
  struct Told {
    std::uint64_t tag = 0;
    TransferId receiver;
    std::uint32_t number = 0;  // of the record
    Description window;
  };

  std::uint32_t number_send(std::uint64_t tag);  // the next send has that tag: its number
  // Of several of that tag the one that was told last, whatever came first: those before it have ended. Null: none.
  [[nodiscard]] Told* find(std::uint64_t tag);
  void forget(std::uint64_t tag);  // a send of that tag was made

  // ---- records ----
  // Each returns what is wrong with the record, null if nothing is. `number`: of the record.
  const char* posted(std::uint32_t number, const record::ReceivePosted& posted);
  const char* withdrawn(std::uint32_t number, bool to_come);  // to_come: the record that it withdraws

 private:
  static constexpr std::uint32_t kRecent = 16;  // sends whose tags are known

  std::uint32_t sequence_ = 0;                        // of the next send
  std::array<std::uint64_t, kRecent> recent_tags_{};  // of this side's sends, by their number
  std::vector<Told> told_;                            // kMostTold at most
  std::vector<std::uint32_t> withdrawn_;              // numbers of records to come; bounded by the window of records
};

}  // namespace fairway::engine
