#include <array>
#include <span>

#include "module.h"
#include "transfers.h"

namespace fairway::python {
namespace {

using Seconds = std::optional<double>;
using Counter = Whole<std::uint32_t, "a counter's number">;
using Tag = Whole<std::uint64_t, "tag">;

struct PyNotification {
  PyPeer peer;
  std::uint32_t immediate = 0;
  std::string message;
};

struct PyPeerEvent {
  PyPeer peer;
  std::string kind, link, detail;
  std::uint64_t incarnation = 0;
  py::object reason = py::none();
};

void close(PyEngine& engine) {
  if (engine.session->closed()) return;
  engine.session->close();
  engine.tracker->closed();
}

py::object submit_by(const PyEngine& engine, PyRequest request) {
  if (request.tracker != engine.tracker)
    raise(ErrorCode::invalid_argument,
          "the remote region is another engine's: use the engine that connected to its peer");
  return submit_one(std::move(request));
}

PyPeer peer_of(const PyEngine& engine, PeerId id, std::string name) {
  return {engine.session, engine.tracker, id, std::move(name)};
}

// A region of this engine's that is still registered.
const Region& own(const PyEngine& engine, const PyRegion& region) {
  if (region.registration->session() != engine.session)
    raise(ErrorCode::invalid_argument, "the region was registered with another engine");
  region.registration->check_live();
  return region.registration->region();
}

PyPeer connect(PyEngine& self, const std::string& address, Seconds timeout) {
  const Deadline deadline(timeout);
  const Timeout whole = timeout_of(timeout);
  Engine& engine = self.session->engine();
  auto peer = [&] {
    py::gil_scoped_release unlocked;
    return engine.connect(address, whole);
  }();
  handle_signals();
  return peer_of(self, take(std::move(peer)), address);
}

using Most = Whole<std::size_t, "most">;

py::list poll_notifications(PyEngine& self, Most most) {
  Engine& engine = self.session->engine();
  std::vector<Notification> notes(std::min<std::size_t>(most, 256));
  const std::size_t count = engine.poll_notifications(notes);
  py::list out;
  for (std::size_t i = 0; i < count; ++i)
    out.append(PyNotification{peer_of(self, notes[i].peer, ""), notes[i].immediate,
                              std::string(reinterpret_cast<const char*>(notes[i].message), notes[i].message_bytes)});
  return out;
}

py::list poll_peer_events(PyEngine& self, Most most) {
  static constexpr const char* kKinds[] = {"up", "down", "link_up", "link_down", "link_slow", "mapping_ended"};
  std::vector<PeerEvent> events(std::min<std::size_t>(most, 256));
  const std::size_t count = self.session->engine().poll_peer_events(events);
  py::list out;
  for (std::size_t i = 0; i < count; ++i) {
    const PeerEvent& event = events[i];
    out.append(PyPeerEvent{peer_of(self, event.peer, event.name), kKinds[static_cast<int>(event.kind)], event.link,
                           event.detail, event.incarnation, event.reason ? py::none() : exception_of(event.reason)});
  }
  return out;
}

// Waits until `poll` gives something, and gives the first of it.
template <class Wait, class Poll>
py::object wait_for_one(PyEngine& self, Seconds timeout, Wait wait, Poll poll) {
  const Deadline deadline(timeout);
  for (;;) {
    if (py::list found = poll(self, Most{1}); !found.empty()) return found[0];
    Engine& engine = self.session->engine();
    check(wait_in_slices(deadline, [&](Timeout slice) { return wait(engine, slice); }));
  }
}

void bind_peers(py::module_& module) {
  py::class_<PyPeer>(module, "Peer", "Another engine, in one of its lives: one that restarts is another Peer.")
      .def_readonly("name", &PyPeer::name, "as it was connected to, or as it names itself")
      .def_property_readonly("id", [](const PyPeer& p) { return py::make_tuple(p.id.slot, p.id.generation); })
      .def(
          "lookup",
          [](const PyPeer& p, const std::string& name, Seconds timeout) {
            Engine& engine = p.session->engine();
            return PyRemote{import_until(Deadline(timeout), p.session, p.tracker,
                                         [&](Timeout slice) { return engine.lookup(p.id, name, slice); })};
          },
          py::arg("name"), py::arg("timeout") = 5.0, "The region that the peer published as `name`; waits for it.")
      .def(
          "import_region",
          [](const PyPeer& p, const py::bytes& description) {
            const std::string bytes = description;
            Engine& engine = p.session->engine();
            return PyRemote{import_until(Deadline(0), p.session, p.tracker, [&](Timeout) {
              return engine.import_region(p.id, std::as_bytes(std::span(bytes)));
            })};
          },
          py::arg("description"), "The region that Engine.describe gave these bytes for.")
      .def(
          "send",
          [](const PyPeer& p, Tag tag, py::handle from, const py::kwargs& o) {
            return submit_one(make_message(Operation::send, p, tag, from, o));
          },
          py::arg("tag"), py::arg("local"), "Sends a contiguous array to the peer's receive of the same tag.")
      .def(
          "receive",
          [](const PyPeer& p, Tag tag, py::handle into, const py::kwargs& o) {
            return submit_one(make_message(Operation::receive, p, tag, into, o));
          },
          py::arg("tag"), py::arg("local"),
          "Receives into a contiguous array; wait() gives the message's bytes. In order for each (peer, tag).")
      .def(
          "explain", [](const PyPeer& p) { return take(p.session->engine().explain(p.id)); }, "All links to the peer.")
      .def("disconnect", [](const PyPeer& p) { check(p.session->engine().disconnect(p.id)); })
      .def(
          "__eq__", [](const PyPeer& a, const PyPeer& b) { return a.session == b.session && a.id == b.id; },
          py::is_operator())
      .def("__hash__",
           [](const PyPeer& p) { return std::hash<std::uint64_t>()(std::uint64_t{p.id.slot} << 32 | p.id.generation); })
      .def("__repr__", [](const PyPeer& p) {
        return "<fairway.Peer " + (p.name.empty() ? "" : p.name + ", ") + "slot " + std::to_string(p.id.slot) +
               ", life " + std::to_string(p.id.generation) + ">";
      });
  py::class_<PyNotification>(module, "Notification",
                             "What a peer's transfer told this engine, once all its bytes were here.")
      .def_readonly("peer", &PyNotification::peer)
      .def_readonly("immediate", &PyNotification::immediate)
      .def_property_readonly("message", [](const PyNotification& n) { return py::bytes(n.message); })
      .def("__repr__", [](const PyNotification& n) {
        return "<fairway.Notification " + std::to_string(n.immediate) + ", " + std::to_string(n.message.size()) +
               " bytes>";
      });
  py::class_<PyPeerEvent>(module, "PeerEvent", "A peer or a link came or went.")
      .def_readonly("kind", &PyPeerEvent::kind, "'up', 'down', 'link_up', 'link_down', 'link_slow' or 'mapping_ended'")
      .def_readonly("peer", &PyPeerEvent::peer)
      .def_readonly("link", &PyPeerEvent::link)
      .def_readonly("detail", &PyPeerEvent::detail)
      .def_readonly("incarnation", &PyPeerEvent::incarnation)
      .def_readonly("reason", &PyPeerEvent::reason, "the exception that says why, or None")
      .def("__repr__", [](const PyPeerEvent& e) {
        return "<fairway.PeerEvent " + e.kind + " " + (e.link.empty() ? e.peer.name : e.link) +
               (e.reason.is_none() ? "" : ": " + py::cast<std::string>(py::str(e.reason))) + ">";
      });
}

}  // namespace

void bind_engine(py::module_& module) {
  py::class_<PyLoopback>(module, "Loopback",
                         "Joins engines of one process: those that share one reach each other by plain copies.")
      .def(py::init([] { return PyLoopback{make_loopback()}; }));
  bind_peers(module);
  const auto move = [](Operation operation) {
    return [operation](PyEngine& e, py::handle local, py::handle remote, const py::kwargs& options) {
      return submit_by(e, make_move(operation, local, remote, options));
    };
  };
  const auto pages = [](Operation operation) {
    return [operation](PyEngine& e, py::handle local, py::handle remote, py::handle local_index,
                       py::handle remote_index, PageUnit page_bytes, std::optional<PageUnit> local_unit,
                       std::optional<PageUnit> remote_unit, const py::kwargs& options) {
      return submit_by(e, make_pages(operation, local, remote, local_index, remote_index, page_bytes, local_unit,
                                     remote_unit, options));
    };
  };
  py::class_<PyEngine>(module, "Engine", py::dynamic_attr(), kEngineText)
      .def(py::init([](const py::kwargs& options) { return open_engine(options); }), kOptionsText)
      .def_property_readonly(
          "address", [](PyEngine& e) { return e.session->engine().address(); }, "\"host:port\", for others' connect()")
      .def_readonly("name", &PyEngine::name)
      .def_property_readonly("closed", [](const PyEngine& e) { return e.session->closed(); })
      .def("close", &close, "Ends every transfer with Cancelled, tells every peer, releases all regions. Once.")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](PyEngine& e, const py::args&) { close(e); })
      .def("connect", &connect, py::arg("address"), py::arg("timeout") = 5.0,
           "Connects to \"host:port\", or to a name in the directory, within `timeout` seconds; gives the Peer.")
      .def(
          "register",
          [](PyEngine& e, py::handle object, py::handle access) {
            return register_object(e, object, access_of(access));
          },
          py::arg("array"), py::arg("access") = "",
          "Registers a contiguous array (NumPy, torch, DLPack, CUDA array interface, any buffer) for peers.\n\n"
          "access: letters of 'r' (peers may read), 'w' (write), 'a' (atomics). The Region keeps the array alive.\n"
          "Arrays that only this process names in transfers need no registration: it happens by itself.")
      .def(
          "allocate",
          [](PyEngine& e, Whole<std::uint64_t, "nbytes"> size, py::handle access) {
            return allocate(e, size, access_of(access));
          },
          py::arg("nbytes"), py::arg("access") = "",
          "Zeroed memory that peers of this host reach by mapping it; the fastest between processes.")
      .def(
          "publish",
          [](PyEngine& e, const std::string& name, const PyRegion& r) {
            check(e.session->engine().publish(name, own(e, r)));
          },
          py::arg("name"), py::arg("region"), "Peers' lookup(name) gives them the region.")
      .def(
          "describe",
          [](PyEngine& e, const PyRegion& r) {
            const auto bytes = take(e.session->engine().describe(own(e, r)));
            return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          },
          py::arg("region"), "Bytes that Peer.import_region takes; they may travel by any means.")
      .def("write", move(Operation::write), py::arg("local"), py::arg("remote"), kWriteText)
      .def("read", move(Operation::read), py::arg("local"), py::arg("remote"),
           "As write, the other way: the peer's bytes come into `local`, which must be writable.")
      .def("write_pages", pages(Operation::write), py::arg("local"), py::arg("remote"), py::arg("local_index"),
           py::arg("remote_index"), py::arg("page_bytes"), py::arg("local_unit") = py::none(),
           py::arg("remote_unit") = py::none(), kPagesText)
      .def("read_pages", pages(Operation::read), py::arg("local"), py::arg("remote"), py::arg("local_index"),
           py::arg("remote_index"), py::arg("page_bytes"), py::arg("local_unit") = py::none(),
           py::arg("remote_unit") = py::none(), "As write_pages, the other way.")
      .def(
          "fetch_add",
          [](PyEngine& e, py::handle target, Whole<std::uint64_t, "addend"> addend, const py::kwargs& options) {
            return submit_by(e, make_atomic(Operation::fetch_add, target, addend, 0, options));
          },
          py::arg("target"), py::arg("addend"),
          "Adds to an 8-byte word of a peer's region (remote[8:16]); wait() gives the value before.")
      .def(
          "compare_swap",
          [](PyEngine& e, py::handle target, Whole<std::uint64_t, "expected"> expected,
             Whole<std::uint64_t, "desired"> desired, const py::kwargs& options) {
            return submit_by(e, make_atomic(Operation::compare_swap, target, desired, expected, options));
          },
          py::arg("target"), py::arg("expected"), py::arg("desired"),
          "Sets an 8-byte word of a peer's region if it is `expected`; wait() gives the value before.")
      .def(
          "submit",
          [](PyEngine& e, const py::iterable& given) {
            const py::tuple all(given);  // the caller's list may change meanwhile
            std::vector<PyRequest*> requests;
            requests.reserve(all.size());
            py::detail::make_caster<PyRequest> caster;  // one for all: it knows the type by now
            for (const py::handle item : all) {
              if (!caster.load(item, false))
                raise(ErrorCode::invalid_argument,
                      "submit takes Requests, not " + std::string(Py_TYPE(item.ptr())->tp_name));
              requests.push_back(&static_cast<PyRequest&>(caster));
              if (&requests.back()->tracker->session() != e.session.get())
                raise(ErrorCode::invalid_argument, "a request of another engine's");
            }
            const py::object keep[] = {all};
            return e.tracker->submit(requests, keep);
          },
          py::arg("requests"),
          "Starts Requests together, as one Transfer. More than the queue holds wait for room.\n\n"
          "One that is refused as it stands raises, with its `index` and, in `transfer`, those before it.")
      .def_property_readonly(
          "writable", [](PyEngine& e) { return e.session->engine().writable(); },
          "whether at least one more request would be taken")
      .def(
          "poll", [](PyEngine& e) { return e.tracker->poll(); },
          "Completes what was started under asyncio or with a callback, and runs the callbacks. With "
          "progress='caller'\n"
          "moves the bytes. Gives how many requests completed.")
      .def(
          "fileno", [](PyEngine& e) { return e.session->engine().fd(); },
          "Readable when a poll may have something; for select and event loops.")
      .def("poll_notifications", &poll_notifications, py::arg("most") = 64,
           "Those that are here, as a list; never waits.")
      .def(
          "wait_notification",
          [](PyEngine& e, Seconds timeout) {
            return wait_for_one(
                e, timeout, [](Engine& engine, Timeout t) { return engine.wait_notification(t); }, poll_notifications);
          },
          py::arg("timeout") = py::none(), "The next Notification; raises TimedOut after `timeout` seconds.")
      .def("poll_peer_events", &poll_peer_events, py::arg("most") = 64, "Those that are here, as a list; never waits.")
      .def(
          "wait_peer_event",
          [](PyEngine& e, Seconds timeout) {
            return wait_for_one(
                e, timeout, [](Engine& engine, Timeout t) { return engine.wait_peer_event(t); }, poll_peer_events);
          },
          py::arg("timeout") = py::none(), "The next PeerEvent; raises TimedOut after `timeout` seconds.")
      .def(
          "notifications",
          [](py::object self) { return py::module_::import("fairway.aio").attr("Notifications")(self); },
          "For `async for`: every notification from now on, under asyncio.")
      .def(
          "peer_events", [](py::object self) { return py::module_::import("fairway.aio").attr("PeerEvents")(self); },
          "For `async for`: every peer event from now on, under asyncio.")
      .def(
          "counter", [](PyEngine& e, Counter immediate) { return e.session->engine().counter(immediate); },
          py::arg("immediate"), "How many counter notifications of this number have come, ever.")
      .def(
          "wait_counter",
          [](PyEngine& e, Counter immediate, Whole<std::uint64_t, "at_least"> at_least, Seconds timeout) {
            Engine& engine = e.session->engine();
            check(wait_in_slices(Deadline(timeout),
                                 [&](Timeout t) { return engine.wait_counter(immediate, at_least, t); }));
            return engine.counter(immediate);
          },
          py::arg("immediate"), py::arg("at_least"), py::arg("timeout") = py::none(),
          "Waits until the counter is there; gives it.")
      .def(
          "explain",
          [](PyEngine& e, py::handle what) -> py::object {
            const Engine& engine = e.session->engine();
            if (py::isinstance<PyRequest>(what)) {
              auto& given = py::cast<PyRequest&>(what);
              given.request.options.notify.message = std::as_bytes(std::span(given.message));
              return py::cast(take(engine.explain(given.request)));
            }
            if (py::isinstance<PyPeer>(what)) return py::cast(take(engine.explain(py::cast<PyPeer&>(what).id)));
            if (py::isinstance<Transfer>(what))
              return py::cast(take(engine.explain(py::cast<Transfer&>(what).work->first())));
            raise(ErrorCode::invalid_argument, "explain takes a Request, a Transfer or a Peer");
          },
          py::arg("what"), "Which way the bytes of a Request, a Transfer or to a Peer take, why not others, how fast.")
      .def(
          "metrics", [](PyEngine& e) { return metrics_of(e.session->engine()); },
          "Counts of peers, links and transports, as a dict; times in nanoseconds.")
      .def(
          "port_counters", [](PyEngine& e) { return port_counters_of(e.session->engine()); },
          "What the RDMA ports in use count, as {(port, name): value}.")
      .def("__repr__", [](PyEngine& e) {
        if (e.session->forked()) return std::string("<fairway.Engine of the parent process>");
        if (e.session->closed()) return "<fairway.Engine " + e.name + (e.name.empty() ? "" : " ") + "closed>";
        const Metrics metrics = e.session->engine().metrics();
        const auto count = [](std::size_t n, const char* what) {
          return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
        };
        return "<fairway.Engine " + (e.name.empty() ? "" : "'" + e.name + "' ") + "at " +
               e.session->engine().address() + ": " + count(metrics.peers.size(), "peer") + ", " +
               count(metrics.regions, "region") + ", " + count(metrics.transfers_in_use, "transfer") + " in use>";
      });
}

}  // namespace fairway::python
