#include "transport/host/files.h"

#include <algorithm>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include "sys/memory_file.h"
#include "transport/command.h"
#include "transport/host/transport.h"

namespace fairway::transport::host {

std::optional<Key> Exports::add(const Region& memory, const MemorySource& source) {
  struct stat facts {};
  if (source.fd < 0 || ::fstat(source.fd, &facts) != 0) return {};
  const Inode inode(facts.st_dev, facts.st_ino);
  const std::lock_guard lock(mutex_);
  auto known = numbers_.find(inode);
  if (known == numbers_.end()) {
    if (!sys::check_lendable(source.fd, source.fd_offset, memory.size_bytes)) return {};
    sys::Fd copy(::fcntl(source.fd, F_DUPFD_CLOEXEC, 0));
    if (!copy) return {};
    files_[next_] = {{std::make_shared<sys::Fd>(std::move(copy))}, inode, 0, 0};
    known = numbers_.emplace(inode, next_++).first;
  }
  return place(memory, known->second, source.fd_offset);
}

Key Exports::add(const Region& memory, const Mover::Exported& exported) {
  const std::lock_guard lock(mutex_);
  const auto [known, fresh] = numbers_.try_emplace(Inode(kDevice, exported.identity), next_);
  if (fresh) files_[next_++] = {exported.files, known->first, 0, 0};
  Key key = place(memory, known->second, exported.offset);
  key.handle = exported.handle;
  return key;
}

Key Exports::place(const Region& memory, std::uint32_t number, std::uint64_t offset) {
  const bool writable = includes(memory.access, Access::write) || includes(memory.access, Access::atomic);
  File& file = files_[number];
  ++file.regions;
  file.writable_regions += writable ? 1 : 0;
  regions_[handle_of(memory.id)] = {number, writable};
  return {number, offset, {}};
}

std::uint32_t Exports::remove(RegionId id) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(handle_of(id));
  if (found == regions_.end()) return 0;
  const Place place = found->second;
  regions_.erase(found);
  File& file = files_[place.file];
  file.writable_regions -= place.writable ? 1 : 0;
  if (--file.regions > 0) return 0;
  numbers_.erase(file.inode);
  files_.erase(place.file);
  return place.file;
}

Result<std::shared_ptr<sys::Fd>> Exports::descriptor(std::uint32_t number, std::uint32_t part, bool writable) const {
  std::shared_ptr<sys::Fd> fd;
  {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(number);
    if (found == files_.end()) return Status(ErrorCode::revoked, "its owner deregistered it");
    if (writable && found->second.writable_regions == 0)
      return Status(ErrorCode::access_denied, "its owner allows no writes");
    if (part >= found->second.fds.size()) return Status(ErrorCode::not_found, "its owner has no such descriptor");
    fd = found->second.fds[part];
    if (found->second.inode.first == kDevice) return fd;
  }
  if (writable) return fd;
  auto read_only = sys::open_read_only(fd->get());
  if (!read_only) return read_only.status();
  return std::make_shared<sys::Fd>(std::move(*read_only));
}

// The files behind regions: the importer asks for one, the owner sends a descriptor and tells when the last region in
// it is gone.

namespace {

constexpr std::size_t kMaxAsks = 64;         // unanswered, in each direction
constexpr std::size_t kMaxWaiting = 16'384;  // notes that wait for room on the socket
constexpr int kNotesPerPoll = 64;            // of one peer

}  // namespace

