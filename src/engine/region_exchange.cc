#include "engine/region_exchange.h"

#include <string>
#include <utility>

#include "engine/control_message.h"
#include "engine/tables/regions.h"

namespace fairway::engine {

Status PublishedRegions::check_name(std::string_view name) {
  if (name.empty() || name.size() > 1024) return {ErrorCode::invalid_argument, "a region's name has 1 to 1024 bytes"};
  return {};
}

Result<std::vector<PublishedRegions::Asker>> PublishedRegions::publish(std::string_view name, RegionId region) {
  std::vector<Asker> askers;
  const std::lock_guard lock(mutex_);
  const auto [entry, added] = names_.emplace(std::string(name), region);
  if (!added && entry->second != region)
    return Status(ErrorCode::already_exists, "another region is published as \"" + std::string(name) + "\"");
  std::erase_if(waiting_, [&](const Waiting& each) {
    if (each.name != name) return false;
    askers.push_back(each.asker);
    return true;
  });
  return askers;
}

void PublishedRegions::withdraw(RegionId region) {
  const std::lock_guard lock(mutex_);
  std::erase_if(names_, [&](const auto& entry) { return entry.second == region; });
}

std::optional<RegionId> PublishedRegions::find(std::string_view name, const Asker& asker) {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(name);
  if (found != names_.end()) return found->second;
  if (waiting_.size() < kMaxAskers) waiting_.push_back({asker, std::string(name)});
  return std::nullopt;
}

void PublishedRegions::forget(control::SessionId session) {
  const std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [&](const Waiting& each) { return each.asker.session == session; });
}

Result<std::vector<std::byte>> RegionExchange::describe(RegionId id) {
  return regions_.describe(id, sessions_.incarnation());
}

Result<RemoteRegion> RegionExchange::import(PeerId peer, std::span<const std::byte> description) {
  const auto info = tables_.peers.find(peer);
  if (!info || !tables_.peers.is_usable(peer)) return tables_.peers.why_not(peer);
  auto parsed = parse_description(description);
  if (!parsed) return parsed.status();
  if (parsed->incarnation != info->peer.incarnation)
    return Status(ErrorCode::stale_incarnation,
                  "the region is of another engine, or of an earlier life of this peer: get a new description")
        .with_peer(info->peer.name);
  RemoteRegion region;
  Status error;
  const Status reached = workers_.with_peer(
      peer, [&](Worker& worker, Peer& owner) { region.id = worker.remotes().import(owner.owner(), *parsed, error); });
  if (!reached) return reached;
  if (!error) return error;
  region.peer = peer;
  region.size_bytes = parsed->size_bytes;
  region.kind = parsed->kind;
  region.access = parsed->access;
  return region;
}

Status RegionExchange::release(const RemoteRegion& region) {
  return workers_.with_peer(region.peer, [&](Worker&, Peer& owner) { owner.region_users().release_import(region.id); });
}

Status RegionExchange::publish(std::string_view name, RegionId region) {
  if (Status status = PublishedRegions::check_name(name); !status) return status;
  if (const auto found = tables_.regions.find(region); !found) return found.status();
  const auto askers = published_.publish(name, region);
  if (!askers) return askers.status();
  // deregister() may have withdrawn its names before this one was there. It had revoked the region first.
  if (const auto found = tables_.regions.find(region); !found) {
    published_.withdraw(region);
    for (const PublishedRegions::Asker& asker : *askers) answer(asker, region);
    return found.status();
  }
  for (const PublishedRegions::Asker& asker : *askers) answer(asker, region);
  return {};
}

Result<RemoteRegion> RegionExchange::lookup(PeerId peer, std::string_view name, Timeout timeout) {
  const auto info = tables_.peers.find(peer);
  if (!info || !tables_.peers.is_usable(peer)) return tables_.peers.why_not(peer);
  if (Status status = PublishedRegions::check_name(name); !status) return status;
  const Status late = Status(ErrorCode::timed_out, "the peer has not published \"" + std::string(name) +
                                                       "\", or its answer takes longer than the call waited")
                          .with_peer(info->peer.name);
  const auto description = lookups_.ask(
      info->session, waiting_.deadline(timeout), late,
      [&](std::uint64_t token) {
        return sessions_.send(info->session, format(Lookup{token, std::string(name)}));
      },
      name);
  if (!description) return description.status();
  return import(peer, *description);
}

void RegionExchange::answer(const PublishedRegions::Asker& asker, RegionId region) {
  LookupReply reply{asker.token, 0, {}};
  if (auto description = describe(region))
    reply.description = std::move(description).value();
  else
    reply.code = static_cast<std::uint8_t>(description.status().code());
  sessions_.tell(asker.session, format(reply));
}

Status RegionExchange::on_message(control::SessionId session, MessageType type, std::span<const std::byte> bytes) {
  if (type == MessageType::lookup) {
    const auto lookup = parse_lookup(bytes);
    if (!lookup) return {ErrorCode::protocol_error, "the peer sent a malformed lookup"};
    const PublishedRegions::Asker asker{session, lookup->token};
    if (const auto region = published_.find(lookup->name, asker)) answer(asker, *region);
    return {};
  }
  const auto reply = parse_lookup_reply(bytes);
  if (!reply) return {ErrorCode::protocol_error, "the peer sent a malformed lookup reply"};
  Result<std::vector<std::byte>> answer = reply->description;
  if (const auto code = static_cast<ErrorCode>(reply->code); code != ErrorCode::ok)
    answer = Status(code, "the peer cannot tell: " + std::string(to_string(code)));
  if (lookups_.answer(session, reply->token, std::move(answer))) waiting_.notice();
  return {};
}

void RegionExchange::on_session_down(control::SessionId session, const Status& why) {
  published_.forget(session);
  lookups_.session_ended(session, why);
}

}  // namespace fairway::engine
