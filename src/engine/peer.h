// size: one class, everything of one peer, to be parted by state
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fairway/explain.h"
#include "fairway/metrics.h"

#include "control/control.h"
#include "core/histogram.h"
#include "engine/control_message.h"
#include "engine/description.h"
#include "engine/link_set.h"
#include "engine/message_windows.h"
#include "engine/notifier.h"
#include "engine/peer_context.h"
#include "engine/record_codec.h"
#include "engine/remote_requests.h"
#include "engine/remote_service.h"
#include "engine/slice_table.h"
#include "engine/staging_client.h"
#include "engine/staging_server.h"
#include "engine/transfer.h"
#include "engine/turns.h"
#include "transport/gpu_access.h"
#include "transport/region_table.h"

namespace fairway::engine {

class Worker;

// A worker's side of one session with one life of a peer: its links, its records, its transfers. Owner: the worker; no
// other thread touches it. Its parts: LinkSet (proof, closing, reconnection), MessageMatcher (send and receive),
// Notifier (events, counts, signals, credits), RemoteRequests (what the peer does for us where links cannot),
// RemoteService (the other side of that), StagingClient (transfers of a device's memory that no link takes),
// StagingServer (the other side of that). What is not parted yet, by what it does:
//   peer.cc            opening, hello, the end
//   peer_expect.cc     what links should reach, and whether they do
//   peer_transfers.cc  a transfer from its queue to the wire
//   peer_routes.cc     what it asks of a route
//   peer_posting.cc    records, and pieces that must be posted again
//   peer_completion.cc and back: its completion, or its early end
//   peer_serve.cc      records as they come in and go out
class Peer final : public PeerContext, private LinkOwner {
 public:
  Peer(Worker& worker, PeerId id, transport::PeerIndex index, control::SessionId session,
       const control::PeerInfo& info);

  // ---- control's words ----
  void open();  // says hello
  void on_message(std::span<const std::byte> bytes);
  void on_down(const Status& reason);
  void on_beat(std::uint64_t steps, Time at) { links_.patience().heard(steps, at); }
  void was_away(Time from, Time to) { links_.patience().was_away(from, to); }  // this engine's caller computed

  // ---- transports' events ----
  LinkSet& links() { return links_; }
  void on_immediate(std::uint32_t immediate) { notifier_.on_immediate(immediate); }
  void on_record(std::uint8_t link, std::span<const std::byte> bytes);
  void on_slice(std::uint32_t token, const transport::Event& event);
  void on_untaken(std::uint32_t token);  // post() did not take it: nothing happened

  // ---- transfers ----
  void start(std::uint32_t slot);
  void dependency_ended(std::uint32_t slot, bool ok);
  // Cancel, deadline, revoked region: completes once nothing is touched. True: nothing is any more, for all bytes have
  // moved and only the notification is under way; that still arrives or fails.
  bool stop(std::uint32_t slot, const Status& why);
  void force_stop(std::uint32_t slot);  // closes the links that still hold its slices
  bool pump();                          // hands to links what they take; true when it did
  [[nodiscard]] bool has_work() const;  // for pump(), now or when links have room
  Time run_timers(Time now);            // when to run again

  // ---- regions ----
  void stop_users_of(RegionId region);  // local memory
  void add_users_of(RegionId region, std::vector<TransferId>& users) const;
  void release_import(RemoteRegionId id);  // stops its users here
  void revoke_at_peer(RegionId region);    // asks the peer to stop using our region; on_revoked() follows

  void window_closed(std::uint32_t slot) { matcher_.window_closed(slot); }  // of a receive that ended early
  [[nodiscard]] Notifier& notifier() { return notifier_; }