Result<std::uint64_t> HostTransport::import(PeerIndex index, const RemoteMemory& memory,
                                            std::span<const std::vector<std::byte>> keys) {
  const auto found = peers_.find(index);
  if (found == peers_.end()) return Status(ErrorCode::not_found, name() + ": no such peer");
  Remote remote;
  remote.method = Method::cma;
  if (keys.empty() || !options_.map) {
    remote.why = options_.map ? "no memory file behind it (memory from allocate() has one)" : "mapping is switched off";
  } else {
    const auto key = decode_key(keys.front());
    if (!key) return key.status();
    if (!key->handle.empty() && !mover_)
      return Status(ErrorCode::protocol_error, name() + ": malformed key: it is of device memory");
    remote.file =
        file_of(found->second, *key, includes(memory.access, Access::write) || includes(memory.access, Access::atomic));
    remote.offset = key->offset;
    settle(remote);
  }
  return imports_.add(index, memory.id, std::move(remote));
}

void HostTransport::release(std::uint64_t remote_handle) {
  imports_.release(remote_handle);
}

Reach HostTransport::reach(LinkId, std::uint64_t local_handle, std::uint64_t remote_handle, std::string* path) {
  const auto* import = imports_.find(remote_handle);
  if (import == nullptr) return Reach::yes;  // post() fails with the reason
  std::string why;
  const Reach reach =
      mover_ && !both_are_host_memory(local_handle, *import) ? reach_by_mover(local_handle, *import, why) : Reach::yes;
  if (path != nullptr) *path = reach == Reach::no ? why : describe_path(*import);
  return reach;
}

bool HostTransport::both_are_host_memory(std::uint64_t local_handle, const Imports::Entry& import) const {
  const auto own = regions_.find(region_of(local_handle));
  if (!own || !reached_by_cpu(own->kind)) return false;
  const auto peer = peers_.find(import.peer);
  if (peer == peers_.end() || peer->second.slots[0] == kNoSlot) return false;
  const Link& link = links_[peer->second.slots[0]];
  Region theirs;
  return link.lane && link.lane->pair()->regions.read(import.region, theirs) && reached_by_cpu(theirs.kind);
}

Reach HostTransport::reach_by_mover(std::uint64_t local_handle, const Imports::Entry& import, std::string& why) {
  const Remote& remote = import.extra;
  const auto peer = peers_.find(import.peer);
  if (remote.method == Method::pending || peer == peers_.end() || peer->second.slots[0] == kNoSlot)
    return Reach::opening;
  const Link& link = links_[peer->second.slots[0]];
  const bool attached = remote.method == Method::cma && link.lane && link.lane->pair()->no_cma.empty();
  if (remote.method == Method::bounced || (remote.method == Method::cma && link.lane && !attached)) {
    why = "neither the GPU nor the kernel can access the peer's memory: " + remote.why;
    return Reach::no;
  }
  Mover::Path path;
  Mover::Imported* imported = remote.method == Method::device ? remote.file->imported.get() : nullptr;
  switch (mover_->path(region_of(local_handle), imported, {}, path, why)) {
    case Mover::Readiness::ready:
      if (remote.method != Method::mapped) return Reach::yes;
      if (!remote.file->held) remote.file->held = mover_->hold(remote.file->map);
      return remote.file->held->settled.load(std::memory_order_acquire) ? Reach::yes : Reach::pinning;
    case Mover::Readiness::opening: return Reach::opening;
    case Mover::Readiness::refused: break;
  }
  return Reach::no;
}

void HostTransport::settle(Remote& remote) {
  remote.method = remote.file->method;
  remote.why = remote.file->why;
}

// A known file, or a new one that is requested now or once the link is up.
std::shared_ptr<PeerFile> HostTransport::file_of(Peer& peer, const Key& key, bool writable) {
  for (const auto& file : peer.files)
    if (file->number == key.file && file->writable == writable) return file;
  auto file = std::make_shared<PeerFile>();
  file->number = key.file;
  file->writable = writable;
  peer.files.push_back(file);
  if (!key.handle.empty()) {
    file->imported = mover_->import(key.handle);
    if (!mover_->wants_file(*file->imported)) {
      file->method = Method::device;
      return file;
    }
  }
  if (peer.slots[0] != kNoSlot && links_[peer.slots[0]].state == LinkState::up) ask_next(links_[peer.slots[0]]);
  return file;
}

