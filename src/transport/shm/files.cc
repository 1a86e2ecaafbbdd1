#include <algorithm>
#include <utility>

#include "transport/shm/transport.h"

// The files behind regions: the importer asks, the owner lends a descriptor, and says when the region has ended.
namespace fairway::transport::shm {

Result<std::uint64_t> ShmTransport::import(PeerIndex peer, const RemoteMemory& memory,
                                           std::span<const std::vector<std::byte>> keys) {
  if (!peers_.contains(peer)) return Status(ErrorCode::not_found, "shm: no such peer");
  Remote remote;
  const bool has_file = !keys.empty() && keys.front() == file_key();
  remote.way = has_file && options_.map ? Way::asking : Way::attached;
  if (!options_.map)
    remote.why = "switched off";
  else if (!has_file)
    remote.why = "its owner lends no file behind it (memory from allocate() has one)";
  const Way way = remote.way;
  const std::uint64_t handle = imports_.add(peer, memory.id, std::move(remote));
  if (Link* link = link_of(peer); way == Way::asking && link != nullptr && link->state == LinkState::up)
    ask_for_file(*link, memory.id);
  return handle;
}

void ShmTransport::release(std::uint64_t remote_handle) {
  imports_.release(remote_handle);
}

void ShmTransport::ask_for_file(Link& link, RegionId region) {
  Note note;
  note.kind = Note::Kind::ask;
  note.region = region;
  send_note(link, note);
}

void ShmTransport::answer_ask(Link& link, RegionId region) {
  Note note;
  note.region = region;
  const Exports::File file = exports_.find(region);
  if (file.fd == nullptr) {
    note.kind = Note::Kind::no_file;
    note.reason = file.why;
    return send_note(link, note);
  }
  note.kind = Note::Kind::file;
  note.offset = file.offset;
  note.writable = file.writable;
  send_note(link, note, file.fd->get());
}

// A note that finds no room waits; one with a descriptor is asked for again instead.
void ShmTransport::send_note(Link& link, const Note& note, int fd) {
  const std::vector<std::byte> bytes = encode(note);
  const auto& pair = link.lane->pair();
  counters_.system_calls.fetch_add(1, std::memory_order_relaxed);
  const auto sent = link.out.empty() || fd >= 0
                        ? pair->socket.send(bytes, fd < 0 ? std::span<const int>() : std::span<const int>(&fd, 1))
                        : Result<bool>(false);
  if (!sent) return link.lane->fail({ErrorCode::link_failed, "shm: " + sent.status().message()});
  if (!*sent && fd >= 0) {
    Note refusal;
    refusal.kind = Note::Kind::no_file;
    refusal.region = note.region;
    refusal.reason = "its owner could not send the file: too many descriptors are on their way";
    link.out.push_back(encode(refusal));
  } else if (!*sent) {
    link.out.push_back(bytes);
  }
  link.lane->nudge();
}

void ShmTransport::read_notes(Link& link) {
  while (!link.out.empty()) {
    const auto sent = link.lane->pair()->socket.send(link.out.front(), {});
    if (!sent || !*sent) break;
    link.out.erase(link.out.begin());
    link.lane->nudge();
  }
  for (;;) {
    Pair& pair = *link.lane->pair();
    counters_.system_calls.fetch_add(1, std::memory_order_relaxed);
    auto message = pair.socket.receive();
    if (!message) {
      // A socket can be closed while its process lives on, so that says less where the process can be asked.
      pair.gone = pair.process ? pair.process.ended() : message.status().code() == ErrorCode::closed;
      return link.lane->fail({ErrorCode::link_failed, "shm: the peer's process ended or let go of the link"});
    }
    if (!*message) return;
    const auto note = decode_note((*message)->bytes);
    if (!note) return link.lane->fail(note.status());
    take_note(link, *note, (*message)->fds);
    if (link.lane->broken()) return;
  }
}

void ShmTransport::take_note(Link& link, const Note& note, std::vector<sys::Fd>& fds) {
  const auto settle = [&](auto change) {
    imports_.each(link.peer, [&](auto& import) {
      if (import.region == note.region) change(import.extra);
    });
  };
  switch (note.kind) {
    case Note::Kind::ask: return answer_ask(link, note.region);
    case Note::Kind::file: return take_file(link, note, fds);
    case Note::Kind::no_file:
      return settle([&](Remote& remote) {
        if (remote.way != Way::asking) return;
        remote.way = Way::attached;
        remote.why = note.reason;
      });
    case Note::Kind::forget:  // from now on the table refuses the region: its pages need not stay here
      return settle([](Remote& remote) {
        remote.way = Way::attached;
        remote.file = {};
        remote.why = "it was deregistered";
      });
    default: return link.lane->fail({ErrorCode::protocol_error, "shm: a note out of turn"});
  }
}

void ShmTransport::take_file(Link& link, const Note& note, std::vector<sys::Fd>& fds) {
  imports_.each(link.peer, [&](auto& import) {
    Remote& remote = import.extra;
    if (import.region != note.region || remote.way != Way::asking) return;
    Region region;
    remote.way = Way::attached;
    if (fds.size() != 1 || !link.lane->pair()->regions.read(note.region, region)) {
      remote.why = "it was deregistered";
      return;
    }
    auto mapped = sys::MappedFile::map(fds.front(), note.offset, region.size_bytes, note.writable);
    if (!mapped) {
      remote.why = mapped.status().message();
      return;
    }
    remote.file = std::move(*mapped);
    remote.way = Way::mapped;
  });
}

}  // namespace fairway::transport::shm