  [[nodiscard]] bool is_down() const override { return down_; }
  [[nodiscard]] bool gone() const {
    return down_ && links_.out() == 0 && active_count_ == 0 && staging_server_.has_ended();
  }
  [[nodiscard]] transport::PeerIndex index() const { return owner_.index; }
  [[nodiscard]] const RegionOwner& owner() const { return owner_; }  // of its regions
  [[nodiscard]] std::uint32_t scratch() const { return links_.scratch_place(); }
  [[nodiscard]] control::SessionId session() const { return session_; }
  [[nodiscard]] const control::PeerInfo& info() const { return info_; }
  [[nodiscard]] std::string text() const override;
  [[nodiscard]] Route route_for(const Request& request, Place place);
  struct Memories {             // of both sides of a transfer
    std::uint8_t kinds = 0;     // a bit by MemoryKind
    std::uint64_t without = 0;  // a bit for each transport that one of them is not registered with
    std::uint64_t partly = 0;   // or not with all of its devices
  };
  [[nodiscard]] Memories memories(const Request& request) const;
  struct Unreached {            // between memories of which one is a device's
    std::uint64_t without = 0;  // a bit for each transport that says so
    bool opening = false;       // one does not know yet
    bool pinning = false;       // one is slow as yet
    std::string why;            // of the last one
  };
  Unreached unreached(const Request& request);
  struct KnownRoute {  // of one small extent between two memories of hosts, where there is one link to choose
    std::uint64_t version = 0;
    Operation operation = Operation::write;
    RegionId local;
    RemoteRegionId remote;
    std::uint8_t link = 0, memory_kinds = 0;
    Place place = kNoPlace, far_place = kNoPlace;
  };
  KnownRoute* known_route(const Transfer& t);  // its place; null: such a transfer's route may differ each time
  bool recall_route(Transfer& t);
  void remember_route(const Transfer& t);
  // Of those transports: a bit for each link that one of the memories is not registered for.
  std::uint64_t links_without(const Request& request, std::uint64_t transports);
  transport::Reach reach(const Block& block, std::uint16_t transport, std::string& why);
  transport::Reach reach_by_any(RegionId local, RemoteRegionId remote);  // of the links that are up
  // The two memories of a transfer, and which way its bytes go.
  struct Ends {
    Place here = kNoPlace, there = kNoPlace;
    bool outwards = true;
    bool pieces = false;  // many small ones
  };
  Ends ends_of(const Request& request);
  // `request`: what the route is for, if it is for one.
  void explain_links(Explanation& out, const Route* route, std::uint64_t used, const Ends& ends,
                     const Request* request = nullptr);
  void explain_way(Explanation& out, const Route& route, const Request& request);  // through each transport taken
  Route as_staged(const Request& request, const Route& route, Ends& ends);
  void collect(Metrics& out) const;
  void learn_rates();                               // the machine's model is known
  [[nodiscard]] bool asks_for_the_machine() const;  // a link is there whose rate its model may tell

 private:
  static constexpr std::uint32_t kMaxReplies = 256;  // waiting to be sent; more and the peer lies about its limit

  // peer.cc
  void on_hello(const Hello& hello);
  void violation(const std::string& what) override;
  void again() override;
  void settle();  // tells connect() when the last transport's attempt ended
  void fail_all(const Status& reason);
  void has_more() override;
  Status flush(RegionId region);
  void wake_at(Time time) override;
  void send_again(std::uint32_t record);

  [[nodiscard]] Time now() const override;
  void end_session(const Status& reason) override;
  void link_up(std::uint8_t index) override;
  void link_ready(Link& link) override;
  void link_lost(Link& link, bool was_ready) override;
  void epoch_closed(std::uint8_t index, bool both) override;
  void no_link(const std::string& reasons) override;
  void tell(const LinkClosed& message) override;
  void tell_user(PeerEvent::Kind kind, const Link& link, const Status& reason);
  Time link_timers(Time now);
  Time give_up_without_link();

  // peer_expect.cc
  void learn_rates(Link& link);
  void find_places(Transfer& t);
  std::span<LinkView> views_for(const Transfer& t);
  [[nodiscard]] double least_of(const Link& link, const Transfer& t);
  [[nodiscard]] std::string why_without(const Request& request, std::size_t link);
  [[nodiscard]] std::string why_link_without(const Request& request, std::size_t link);
  void expect(const Link& link, const Ends& ends, ExplainedLink& out) const;
  void keep_pace(Link& link, std::uint64_t bytes);

