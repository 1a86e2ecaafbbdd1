#pragma once

#include "transfers.h"

// Requests as Python's arguments say them.
namespace fairway::python {

void bind_requests(py::module_& module);
PyRequest make_move(Operation operation, py::handle local, py::handle remote, const py::kwargs& options);
using PageUnit = Whole<std::uint64_t, "each of page_bytes and the units">;
PyRequest make_pages(Operation operation, py::handle local, py::handle remote, py::handle local_index,
                     py::handle remote_index, std::uint64_t page_bytes, std::optional<PageUnit> local_unit,
                     std::optional<PageUnit> remote_unit, const py::kwargs& options);
// Page numbers: the caller's own array when it is one of 64-bit integers in a row, else a copy; `pins` holds either.
std::span<const std::uint64_t> page_numbers(py::handle given, const std::shared_ptr<SpareNumbers>& spare, Pins& pins,
                                            const char* side);
PyRequest make_extents(const std::string& operation, const py::sequence& locals, const py::sequence& remotes,
                       py::handle table, const py::kwargs& options);
PyRequest make_message(Operation operation, const PyPeer& peer, std::uint64_t tag, py::handle local,
                       const py::kwargs& options);
PyRequest make_atomic(Operation operation, py::handle target, std::uint64_t operand, std::uint64_t expected,
                      const py::kwargs& options);
py::object submit_one(PyRequest request);

}  // namespace fairway::python
