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
#include "engine/armed_events.h"
#include "engine/control_message.h"
#include "engine/description.h"
#include "engine/link.h"
#include "engine/patience.h"
#include "engine/record_codec.h"
#include "engine/slice_table.h"
#include "engine/staging.h"
#include "engine/transfer.h"
#include "engine/turns.h"
#include "transport/gpu_access.h"
#include "transport/region_table.h"

namespace fairway::engine {

class Worker;

// A worker's side of one session with one life of a peer: its links, its records, its transfers. Owner: the worker; no
// other thread touches it. By what it does:
//   peer.cc            opening, hello, the end
//   peer_expect.cc     what links should reach, and whether they do
//   peer_links.cc      links: proof, closing on both ends, failover, reconnection
//   peer_transfers.cc  a transfer from its queue to the wire
//   peer_routes.cc     what it asks of a route
//   peer_posting.cc    records, and pieces that must be posted again
//   peer_completion.cc and back: its completion, or its early end
//   peer_requests.cc   what the peer's engine does for us where links cannot: put, get, atomics, checksum, flush
//   peer_serve.cc      the other side of that, and all other records
//   peer_messages.cc   send and receive
//   peer_staged.cc     transfers of a device's memory that no link takes
//   peer_lent.cc       the room that the peer lends for them
//   peer_landing.cc    the other side of that
//   peer_errands.cc    checksums of a device's memory, and atomics on it
class Peer {
 public:
  Peer(Worker& worker, PeerId id, transport::PeerIndex index, control::SessionId session,
       const control::PeerInfo& info);

  // ---- control's words ----
  void open();  // says hello
  void on_message(std::span<const std::byte> bytes);
  void on_down(const Status& reason);
  void on_beat(std::uint64_t steps, Time at) { patience_.heard(steps, at); }
  void was_away(Time from, Time to) { patience_.was_away(from, to); }  // this engine's caller computed

  // ---- transports' events ----
  void on_link_up(std::uint16_t transport, const transport::Event& event);
  void on_connect_failed(std::uint16_t transport, const Status& reason);
  void on_link_down(std::uint8_t link, const Status& reason);
  void on_retry_failed(std::uint8_t link, const Status& reason);
  void on_fenced(std::uint8_t link, const transport::Event& event);
  void on_immediate(std::uint32_t immediate);
  void on_record(std::uint8_t link, std::span<const std::byte> bytes);
  void on_slice(std::uint32_t token, const transport::Event& event);
  void on_untaken(std::uint32_t token);  // post() did not take it: nothing happened

  // ---- transfers ----
  void start(std::uint32_t slot);
  void dependency_ended(std::uint32_t slot, bool ok);
  // Cancel, deadline, revoked region: completes once nothing is touched. True: nothing is any more, for all bytes have
  // moved and only the notification is under way; that still arrives or fails.
  bool stop(std::uint32_t slot, const Status& why);
  void force_stop(std::uint32_t slot);                // closes the links that still hold its slices
  bool pump();                                        // hands to links what they take; true when it did
  Time run_timers(Time now);                          // when to run again
  void notifications_consumed(std::uint32_t polled);  // by the user, since the peer came

  // ---- regions ----
  void stop_users_of(RegionId region);  // local memory
  void add_users_of(RegionId region, std::vector<TransferId>& users) const;
  void release_import(RemoteRegionId id);  // stops its users here
  void revoke_at_peer(RegionId region);    // asks the peer to stop using our region; on_revoked() follows

  void window_closed(std::uint32_t slot);  // of a receive that ended early

  // ---- staging ----
  bool turn_copy(Step& step);
  bool turn_landing();
  void turn_errand(Errand& errand);
  void make_landing();
  void recall_landing();
  [[nodiscard]] bool serves(RegionId region) const;
  [[nodiscard]] bool has_landing() const { return landing_ != nullptr && landing_->state != Landing::State::none; }
  [[nodiscard]] const Landing* landing() const { return landing_.get(); }  // null: it never asked for one

  [[nodiscard]] bool gone() const {
    return down_ && slices_out_ == 0 && active_count_ == 0 && !has_landing() && errands_ == 0;
  }
  [[nodiscard]] PeerId id() const { return id_; }
  [[nodiscard]] transport::PeerIndex index() const { return index_; }
  [[nodiscard]] std::uint32_t scratch() const { return own_scratch_; }
  [[nodiscard]] control::SessionId session() const { return session_; }
  [[nodiscard]] const control::PeerInfo& info() const { return info_; }
  [[nodiscard]] std::uint16_t remote_worker() const { return remote_worker_; }
  [[nodiscard]] std::uint32_t granted_credits() const { return granted_credits_; }
  [[nodiscard]] std::uint32_t notifications_delivered() const { return notifications_delivered_; }
  [[nodiscard]] std::string text() const;
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
  bool can_reach(const Link& link, std::uint64_t local_handle, std::uint64_t remote_handle);
  transport::Reach reach(const Block& block, std::uint16_t transport, std::string& why);
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
  transport::Reach linked_by(std::uint16_t transport, Status& why_no) const;
  void collect(Metrics& out) const;
  void learn_rates();                               // the machine's model is known
  [[nodiscard]] bool asks_for_the_machine() const;  // a link is there whose rate its model may tell