void HostTransport::ask_for(Link& link, PeerFile& file) {
  Note note;
  note.kind = Note::Kind::ask;
  note.file = file.number;
  note.writable = file.writable;
  note.part = file.parts;
  file.asked = true;
  ++peers_[link.peer].asked;
  send_note(link, note);
}

// Requests pending files, as many as may be unanswered.
void HostTransport::ask_next(Link& link) {
  const Peer& peer = peers_[link.peer];
  for (const auto& file : peer.files)
    if (peer.asked < kMaxAsks && file->method == Method::pending && !file->asked) ask_for(link, *file);
}

void HostTransport::answer_ask(Link& link, const Note& ask) {
  Note note = ask;
  const auto exported = exports_.descriptor(ask.file, ask.part, ask.writable);
  if (exported) {
    note.kind = Note::Kind::file;
    return send_note(link, note, (*exported)->get());
  }
  note.kind = Note::Kind::no_file;
  note.reason = exported.status().message();
  send_note(link, note);
}

// Sends a note, or queues it until the socket has room; a note with a descriptor becomes no_file instead. The queue is
// limited: the link fails if the peer does not read.
void HostTransport::send_note(Link& link, const Note& note, int fd) {
  const std::vector<std::byte> bytes = encode(note);
  const auto& pair = link.lane->pair();
  counters_.system_calls.fetch_add(1, std::memory_order_relaxed);
  const auto sent = link.out.waiting.empty() || fd >= 0
                        ? pair->socket.send(bytes, fd < 0 ? std::span<const int>() : std::span<const int>(&fd, 1))
                        : Result<bool>(false);
  if (!sent) return link.lane->fail({ErrorCode::link_failed, sent.status().message()});
  if (!*sent) {
    Note rest = note;
    if (fd >= 0) {
      rest.kind = Note::Kind::no_file;
      rest.reason = "its owner could not send the file: too many descriptors are in flight";
    }
    const bool answer = rest.kind == Note::Kind::no_file;
    link.out.waiting.push_back({fd >= 0 ? encode(rest) : bytes, answer});
    link.out.answers += answer ? 1 : 0;
    if (link.out.answers > kMaxAsks)
      return link.lane->fail(
          {ErrorCode::protocol_error, name() + ": the peer asks for files but does not read the answers"});
    if (link.out.waiting.size() > kMaxWaiting)
      return link.lane->fail({ErrorCode::link_failed, name() + ": the peer does not read its local socket"});
  }
  link.lane->nudge();
}

bool HostTransport::send_waiting(Link& link) {
  auto& [waiting, answers] = link.out;
  while (!waiting.empty()) {
    const auto sent = link.lane->pair()->socket.send(waiting.front().bytes, {});
    if (!sent || !*sent) return false;
    answers -= waiting.front().answer ? 1 : 0;
    waiting.pop_front();
    link.lane->nudge();
  }
  return true;
}

void HostTransport::read_notes(Link& link) {
  static_cast<void>(send_waiting(link));
  for (int count = 0; count < kNotesPerPoll; ++count) {
    Pair& pair = *link.lane->pair();
    counters_.system_calls.fetch_add(1, std::memory_order_relaxed);
    auto message = pair.socket.receive();
    if (!message) {
      if (message.status().code() == ErrorCode::protocol_error) return link.lane->fail(message.status());
      // A closed socket does not mean that the process has ended: asks the process if it is visible.
      pair.left = message.status().code() == ErrorCode::closed;
      pair.gone = pair.process ? pair.process.ended() : message.status().code() == ErrorCode::closed;
      return link.lane->fail({ErrorCode::link_failed, name() + ": the peer's process ended or closed the link"});
    }
    if (!*message) return;
    const auto note = decode_note((*message)->bytes);
    if (!note) return link.lane->fail({ErrorCode::protocol_error, note.status().message()});
    take_note(link, *note, (*message)->fds);
    if (link.lane->broken()) return;
  }
  connections_at_ = 0;  // the rest after the other peers
}

