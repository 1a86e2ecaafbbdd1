#include "soak_play.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

namespace fairway::tool::soak {
namespace {

// What an event carries: every other one in words, the rest in an immediate that fits beside a write.
struct Message {
  std::uint64_t round, index;
};
bool has_message(const Step& step) {
  return step.index % 2 == 0;
}
constexpr std::uint64_t kRoundsTold = 1 << 14;
std::uint32_t immediate_of(std::uint64_t round, const Step& step) {
  return static_cast<std::uint32_t>((has_message(step) ? round : round % kRoundsTold) << 16 | step.index);
}
constexpr std::uint32_t kCounters = 0xffff0000;  // that of a process is this and its number
std::uint64_t tag_of(const Round& round, const Step& step) {
  return round.number << 16 | step.index;
}
std::uint64_t signal_of(const Round& round, const Step& step) {
  return mixed(round.number, step.index) | 1;
}
// A completion's user data: the step, and whether it is the receiver's.
void* data_of(const Step& step, bool as_receiver) {
  return reinterpret_cast<void*>(std::uintptr_t{step.index} * 2 + (as_receiver ? 1 : 0));
}
constexpr microseconds kReceived{100'000};            // by then what is sent has found its receive
constexpr std::uint64_t kOverwriteAtOnce = 64 << 10;  // of what was sent from

}  // namespace

Play::Play(Endpoint& endpoint, const Settings& settings, const Round& round)
    : endpoint_(endpoint), settings_(settings), round_(round) {
  const std::size_t count = round.steps.size();
  ids_.resize(count);
  receive_ids_.resize(count);
  since_.resize(count);
  ended_.resize(count);
  received_.resize(count);
  cancelled_.resize(count);
  told_.resize(count);
  local_pages_.resize(count);
  remote_pages_.resize(count);
  gone_.resize(settings.engines);
  const unsigned me = endpoint.process();
  for (const Step& step : round.steps) {
    if (step.by() == me) mine_.push_back(&step);
    if (step.kind == Kind::send && step.to.process == me) to_receive_.push_back({step.receive, &step});
  }
  std::stable_sort(mine_.begin(), mine_.end(), [](const Step* a, const Step* b) { return a->start < b->start; });
  std::stable_sort(to_receive_.begin(), to_receive_.end(), [](const Due& a, const Due& b) { return a.at < b.at; });
  take_back_ = round.fault.kind == Fault::Kind::revoke && round.fault.process == me;
}

Status Play::prepare() {
  const unsigned me = endpoint_.process();
  for (unsigned i = 0; i < endpoint_.memories().size(); ++i)
    if (Status status = endpoint_.memory(i).begin(bytes_seed(settings_, round_.number, me, i)); !status) return status;
  for (const Step* step : mine_)
    if (step->count > 1) {
      local_pages_[step->index] = pieces_of(*step, is_read(step->kind) ? Side::to : Side::from);
      remote_pages_[step->index] = pieces_of(*step, is_read(step->kind) ? Side::from : Side::to);
    }
  for (unsigned i = 0; i < settings_.engines; ++i) counted_before_.push_back(endpoint_.engine().counter(kCounters + i));
  return {};
}

void Play::begin() {
  begun_ = Clock::now();
}

bool Play::turn() {
  const bool started = begun_ && start_due(std::chrono::duration_cast<microseconds>(Clock::now() - *begun_));
  return collect() || started;
}

bool Play::start_due(microseconds passed) {
  bool busy = false;
  if (takes_back() && passed >= round_.fault.at) take_back();
  for (; asked_ < to_receive_.size() && to_receive_[asked_].at <= passed; ++asked_, busy = true)
    receive(*to_receive_[asked_].step);
  while (started_ < mine_.size() && mine_[started_]->start <= passed) {
    const std::size_t before = started_;
    start(*mine_[started_]);
    if (started_ == before) break;  // full
    busy = true;
  }
  while (!to_cancel_.empty() && to_cancel_.front().at <= passed) {
    const Step& step = *to_cancel_.front().step;
    to_cancel_.erase(to_cancel_.begin());
    if (!ended_[step.index]) cancel(step);
    busy = true;
  }
  return busy;
}

bool Play::collect() {
  std::array<Completion, 16> done;
  const std::size_t count = endpoint_.engine().poll(done);
  for (std::size_t i = 0; i < count; ++i) {
    const auto data = reinterpret_cast<std::uintptr_t>(done[i].user_data);
    end(round_.steps[data / 2], done[i], data % 2 == 1);
  }
  std::array<Notification, 16> heard;
  const std::size_t notes = endpoint_.engine().poll_notifications(heard);
  for (std::size_t i = 0; i < notes; ++i) hear(heard[i]);
  std::array<PeerEvent, 16> events;
  const std::size_t news = endpoint_.engine().poll_peer_events(events);
  for (std::size_t i = 0; i < news; ++i)
    if (const unsigned process = endpoint_.process_of(events[i].peer);
        events[i].kind == PeerEvent::Kind::down && process < gone_.size())
      gone_[process] = true;
  return count + notes + news != 0;
}

void Play::start(const Step& step) {
  const auto now = Clock::now();
  const auto id = submit(step);
  if (!id && id.status().code() == ErrorCode::queue_full) return;
  ++started_;
  since_[step.index] = now;
  if (!id) {
    ended_[step.index] = Ended{id.status().code(), Effect::not_applied, {}, 0, 0, 0, id.status().to_string()};
    return;
  }
  ids_[step.index] = *id;
  ++under_way_;
  // Whose receive ends with its memory finds no other: it would wait for ever.
  const bool lost = step.kind == Kind::send && round_.fault.kind == Fault::Kind::revoke &&
                    step.to.process == round_.fault.process && step.to.memory == round_.fault.memory;
  if (step.cancel.count() < 0 && !lost) return;
  const microseconds at = std::chrono::duration_cast<microseconds>(now - *begun_) +
                          (step.cancel.count() < 0 ? microseconds(kReceived) : step.cancel);
  to_cancel_.insert(std::upper_bound(to_cancel_.begin(), to_cancel_.end(), at,
                                     [](microseconds time, const Due& due) { return time < due.at; }),
                    {at, &step});
}

Notify Play::notification_of(const Step& step, std::vector<std::byte>& message) const {
  Notify notify;
  notify.kind = step.notify;
  if (step.notify == NotifyKind::event) {
    const Message says{round_.number, step.index};
    if (has_message(step)) {
      message.resize(sizeof says);
      std::memcpy(message.data(), &says, sizeof says);
      notify.message = message;
    }
    notify.immediate = immediate_of(round_.number, step);
  }
  if (step.notify == NotifyKind::counter) notify.immediate = kCounters + endpoint_.process();
  if (step.notify == NotifyKind::signal) {
    notify.signal = {endpoint_.known(step.to.process).memories[step.to.memory].id, step.word};
    notify.signal_value = signal_of(round_, step);
    notify.signal_add = step.adds;
  }
  return notify;
}

Result<TransferId> Play::submit(const Step& step) {
  Engine& engine = endpoint_.engine();
  const Endpoint::Known& other = endpoint_.known(step.with());
  std::vector<std::byte> message;
  RequestOptions options;
  options.notify = notification_of(step, message);
  if (step.deadline.count() > 0) options.deadline = step.deadline;
  options.checksum = step.checksum;
  options.priority = step.priority;
  options.deliver = Deliver::to_poll;
  options.user_data = data_of(step, false);
  if (is_atomic(step.kind)) {
    const RemoteAddress word{other.memories[step.to.memory].id, step.to.at};
    return step.kind == Kind::fetch_add ? engine.fetch_add(other.peer, word, 1, options)
                                        : engine.compare_swap(other.peer, word, 0, step.index + 1, options);
  }
  const RegionId local = endpoint_.memory(step.near().memory).region().id;
  const Slice slice{local, step.near().at, step.piece};
  if (step.kind == Kind::send) return engine.send(other.peer, tag_of(round_, step), slice, options);
  const RemoteRegionId remote = other.memories[step.far().memory].id;
  const Layout layout =
      step.count == 1
          ? Layout(Extent{slice, {remote, step.far().at}})
          : Layout(Paged{local, remote, step.piece, 1, 1, local_pages_[step.index], remote_pages_[step.index]});
  return is_read(step.kind) ? engine.read(other.peer, layout, options) : engine.write(other.peer, layout, options);
}

void Play::receive(const Step& step) {
  RequestOptions options;
  options.deliver = Deliver::to_poll;
  options.user_data = data_of(step, true);
  const Slice into{endpoint_.memory(step.to.memory).region().id, step.to.at, step.piece};
  const auto id =
      endpoint_.engine().receive(endpoint_.known(step.from.process).peer, tag_of(round_, step), into, options);
  if (id) {
    receive_ids_[step.index] = *id;
    ++receiving_;
  } else {
    received_[step.index] = Ended{id.status().code(), Effect::not_applied, {}, 0, 0, 0, id.status().to_string()};
  }
}

void Play::stop_receiving() {
  for (const Due& due : to_receive_)
    if (receive_ids_[due.step->index] && !received_[due.step->index])
      (void)endpoint_.engine().cancel(receive_ids_[due.step->index]);
}

void Play::cancel(const Step& step) {
  const auto cancelled = endpoint_.engine().cancel(ids_[step.index]);
  if (cancelled)
    cancelled_[step.index] = *cancelled;
  else if (cancelled.status().code() != ErrorCode::not_found)
    wrong(step, "cannot be cancelled: " + cancelled.status().to_string());
}

void Play::end(const Step& step, const Completion& completion, bool as_receiver) {
  std::optional<Ended>& at = (as_receiver ? received_ : ended_)[step.index];
  if (at) return wrong(step, "completed twice");
  at = Ended{completion.status.code(),
             completion.status.effect(),
             {},
             completion.bytes,
             completion.old_value,
             static_cast<std::uint64_t>((Clock::now() - since_[step.index]).count()),
             completion.status.to_string()};
  if (as_receiver) {
    --receiving_;
    return end_received(step);
  }
  --under_way_;
  end_own(step);
}

// A completion says that the local memory is this process's alone.
void Play::end_own(const Step& step) {
  Ended& ended = *ended_[step.index];
  if (const auto& cancelled = cancelled_[step.index]) {
    if (!ended.ok()) ended.far = cancelled->far_side;
    const bool disturbed = round_.fault.kind == Fault::Kind::kill || round_.fault.kind == Fault::Kind::freeze;
    if (!cancelled->fenced && !disturbed) wrong(step, "cancel() is not fenced: held by " + cancelled->held_by);
    if (ended.ok() && cancelled->far_side == Cancelled::Far::nothing)
      wrong(step, "ok, but cancel() said nothing of it landed");
  }
  if (is_atomic(step.kind)) return;
  if (ended.ok() && ended.bytes != step.bytes()) wrong(step, fmt::format("ok with {} bytes", ended.bytes));
  if (touches_taken(step.near())) return;
  if (is_read(step.kind)) {
    if (const std::string what = mixture(step, !ended.ok(), ended.ok() || ended.may_have_landed()); !what.empty())
      wrong(step, fmt::format("{} ended with {}: {}", step.what(), ended.ok() ? "ok" : ended.words, what));
    return close(step, true);
  }
  Memory& memory = endpoint_.memory(step.from.memory);  // what is still read from here brings other bytes
  const std::uint64_t length = step.count == 1 ? step.piece : step.from.stride * (step.count - 1) + step.piece;
  if (Status status = memory.overwrite(step.from.at, std::min(length, kOverwriteAtOnce)); !status)
    wrong(status.to_string());
}

void Play::end_received(const Step& step) {
  const Ended& ended = *received_[step.index];
  if (touches_taken(step.to)) return;
  if (ended.ok() && ended.bytes != step.piece) wrong(step, fmt::format("received {} bytes", ended.bytes));
  if (const std::string what = mixture(step, !ended.ok(), true); !what.empty())
    wrong(step, fmt::format("its receive ended with {}: {}", ended.ok() ? "ok" : ended.words, what));
  close(step, true);
}

void Play::hear(const Notification& notification) {
  Message says{round_.number, notification.immediate & 0xffff};
  if (notification.message_bytes == sizeof says) std::memcpy(&says, notification.message, sizeof says);
  const unsigned from = endpoint_.process_of(notification.peer);
  if (says.round != round_.number || says.index >= round_.steps.size())
    return wrong(
        fmt::format("a notification of round {} from process {} came in round {}", says.round, from, round_.number));
  const Step& step = round_.steps[says.index];
  if (step.notify != NotifyKind::event || step.to.process != endpoint_.process() || step.from.process != from ||
      notification.immediate != immediate_of(round_.number, step) ||
      notification.message_bytes != (has_message(step) ? sizeof says : 0))
    return wrong(step, fmt::format("its notification came from process {}, with {:#x}", from, notification.immediate));
  if (++told_[step.index] > 1) return wrong(step, "its notification came twice");
  if (touches_taken(step.to)) return;
  if (const std::string what = mixture(step, false, true); !what.empty())
    wrong(step, "its notification came before its bytes: " + what);
}

void Play::take_back() {
  taken_back_ = true;
  const Status status = endpoint_.memory(round_.fault.memory).take(endpoint_.engine());
  if (!status) wrong(fmt::format("deregister of {}: {}", settings_.memories[round_.fault.memory], status.to_string()));
}

bool Play::touches_taken(const Place& place) const {
  return taken_back_ && place.memory == round_.fault.memory && place.process == round_.fault.process;
}

void Play::each_piece(const Step& step,
                      const std::function<void(std::uint64_t, std::span<const std::byte>)>& call) const {
  const std::uint64_t seed = bytes_seed(settings_, round_.number, step.from.process, step.from.memory);
  const auto from = pieces_of(step, Side::from), to = pieces_of(step, Side::to);
  std::vector<std::byte> bytes(step.piece);
  for (std::uint64_t i = 0; i < step.count; ++i) {
    original_bytes(seed, from[i], bytes);
    call(to[i], bytes);
  }
}

std::string Play::mixture(const Step& step, bool may_be_old, bool may_be_new) {
  Memory& memory = endpoint_.memory(step.to.memory);
  const std::uint64_t all = step.to.stride * (step.count - 1) + step.piece;
  seen_.resize(all);
  if (Status status = memory.look(step.to.at, seen_); !status) return status.to_string();
  std::string found;
  each_piece(step, [&](std::uint64_t at, std::span<const std::byte> fresh) {
    const auto now = std::span(seen_).subspan(at - step.to.at, fresh.size());
    const auto old = memory.expected(at, fresh.size());
    if (!found.empty() || (may_be_new && std::memcmp(now.data(), fresh.data(), now.size()) == 0)) return;
    for (std::size_t i = 0; i < now.size(); ++i) {
      if ((may_be_new && now[i] == fresh[i]) || (may_be_old && now[i] == old[i])) continue;
      const char* what = now[i] == old[i] ? "as before" : now[i] == fresh[i] ? "written" : "neither old nor new";
      found = fmt::format("byte {} of the memory is {}", at + i, what);
      return;
    }
  });
  return found;
}

void Play::close(const Step& step, bool final) {
  Memory& memory = endpoint_.memory(step.to.memory);
  const auto& ended = step.kind == Kind::send ? received_[step.index] : ended_[step.index];
  const bool brought = ended && ended->ok();
  each_piece(step, [&](std::uint64_t at, std::span<const std::byte> fresh) {
    if (brought)
      memory.expect(at, fresh);
    else if (!final)
      memory.forget(at, fresh.size());
    else if (Status status = memory.overwrite(at, fresh.size()); !status)
      wrong(status.to_string());
  });
}

std::uint64_t Play::counted(unsigned process) const {
  return endpoint_.engine().counter(kCounters + process) - counted_before_[process];
}

void Play::wrong(const Step& step, const std::string& text) {
  wrong(fmt::format("step {} ({} of {} x {} bytes, {} of process {} to {} of process {}): {}", step.index, step.what(),
                    step.count, step.piece, settings_.memories[step.from.memory], step.from.process,
                    settings_.memories[step.to.memory], step.to.process, text));
}

std::string Play::stuck() const {
  std::string text;
  for (const Step* step : mine_) {
    if (!ids_[step->index] || ended_[step->index]) continue;
    const auto why = endpoint_.engine().explain(ids_[step->index]);
    text += fmt::format("step {} ({}) has not ended: {}; ", step->index, step->what(),
                        why ? why->text() : why.status().to_string());
  }
  return text;
}

}  // namespace fairway::tool::soak