 private:
  static constexpr std::uint32_t kMaxRequests = 32;  // put, get, ... outstanding
  static constexpr std::uint32_t kMaxReplies = 256;  // waiting to be sent; more and the peer lies about its limit

  struct Unexpected {  // a message that came before its receive
    std::uint64_t tag = 0;
    std::uint64_t length = 0;
    TransferId sender;
    bool eager = false;
    std::vector<std::byte> payload;
  };

  // peer.cc
  void on_hello(const Hello& hello);
  void violation(const std::string& what);  // the peer broke the protocol: ends the session with the reason
  void settle();                            // tells connect() when the last transport's attempt ended
  Transfer& transfer(std::uint32_t slot);
  void fail_all(const Status& reason);

  // peer_links.cc
  std::uint8_t link_index(std::uint16_t transport, transport::LinkId id);
  void begin_proof(std::uint8_t index);
  void continue_proof(std::uint8_t index);
  void proof_done(std::uint8_t index, const Status& status);
  void on_echo(std::uint8_t link, const record::Echo& echo);
  void answer_echo(std::uint8_t index);
  void on_echo_reply(std::uint8_t link, std::span<const std::byte> bytes);
  void set_ready(std::uint8_t index);
  void close_link(std::uint8_t index, const Status& reason);
  void on_link_closed(const LinkClosed& message);
  void release_parked(std::uint8_t index);
  void plan_retry(Link& link);
  [[nodiscard]] bool any_link_up() const;
  // By patience_.
  Time since_now();
  [[nodiscard]] bool is_over(Time since, Time bound) const;
  [[nodiscard]] Time look_at(Time since, Time bound) const;
  Time link_timers(Time now);
  bool forgets_a_slice(std::uint8_t index, Time now);
  Time give_up_without_link();
  [[nodiscard]] std::string why_no_link() const;
  [[nodiscard]] std::size_t scratch_place(std::uint8_t index) const;

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
  enum class Turn : std::uint8_t { posted_all, more, no_room, no_credit, failed };
  void enqueue(std::uint32_t slot);
  bool post_records();
  void post_record(std::uint32_t index, std::uint8_t link);
  bool post_retries();
  bool post_transfers();
  Turn move(std::uint32_t slot);
  bool take_credit(Transfer& t);
  bool waits_for_link(const Transfer& t, Method now);
  [[nodiscard]] bool opens_a_way(const Transfer& t) const;
  RouteRequest wanted(const Request& request, std::uint64_t bytes, bool* opening = nullptr);
  Status resolve(const Transfer& t, std::uint64_t index, const Block& block, std::uint64_t offset, std::uint64_t length,
                 std::byte*& local);
  void refresh_views();
  bool post_piece(std::uint32_t slot, const Piece& piece, std::uint32_t token);
  std::optional<std::uint32_t> riding_immediate(std::uint32_t slot, const Piece& piece);
  Status fill_slice(Transfer& t, const Piece& piece, transport::Slice& slice, std::uint16_t transport);
  void forget_immediate(std::uint32_t token);
  void piece_done(std::uint32_t token, std::uint64_t value);
  void piece_failed(std::uint32_t token, const Status& status);
  void drop_piece(std::uint32_t token);  // its transfer is draining: it needs no outcome
  void advance(std::uint32_t slot);
  void notify(std::uint32_t slot);
  void fail(std::uint32_t slot, const Status& status);
  [[nodiscard]] Status why_ended(const Transfer& t, const Status& status) const;
  void drained(std::uint32_t slot);
  void finish(std::uint32_t slot, const Status& status);
  void activate(std::uint32_t slot);
  void retire(std::uint32_t slot);
  void enter_link(Link& link, bool waits_for_stream);  // a slice does
  void leave_link(const SliceEntry& entry, std::uint64_t moved_bytes);