void HostTransport::take_note(Link& link, const Note& note, std::vector<sys::Fd>& fds) {
  switch (note.kind) {
    case Note::Kind::ask: return answer_ask(link, note);
    case Note::Kind::file:
    case Note::Kind::no_file: return take_file(link, note, fds);
    case Note::Kind::forget: return forget_file(link, note.file);
    case Note::Kind::ring: return;  // it has woken this side
    case Note::Kind::recall:
      return end_views(link.peer, note.region, {ErrorCode::revoked, "its owner deregisters the region"});
    default: return link.lane->fail({ErrorCode::protocol_error, name() + ": unexpected note"});
  }
}

void HostTransport::take_file(Link& link, const Note& note, std::vector<sys::Fd>& fds) {
  const auto& files = peers_[link.peer].files;
  const auto found = std::find_if(files.begin(), files.end(), [&](const auto& file) {
    return file->number == note.file && file->writable == note.writable && file->method == Method::pending &&
           file->parts == note.part;
  });
  Peer& peer = peers_[link.peer];
  if (peer.asked == 0)
    return link.lane->fail({ErrorCode::protocol_error, name() + ": the peer sent a file without a request"});
  --peer.asked;
  if (found == files.end()) return ask_next(link);  // forgotten meanwhile
  PeerFile& file = **found;
  file.asked = false;
  file.method = Method::cma;
  file.why = note.reason;
  if (file.imported && fds.size() == 1)
    if (const Status kind = sys::check_device_memory(fds.front().get()); !kind) return link.lane->fail(kind);
  if (file.imported) {
    mover_->give_file(*file.imported, fds.size() == 1 ? std::move(fds.front()) : sys::Fd(), note.reason);
    ++file.parts;
    file.method = mover_->wants_file(*file.imported) ? Method::pending : Method::device;
    if (file.method == Method::pending) return ask_next(link);
  } else if (note.kind == Note::Kind::file && fds.size() == 1) {
    auto mapped = sys::MappedFile::map_whole(fds.front(), note.writable);
    if (mapped) {
      *file.map = std::move(*mapped);
      file.method = Method::mapped;
    } else {
      file.why = mapped.status().message();
    }
  }
  imports_.each(link.peer, [&](auto& import) {
    if (import.extra.file == *found) settle(import.extra);
  });
  ask_next(link);
}

// A peer without a link hears nothing. Once it has one again it looks at this side's region table (forget_ended()), and
// so does the one that is welcomed here, perhaps already: it is told when this end is up, too.
void HostTransport::tell_forgotten(Link& link, const Note& forget) {
  if (link.state == LinkState::up) send_note(link, forget);
  if (link.state == LinkState::welcomed) link.out.waiting.push_back({encode(forget), false});
}

// The file has no region any more, so the region table refuses all access to it; it can be unmapped.
void HostTransport::forget_file(Link& link, std::uint32_t number) {
  imports_.each(link.peer, [&](auto& import) {
    if (import.extra.file == nullptr || import.extra.file->number != number) return;
    import.extra = {Method::cma, nullptr, 0, "it was deregistered"};
  });
  std::erase_if(peers_[link.peer].files, [&](const auto& file) { return file->number == number; });
}

// At the begin of an epoch: the peer may have deregistered while nobody could be told. Files that nothing uses here are
// asked for again if they are needed.
void HostTransport::forget_ended(Link& link) {
  const RegionView& regions = link.lane->pair()->regions;
  Region there;
  imports_.each(link.peer, [&](auto& import) {
    if (import.extra.file && !regions.read(import.region, there))
      import.extra = {Method::cma, nullptr, 0, "it was deregistered"};
  });
  std::erase_if(peers_[link.peer].files, [](const auto& file) { return file.use_count() == 1; });
}

}  // namespace fairway::transport::host
