#pragma once

#include <functional>

#include "session.h"

namespace fairway::python {

class Tracker;

// What `Engine` is in Python.
struct PyEngine {
  std::shared_ptr<Session> session;
  std::shared_ptr<Tracker> tracker;
  std::string name;
};

struct PyPeer {
  std::shared_ptr<Session> session;
  std::shared_ptr<Tracker> tracker;
  PeerId id;
  std::string name;
};

PyPeer peer_of(const PyEngine& engine, PeerId id, std::string name);
PeerId peer_id_of(const PyEngine& engine, py::handle given);  // raises where it is no Peer of the engine's

struct PyRegion {
  std::shared_ptr<Registration> registration;
  int device = 0;
  int views = 0;                 // Python objects that see the memory through the buffer protocol
  std::shared_ptr<void> memory;  // from allocate: unmapped with the last user
};

// Part of a region, as region[a:b] gives it.
struct PySlice {
  std::shared_ptr<Registration> registration;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// A peer's region, shared by all who import it; released with its last user. From import_until.
struct Imported {
  Imported(std::shared_ptr<Session> from, std::shared_ptr<Tracker> by, const RemoteRegion& imported);
  ~Imported();
  Imported(const Imported&) = delete;
  Imported& operator=(const Imported&) = delete;

  const std::shared_ptr<Session> session;
  const std::shared_ptr<Tracker> tracker;
  const RemoteRegion region;
};
// `import(timeout)` runs without the interpreter's lock, again until the deadline while it says timed_out.
std::shared_ptr<Imported> import_until(const Deadline& deadline, const std::shared_ptr<Session>& session,
                                       const std::shared_ptr<Tracker>& tracker,
                                       const std::function<Result<RemoteRegion>(Timeout)>& import);
struct PyRemote {
  std::shared_ptr<Imported> imported;
};
// Part of a peer's region, as bytes or as elements of a shape.
struct PyRemoteArray {
  std::shared_ptr<Imported> imported;
  Shape shape;
  char kind = 0;  // of its elements, as in View; 0: bytes
};

// One side of a transfer.
struct Local {
  std::shared_ptr<Registration> registration;
  Shape shape;  // in the region
  char kind = 0;
  std::shared_ptr<Hold> hold;  // what the view lent, while the transfer goes on
  bool on_gpu = false;
  int gpu = -1;
};
struct Remote {
  std::shared_ptr<Imported> imported;
  Shape shape;
  char kind = 0;
};
// `written`: the transfer writes it.
Local local_of(Session& session, py::handle object, bool written);
Remote remote_of(py::handle object);

const char* kind_text(MemoryKind kind);
// A slice of `size` bytes as Python counts them, as offset and length; a step, or what is no slice, is refused.
std::pair<std::uint64_t, std::uint64_t> bytes_of(py::handle given, std::uint64_t size);

void bind_memory(py::module_& module);
void bind_remote(py::module_& module);
py::object allocate(PyEngine& engine, std::uint64_t size_bytes, Access access);
py::object register_object(PyEngine& engine, py::handle object, Access access);
Access access_of(py::handle given);
std::string access_text(Access access);

}  // namespace fairway::python