  // peer_staged.cc
  Turn move_staged(std::uint32_t slot);
  bool stage_piece(std::uint32_t token);
  Step* take_step(std::uint32_t slot, std::uint64_t block, bool gate);
  transport::Reach reach_room(RegionId local);
  Status cut_step(Step& step, Cursor& cursor, std::size_t most_parts, std::uint64_t most = kSlotBytes);
  void begin_step(Step& step);
  void begin_copy(Step& step);
  void queue_copy(Step& step);
  void begin_inner(Step& step);
  void inner_ended(std::uint32_t slot, const Status& status);
  void ask_peer(Step& step);
  void give_back_here(Step& step);
  void give_back_there(Step& step);
  void free_step(Step& step);
  void step_over(Step& step, const Status& status);
  void stop_steps(std::uint32_t slot);

  // peer_lent.cc
  std::uint8_t lent_slot(Status& why);
  void on_stage_grant(const record::StageGrant& grant);
  void on_stage_recall(std::uint32_t number);
  void on_stage_done(const record::StageDone& done);
  void end_lent();
  void forget_lent();
  Time staging_timer(Time now);

  // peer_landing.cc
  void on_stage_ask(std::uint32_t number);
  void on_stage_end(std::uint32_t number);
  void on_stage_copy(const StageCopy& copy, bool put);
  void begin_landing(std::uint32_t number);
  void grant(ErrorCode code);
  void open_landing();
  void drop_landing();
  void close_landing();
  void end_landing();
  void queue_job(std::uint8_t slot);
  void end_job(std::uint8_t slot, ErrorCode code);
  [[nodiscard]] bool copies_for_peer() const;

  // peer_errands.cc
  void begin_errand(Errand errand);
  void end_errand(Errand& errand, ErrorCode code);
  ErrorCode find_errand(const Errand& errand, transport::RegionTable::Resolved& out) const;
  void compare_sums(std::uint32_t slot, const Piece& piece, std::uint64_t ours, std::uint64_t theirs);

  // peer_requests.cc
  bool request_piece(std::uint32_t slot, const Piece& piece, std::uint32_t token);
  bool request_flush(std::uint32_t slot);
  bool request_sum(std::uint32_t slot);
  bool request_signal(std::uint32_t slot);
  bool signals_a_device(std::uint32_t slot);
  std::optional<RequestHead> begin_request(std::uint32_t slot, RemoteRegionId region);
  void on_reply(const record::Reply& reply);
  void continue_requests();

  // peer_serve.cc
  void serve(const RecordHeader& record);
  // Decodes a record's body for `handle`, or ends the session of a peer that sent a malformed one.
  template <class Body, class Handle>
  void take(const RecordHeader& record, const Handle& handle);
  // Queues a record and gives its place in the pool; kNoSlot: an answer more than the peer may have waiting, which ends
  // the session. `owner`: the transfer whose notification it is.
  template <class Body>
  std::uint32_t send(const Body& body, std::uint32_t owner = kNoSlot);
  std::uint32_t acquire_record(RecordType type);
  Record& record_at(std::uint32_t record);
  void enqueue_record(std::uint32_t record, std::uint32_t owner);
  void reply(std::uint32_t token, std::uint32_t serial, ErrorCode code, std::uint64_t value,
             std::span<const std::byte> data = {});
  void serve_put(const record::Put& put);
  void serve_get(const record::Get& get);
  void serve_atomic(const record::Atomic& atomic);
  void serve_sum(const record::Sum& sum);
  void serve_flush(const record::Flush& flush);
  [[nodiscard]] std::size_t record_limit() const;  // payload of a put, get or send that fits a record

  // peer_events.cc
  std::optional<std::uint32_t> event_immediate(std::uint32_t slot, std::uint8_t link);
  void arm(std::uint32_t slot, std::uint8_t link);
  void doubt_event(const SliceEntry& entry);
  void settle_events(Link& link);
  void record_arrived(std::uint32_t slot, std::uint32_t record);
  void set_off(std::uint32_t slot);
  void give_up(Transfer& t);
  bool check_credit();  // false: the peer has none left for an event, which ends it
  bool read_notification(std::uint32_t immediate, std::span<const std::byte> message, Notification& notification);
  void deliver(Notification&& notification);
  void on_event(const record::Event& event);
  void on_event_armed(std::uint32_t number, const record::EventArmed& event);
  void on_event_sign(std::uint32_t number, bool set_off);
  void event_given_up();
  void on_count(std::uint32_t immediate);
  void on_credit(std::uint32_t consumed);

  // peer_messages.cc
  void start_send(std::uint32_t slot);
  void start_receive(std::uint32_t slot);
  bool announce_sends();
  void on_send_eager(const record::SendEager& send);
  void on_send_announce(const record::SendAnnounce& send);
  void on_send_clear(const record::SendClear& clear);
  void on_send_written(const record::SendWritten& written);
  void on_send_abort(const record::SendAbort& abort);
  void on_send_done(const record::SendDone& done);
  void arrived(std::uint32_t sequence, Unexpected message);
  void match_tag(std::uint64_t tag);
  void match(std::uint32_t slot, const Unexpected& message);
  Transfer* matched_receive(TransferId id);
  void finish_receive(std::uint32_t slot, const Status& status);
  void tell_send_done(Transfer& t, ErrorCode code);
  void abort_receive(TransferId receiver, ErrorCode code);
  void stop_message(std::uint32_t slot);
  void close_window(Transfer& t);