  // peer_transfers.cc, peer_completion.cc
  void enqueue(std::uint32_t slot);
  void take_turns(std::uint32_t slot) override;
  void retry_later(std::uint32_t token);
  bool post_records();
  void post_record(std::uint32_t index, std::uint8_t link);
  void post_ahead(std::uint32_t record, std::uint8_t link);
  bool post_retries();
  bool post_transfers();
  Turn move(std::uint32_t slot);
  bool waits_for_link(const Transfer& t, Method now);
  [[nodiscard]] bool opens_a_way(const Transfer& t) const;
  RouteRequest wanted(const Request& request, std::uint64_t bytes, bool* opening = nullptr);
  void refresh_views();
  bool post_piece(std::uint32_t slot, const Piece& piece, std::uint32_t token);
  std::optional<std::uint32_t> riding_immediate(std::uint32_t slot, const Piece& piece);
  Status fill_slice(Transfer& t, const Piece& piece, transport::Slice& slice, std::uint16_t transport);
  void forget_immediate(std::uint32_t token);
  void piece_done(std::uint32_t token, std::uint64_t value);
  void piece_failed(std::uint32_t token, const Status& status);
  void drop_piece(std::uint32_t token);  // its transfer is draining: it needs no outcome
  void advance(std::uint32_t slot);
  void signal(std::uint32_t slot);
  bool signals_a_device(std::uint32_t slot);
  void doubt_event(const SliceEntry& entry);
  void fail(std::uint32_t slot, const Status& status) override;
  [[nodiscard]] Status why_ended(const Transfer& t, const Status& status) const;
  void drained(std::uint32_t slot) override;
  void finish(std::uint32_t slot, const Status& status) override;
  void activate(std::uint32_t slot);
  void retire(std::uint32_t slot);
  void leave_link(const SliceEntry& entry, std::uint64_t moved_bytes);

  // peer_serve.cc
  void serve(const RecordHeader& record);
  // Decodes a record's body for `handle`, or ends the session of a peer that sent a malformed one.
  template <class Body, class Handle>
  void take(const RecordHeader& record, const Handle& handle);
  std::uint32_t acquire_record(RecordType type) override;
  void enqueue_record(std::uint32_t record, std::uint32_t owner) override;
  [[nodiscard]] std::size_t record_limit() const;  // payload of a put, get or send that fits a record

  Worker& worker_;
  RegionOwner owner_;
  const control::SessionId session_;
  const control::PeerInfo info_;
  LinkSet links_;

  bool greeted_ = false;
  bool down_ = false;
  Status down_reason_;
  std::uint32_t record_bytes_ = 0;  // what every link of either side carries in a message

  std::array<LinkView, kMaxLinks> views_;
  std::array<Piece, Turns::kPieces> pieces_;  // of the turn that is under way
  std::uint64_t route_version_ = 1;           // grows when a link becomes ready or stops being so
  Time missed_since_ = kNever;         // a link that is away and would do what none that is there does, since it went
  Time records_stuck_since_ = kNever;  // no link that is ready carries the next record

  RecordStream records_;
  std::uint32_t replies_out_ = 0;       // to the peer's requests, not yet known to have arrived
  std::vector<std::uint32_t> retries_;  // tokens of pieces to post again

  Turns turns_;  // of the transfers that wait for room on links
  std::uint32_t first_active_ = kNoSlot;
  std::uint32_t active_count_ = 0;
  Time next_deadline_ = kNever;

  Notifier notifier_;
  RemoteRequests requests_;
  RemoteService service_;
  MessageWindows windows_;
  MessageMatcher matcher_;
  StagingClient staging_client_;
  StagingServer staging_server_;

  struct Reached {  // two memories of which a transport has said so, under that version of routes
    std::uint64_t version = 0;
    std::uint16_t transport = 0;
    RegionId local;
    RemoteRegionId remote;
  };
  std::array<Reached, 16> reached_;
  std::array<KnownRoute, 16> known_routes_;

  std::vector<RemoteRegionId> released_;  // by the user, still used by slices
  std::vector<RegionId> revoking_;        // ours, asked to be left alone
  std::vector<RegionId> revoked_there_;   // theirs, to be answered once no slice uses them

  std::uint64_t transfers_ok_ = 0, transfers_failed_ = 0, bytes_moved_ = 0;
  Histogram latency_;
};

}  // namespace fairway::engine
