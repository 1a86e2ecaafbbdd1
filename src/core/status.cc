#include "fairway/status.h"

#include <array>
#include <stdexcept>

namespace fairway {

struct Status::Detail {
  ErrorCode code;
  Effect effect = Effect::not_applied;
  std::string message;
  std::string peer;
  std::string link;
};

namespace {
const std::string kEmpty;  // returned by the accessors of an ok status
}

std::string_view to_string(ErrorCode code) {
  static constexpr std::array<std::string_view, 26> kNames{
      "ok",           "invalid_argument",      "not_found",        "already_exists",     "access_denied",
      "out_of_range", "unsupported",           "queue_full",       "resource_exhausted", "unreachable",
      "peer_dead",    "stale_incarnation",     "link_failed",      "cancelled",          "deadline_exceeded",
      "timed_out",    "dependency_failed",     "truncated",        "checksum_mismatch",  "not_fenced",
      "revoked",      "authentication_failed", "version_mismatch", "protocol_error",     "closed",
      "system_error"};
  const auto index = static_cast<std::size_t>(code);
  return index < kNames.size() ? kNames[index] : "unknown_error";
}

std::string_view to_string(Effect effect) {
  switch (effect) {
    case Effect::not_applied: return "not_applied";
    case Effect::partial: return "partial";
    case Effect::unknown: return "unknown";
  }
  return "unknown";
}

Status::Status(ErrorCode code, std::string message) {
  if (code == ErrorCode::ok) return;
  auto detail = std::make_shared<Detail>();
  detail->code = code;
  detail->message = std::move(message);
  detail_ = std::move(detail);
}

ErrorCode Status::code() const {
  return detail_ ? detail_->code : ErrorCode::ok;
}
const std::string& Status::message() const {
  return detail_ ? detail_->message : kEmpty;
}
const std::string& Status::peer() const {
  return detail_ ? detail_->peer : kEmpty;
}
const std::string& Status::link() const {
  return detail_ ? detail_->link : kEmpty;
}
Effect Status::effect() const {
  return detail_ ? detail_->effect : Effect::not_applied;
}

Status Status::with_peer(std::string peer) const {
  if (is_ok()) return *this;
  auto detail = std::make_shared<Detail>(*detail_);
  detail->peer = std::move(peer);
  Status copy;
  copy.detail_ = std::move(detail);
  return copy;
}

Status Status::with_link(std::string link) const {
  if (is_ok()) return *this;
  auto detail = std::make_shared<Detail>(*detail_);
  detail->link = std::move(link);
  Status copy;
  copy.detail_ = std::move(detail);
  return copy;
}

Status Status::with_effect(Effect effect) const {
  if (is_ok()) return *this;
  auto detail = std::make_shared<Detail>(*detail_);
  detail->effect = effect;
  Status copy;
  copy.detail_ = std::move(detail);
  return copy;
}

Status Status::with_context(std::string_view context) const {
  if (is_ok()) return *this;
  auto detail = std::make_shared<Detail>(*detail_);
  detail->message = std::string(context) + ": " + detail->message;
  Status copy;
  copy.detail_ = std::move(detail);
  return copy;
}

std::string Status::to_string() const {
  if (is_ok()) return "ok";
  std::string text(fairway::to_string(detail_->code));
  text += ": ";
  if (!detail_->peer.empty()) text += detail_->peer;
  if (!detail_->link.empty()) text += (detail_->peer.empty() ? "over " : " over ") + detail_->link;
  if (!detail_->peer.empty() || !detail_->link.empty()) text += ": ";
  text += detail_->message;
  return text;
}

void throw_failed_result_used(const Status& status) {
  throw std::logic_error("a failed fairway::Result was used as a value: " + status.to_string());
}

}  // namespace fairway