  Worker& worker_;
  const PeerId id_;
  const transport::PeerIndex index_;
  const control::SessionId session_;
  const control::PeerInfo info_;
  const Time bound_;                 // EngineOptions::peer_timeout
  Patience patience_;                // what is held against that bound
  const std::uint32_t own_scratch_;  // its place in the worker's

  bool greeted_ = false;
  bool settled_ = false;
  bool down_ = false;
  Status down_reason_;
  std::uint16_t remote_worker_ = 0;
  std::uint64_t scratch_offset_ = 0;  // in the peer's scratch region
  std::uint32_t record_bytes_ = 0;    // what every link of either side carries in a message
  RemoteRegionId scratch_;
  std::vector<std::uint16_t> connecting_;  // transports whose attempt has not ended
  std::vector<std::string> refusals_;      // why a transport gives no link

  std::vector<Link> links_;
  std::vector<std::pair<std::string, std::uint64_t>> closed_early_;  // epochs the peer closed before we saw them
  std::array<LinkView, kMaxLinks> views_;
  std::array<Piece, Turns::kPieces> pieces_;  // of the turn that is under way
  std::uint64_t route_version_ = 1;           // grows when a link becomes ready or stops being so
  Time no_link_since_ = kNever;
  Time missed_since_ = kNever;         // a link that is away and would do what none that is there does, since it went
  Time records_stuck_since_ = kNever;  // no link that is ready carries the next record

  RecordStream records_;
  std::uint32_t replies_out_ = 0;  // to the peer's requests, not yet known to have arrived
  std::uint32_t requests_out_ = 0;
  std::vector<std::uint32_t> retries_;        // tokens of pieces to post again
  std::vector<std::uint32_t> wants_request_;  // transfers whose flush, checksum or signal waits for a free request
  std::uint32_t slices_out_ = 0;              // in transports' hands

  Turns turns_;  // of the transfers that wait for room on links
  std::uint32_t first_active_ = kNoSlot;
  std::uint32_t active_count_ = 0;
  Time next_deadline_ = kNever;

  std::uint32_t event_credits_ = 0;  // the peer granted
  std::uint32_t events_sent_ = 0;
  std::uint32_t events_consumed_there_ = 0;
  std::uint32_t granted_credits_ = 0;  // we granted
  std::uint32_t notifications_delivered_ = 0, notifications_polled_ = 0;
  std::uint32_t events_given_up_ = 0;  // by the peer: they used a credit too
  std::uint32_t credits_returned_ = 0;
  ArmedEvents armed_;

  TransferQueue sends_;     // not yet announced, in submission order
  TransferQueue receives_;  // not yet matched, in submission order
  std::uint32_t send_sequence_ = 0;
  std::uint32_t expected_send_ = 0;
  std::uint32_t unexpected_room_there_ = 0;
  std::uint32_t unexpected_cost_there_ = 0;
  std::uint32_t unexpected_cost_here_ = 0;
  std::unordered_map<std::uint32_t, Unexpected> out_of_order_;  // by sequence; bounded by the record window
  std::vector<Unexpected> unexpected_;

  struct Reached {  // two memories of which a transport has said so, under that version of routes
    std::uint64_t version = 0;
    std::uint16_t transport = 0;
    RegionId local;
    RemoteRegionId remote;
  };
  std::array<Reached, 16> reached_;
  std::array<KnownRoute, 16> known_routes_;
  std::unique_ptr<Lent> lent_;        // by the peer, where this side stages
  std::unique_ptr<Landing> landing_;  // lent to it
  std::uint32_t errands_ = 0;

  std::vector<RemoteRegionId> released_;  // by the user, still used by slices
  std::vector<RegionId> revoking_;        // ours, asked to be left alone
  std::vector<RegionId> revoked_there_;   // theirs, to be answered once no slice uses them

  std::uint64_t transfers_ok_ = 0, transfers_failed_ = 0, bytes_moved_ = 0;
  Histogram latency_;
};

template <class Body>
std::uint32_t Peer::send(const Body& body, std::uint32_t owner) {
  const std::uint32_t record = acquire_record(Body::kType);
  if (record == kNoSlot) return kNoSlot;
  encode(record_at(record), body);
  enqueue_record(record, owner);
  return record;
}

}  // namespace fairway::engine
