#include "net/meddlers.h"

#include <algorithm>

namespace fairway::net {
namespace {

Meddler::Verdict commit(Deed deed, std::uint8_t mask, std::size_t at, Meddler::Piece& piece) {
  switch (deed) {
    case Deed::flip: piece.bytes[at] ^= std::byte{mask}; return Meddler::Verdict::pass;
    case Deed::stall: return Meddler::Verdict::stall;
    case Deed::cut: break;
  }
  piece.passed = at;
  return Meddler::Verdict::cut;
}

}  // namespace

void AtByte::arm(const Aim& aim) {
  const std::lock_guard lock(mutex_);
  aim_ = aim;
  armed_ = true;
  done_ = false;
}

Meddler::Verdict AtByte::meddle(Piece& piece) {
  const std::lock_guard lock(mutex_);
  if (!armed_ || piece.way.is_control != aim_.control || piece.way.to_listener != aim_.to_listener)
    return Verdict::pass;
  if (aim_.bytes >= piece.bytes.size()) {
    aim_.bytes -= piece.bytes.size();
    return Verdict::pass;
  }
  armed_ = false;
  done_ = true;
  return commit(aim_.deed, aim_.mask, static_cast<std::size_t>(aim_.bytes), piece);
}

void InFrame::arm(const FrameAim& aim) {
  const std::lock_guard lock(mutex_);
  aim_ = aim;
  armed_ = true;
  done_ = false;
}

void InFrame::learn(Stream& stream) {
  stream.head_bytes = 0;
  const auto header = transport::tcp::decode(stream.head);
  if (!header) return;  // cannot be: these are the bytes before any deed
  stream.type = header->type;
  stream.total = stream.left = header->payload_bytes();
}

Meddler::Verdict InFrame::meddle(Piece& piece) {
  namespace tcp = transport::tcp;
  const std::lock_guard lock(mutex_);
  if (piece.way.is_control) return Verdict::pass;
  Stream& stream = streams_[{piece.way.connection, piece.way.to_listener}];
  if (piece.at == 0) stream.skip = piece.way.to_listener ? tcp::kHelloBytes : tcp::kWelcomeBytes;
  Verdict verdict = Verdict::pass;
  const auto matches = [&](std::uint64_t from, std::uint64_t size) {
    return armed_ && stream.type == aim_.type && stream.total >= aim_.min_payload && aim_.byte >= from &&
           aim_.byte < from + size;
  };
  const auto act = [&](std::size_t at) {
    armed_ = false;
    done_ = true;
    verdict = commit(aim_.deed, aim_.mask, at, piece);
  };
  for (std::size_t at = 0; at < piece.bytes.size() && verdict != Verdict::cut;) {
    const std::uint64_t rest = piece.bytes.size() - at;
    if (stream.skip > 0) {
      const std::uint64_t size = std::min(stream.skip, rest);
      stream.skip -= size;
      at += size;
    } else if (stream.left > 0) {
      const std::uint64_t from = tcp::kHeaderBytes + stream.total - stream.left;
      const std::uint64_t size = std::min(stream.left, rest);
      if (matches(from, size)) act(at + static_cast<std::size_t>(aim_.byte - from));
      stream.left -= size;
      at += size;
    } else if (stream.head_bytes == 0 && piece.bytes[at] == tcp::kPadding) {
      ++at;
    } else {
      const std::uint64_t before = stream.head_bytes;
      const std::uint64_t size = std::min(tcp::kHeaderBytes - before, rest);
      std::copy_n(piece.bytes.begin() + static_cast<std::ptrdiff_t>(at), size,
                  stream.head.begin() + static_cast<std::ptrdiff_t>(before));
      stream.head_bytes += size;
      at += size;
      if (stream.head_bytes < tcp::kHeaderBytes) break;
      learn(stream);
      // Only a header that came as one piece can still be changed as a whole; another one will.
      if (before == 0 && matches(0, tcp::kHeaderBytes))
        act(at - tcp::kHeaderBytes + static_cast<std::size_t>(aim_.byte));
    }
  }
  return verdict;
}

}  // namespace fairway::net
