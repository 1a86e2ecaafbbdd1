#pragma once

#include "collectives/gpu/device/call.h"
#include "collectives/gpu/device/slots.h"

// What a warp of a kernel of messages does: sends or receives its rows of one.
namespace fairway::collectives::gpu {

template <class H, class F>
class MessageWarp : SlotWarp<H, F> {
 public:
  FAIRWAY_IN_KERNELS MessageWarp(Channel<H>& channel, unsigned warp, const MessageCall& message)
      : SlotWarp<H, F>(channel, warp), message_(message) {}

  // False: it has failed.
  FAIRWAY_IN_KERNELS bool run(LineRound round) {
    const std::uint32_t rounds = lines_.rounds;
    if (message_.sends != 0)
      return send_in_rounds(*this, round, call_.digest, rounds, [&](std::uint32_t nth, LineRound to) {
        this->send_span(this->span(nth, call_.count), call_.input, [&](std::uint32_t first, const auto& rows) {
          this->store_at([&](unsigned k) { return place(message_.peer, to, first + k); }, to, rows);
        });
      });
    return receive_in_rounds(*this, round, call_.digest, rounds, [&](std::uint32_t nth, LineRound from) {
      return this->take_span(this->span(nth, call_.count), call_.output, [&](std::uint32_t first, auto& rows) {
        return this->load_at([&](unsigned k) { return place(call_.rank, from, first + k); }, message_.peer, from, rows);
      });
    });
  }

  // ---- the Machine of send_in_rounds() and receive_in_rounds() ----
  FAIRWAY_IN_KERNELS void in_round(std::uint32_t nth) { channel_.in_round(nth); }
  FAIRWAY_IN_KERNELS std::uint64_t heard() const { return H::row_first(H::load(word(call_.rank))); }
  FAIRWAY_IN_KERNELS void tell(std::uint64_t said) const {
    if (H::row_lane(0) == 0) H::store(word(message_.peer), said);
  }
  FAIRWAY_IN_KERNELS bool waits_no_longer() const {
    return !H::all_of_row(!channel_.gives_up(message_.peer, Waits::lines));
  }
  FAIRWAY_IN_KERNELS bool differs() const {
    channel_.mismatch(message_.peer);
    return false;
  }

 private:
  using Base = SlotWarp<H, F>;
  using Base::call_, Base::channel_, Base::lines_, Base::nth_;

  FAIRWAY_IN_KERNELS std::uint64_t* word(unsigned sender) const {
    return reinterpret_cast<std::uint64_t*>(call_.scratch[sender] + message_.heard_at) + nth_;
  }
  FAIRWAY_IN_KERNELS unsigned char* place(unsigned receiver, LineRound round, std::uint32_t row) const {
    return call_.scratch[receiver] + lines_.at + line_place_of(round) * std::uint64_t{lines_.place_bytes} +
           (nth_ * lines_.rows + row) * std::uint64_t{kRowMemory};
  }
  const MessageCall& message_;
};

}  // namespace fairway::collectives::gpu
