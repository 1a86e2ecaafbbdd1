#include <array>
#include <span>

#include "module.h"
#include "requests.h"

namespace fairway::python {
namespace {

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

// A region of this engine's that is still registered.
const Region& own(const PyEngine& engine, py::handle given) {
  if (!is<PyRegion>(given))
    raise(ErrorCode::invalid_argument,
          "region is a Region, from register or allocate, not " + py::cast<std::string>(py::repr(given)));
  const auto& region = as<PyRegion>(given);
  if (region.registration->session() != engine.session)
    raise(ErrorCode::invalid_argument, "the region was registered with another engine");
  region.registration->check_live();
  return region.registration->region();
}

PyPeer connect(PyEngine& self, const Text<"address">& to, Seconds timeout) {
  const std::string& address = to;
  Engine& engine = self.session->engine();
  const Timeout whole = timeout_of(timeout);
  return peer_of(self, take(self.session->in_one([=, &engine] { return engine.connect(address, whole); })), address);
}

py::object explain(PyEngine& self, py::handle what) {
  const Engine& engine = self.session->engine();
  const auto same_engine = [&](const Session& other) {
    if (&other != self.session.get())
      raise(ErrorCode::invalid_argument, "that is another engine's: ask the engine that it came from");
  };
  if (py::isinstance<PyRequest>(what)) {
    auto& given = py::cast<PyRequest&>(what);
    same_engine(given.tracker->session());
    Request request = given.request;  // others may submit it meanwhile
    request.options.notify.message = std::as_bytes(std::span(given.message));
    return explained([&] { return engine.explain(request); });
  }
  if (py::isinstance<PyPeer>(what)) {
    same_engine(*py::cast<PyPeer&>(what).session);
    const PeerId id = py::cast<PyPeer&>(what).id;
    return explained([&] { return engine.explain(id); });
  }
  if (py::isinstance<Transfer>(what)) {
    const Work& work = *py::cast<Transfer&>(what).work;
    same_engine(work.tracker->session());
    const TransferId id = work.first();
    return explained([&] { return engine.explain(id); });
  }
  raise(ErrorCode::invalid_argument, "explain takes a Request, a Transfer or a Peer");
}

}  // namespace

void bind_engine(py::module_& module) {
  py::class_<PyLoopback>(module, "Loopback",
                         "Joins engines of one process: those that share one reach each other by plain copies.")
      .def(py::init([] { return PyLoopback{make_loopback()}; }));
  bind_peer(module);
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
      .def(py::init([](const py::kwargs& options) {
             if (options.contains("_opened")) return py::cast<PyEngine>(options["_opened"]);  // by Communicator.join()
             return open_engine(options);
           }),
           kOptionsText)
      .def_property_readonly(
          "address", [](PyEngine& e) { return e.session->engine().address(); }, "\"host:port\", for others' connect()")
      .def_readonly("name", &PyEngine::name)
      .def_property_readonly("closed", [](const PyEngine& e) { return e.session->closed(); })
      .def("close", &close,
           "close()\n\nEnds every transfer with Cancelled, tells every peer, releases all regions. Once.")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](PyEngine& e, const py::args&) { close(e); })
      .def("connect", &connect, py::arg("address"), py::arg("timeout") = 5.0,
           "connect(address, timeout=5.0) -> Peer\n\n"
           "Connects to \"host:port\", or to a name in the directory, within `timeout` seconds.")
      .def(
          "register",
          [](PyEngine& e, py::handle object, py::handle access) {
            return register_object(e, object, access_of(access));
          },
          py::arg("array"), py::arg("access") = "",
          "register(array, access='') -> Region\n\n"
          "Registers a contiguous array (NumPy, torch, DLPack, CUDA array interface, any buffer) for peers.\n\n"
          "access: letters of 'r' (peers may read), 'w' (write), 'a' (atomics). The Region keeps the array alive.\n"
          "Arrays that only this process names in transfers need no registration: it happens by itself.")
      .def(
          "allocate",
          [](PyEngine& e, Whole<std::uint64_t, "nbytes"> size, py::handle access) {
            return allocate(e, size, access_of(access));
          },
          py::arg("nbytes"), py::arg("access") = "",
          "allocate(nbytes, access='') -> Region\n\n"
          "Zeroed memory that peers of this host reach by mapping it; the fastest between processes.")
      .def(
          "publish",
          [](PyEngine& e, const Text<"name">& name, py::handle r) {
            Engine& engine = e.session->engine();
            const Region& region = own(e, r);
            check(unlocked([&] { return engine.publish(name.value, region); }));
          },
          py::arg("name"), py::arg("region"), "publish(name, region)\n\nPeers' lookup(name) gives them the region.")
      .def(
          "describe",
          [](PyEngine& e, py::handle r) {
            const auto bytes = take(e.session->engine().describe(own(e, r)));
            return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          },
          py::arg("region"),
          "describe(region) -> bytes\n\nWhat Peer.import_region takes; the bytes may travel by any means.")
      .def("write", move(Operation::write), py::arg("local"), py::arg("remote"), kWriteText)
      .def("read", move(Operation::read), py::arg("local"), py::arg("remote"),
           "read(local, remote, **options) -> Transfer\n\n"
           "As write, the other way: the peer's bytes come into `local`, which must be writable.")
      .def("write_pages", pages(Operation::write), py::arg("local"), py::arg("remote"), py::arg("local_index"),
           py::arg("remote_index"), py::arg("page_bytes"), py::arg("local_unit") = py::none(),
           py::arg("remote_unit") = py::none(), kPagesText)
      .def("read_pages", pages(Operation::read), py::arg("local"), py::arg("remote"), py::arg("local_index"),
           py::arg("remote_index"), py::arg("page_bytes"), py::arg("local_unit") = py::none(),
           py::arg("remote_unit") = py::none(),
           "read_pages(local, remote, local_index, remote_index, page_bytes, local_unit=None, remote_unit=None, "
           "**options) -> Transfer\n\n"
           "As write_pages, the other way.")
      .def(
          "fetch_add",
          [](PyEngine& e, py::handle target, Whole<std::uint64_t, "addend"> addend, const py::kwargs& options) {
            return submit_by(e, make_atomic(Operation::fetch_add, target, addend, 0, options));
          },
          py::arg("target"), py::arg("addend"),
          "fetch_add(target, addend, **options) -> Transfer\n\n"
          "Adds to an 8-byte word of a peer's region (remote[8:16]); wait() gives the value before.")
      .def(
          "compare_swap",
          [](PyEngine& e, py::handle target, Whole<std::uint64_t, "expected"> expected,
             Whole<std::uint64_t, "desired"> desired, const py::kwargs& options) {
            return submit_by(e, make_atomic(Operation::compare_swap, target, desired, expected, options));
          },
          py::arg("target"), py::arg("expected"), py::arg("desired"),
          "compare_swap(target, expected, desired, **options) -> Transfer\n\n"
          "Sets an 8-byte word of a peer's region if it is `expected`; wait() gives the value before.")
      .def(
          "receive",
          [](const PyEngine& e, Whole<std::uint64_t, "tag"> tag, py::handle into, py::handle peer,
             const py::kwargs& options) {
            const PeerId from = peer.is_none() ? PeerId{} : peer_id_of(e, peer);
            return submit_one(make_message(Operation::receive, peer_of(e, from, ""), tag, into, options));
          },
          py::arg("tag"), py::arg("local"), py::arg("peer") = py::none(), kReceiveText)
      .def(
          "submit",
          [](PyEngine& e, const py::object& given) {
            if (!py::isinstance<py::iterable>(given))
              raise(ErrorCode::invalid_argument,
                    std::string("requests is a list of Requests, not ") + py::cast<std::string>(py::repr(given)));
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
          "submit(requests) -> Transfer\n\n"
          "Starts Requests together, as one Transfer. Those that the queue cannot hold wait for free slots.\n\n"
          "One that is refused as it stands raises, with its `index` and, in `transfer`, those before it.")
      .def_property_readonly(
          "writable", [](PyEngine& e) { return e.session->open_engine().writable(); },
          "whether at least one more request would be taken")
      .def(
          "poll", [](PyEngine& e) { return e.tracker->poll(); },
          "poll() -> int\n\n"
          "Completes what was started under asyncio or with a callback, and runs the callbacks. With "
          "progress='caller'\n"
          "moves the bytes. Gives how many requests completed.")
      .def(
          "fileno", [](PyEngine& e) { return e.session->engine().fd(); },
          "fileno() -> int\n\nReadable when a poll may have something; for select and event loops.")
      .def("explain", &explain, py::arg("what"),
           "explain(what) -> Explanation\n\n"
           "Which way the bytes of a Request, a Transfer or to a Peer take, why not others, how fast.")
      .def(
          "metrics", [](PyEngine& e) { return metrics_of(e.session->engine()); },
          "metrics() -> dict\n\n"
          "Counts of peers, links and transports, as a dict; times in nanoseconds.")
      .def(
          "port_counters", [](PyEngine& e) { return port_counters_of(e.session->engine()); },
          "port_counters() -> dict\n\n"
          "What the RDMA ports in use count, as {(port, name): value}.")
      .def("__repr__", [](PyEngine& e) {
        if (e.session->forked()) return std::string("<fairway.Engine of the parent process>");
        const std::string name = e.name.empty() ? "" : "'" + e.name + "' ";
        if (e.session->closed()) return "<fairway.Engine " + name + "closed>";
        const Engine& engine = e.session->engine();
        const Metrics metrics = unlocked([&] { return engine.metrics(); });
        const auto count = [](std::size_t n, const char* what) {
          return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
        };
        return "<fairway.Engine " + name + "at " + e.session->engine().address() + ": " +
               count(metrics.peers.size(), "peer") + ", " + count(metrics.regions, "region") + ", " +
               count(metrics.transfers_in_use, "transfer") + " in use>";
      });
}

}  // namespace fairway::python
