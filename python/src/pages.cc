#include <algorithm>
#include <bit>
#include <cstring>

#include "transfers.h"

// The page numbers of a request: as they are given, and whether they can be obeyed.
namespace fairway::python {
namespace {

template <class T>
std::uint64_t widen(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));  // what is negative stays so
}

// Integers of any size and step, as 64 bits.
std::vector<std::uint64_t> widened(const View& view) {
  const bool negative = view.kind == 'i';
  std::uint64_t (*read)(const std::byte*) = nullptr;
  switch (view.shape.item_bytes) {
    case 1: read = negative ? widen<std::int8_t> : widen<std::uint8_t>; break;
    case 2: read = negative ? widen<std::int16_t> : widen<std::uint16_t>; break;
    case 4: read = negative ? widen<std::int32_t> : widen<std::uint32_t>; break;
    default: read = widen<std::int64_t>; break;
  }
  std::vector<std::uint64_t> out(static_cast<std::size_t>(view.shape.counts[0]));
  const auto* from = reinterpret_cast<const std::byte*>(view.address);
  for (std::uint64_t& index : out) {
    index = read(from);
    from += view.shape.strides[0];
  }
  return out;
}

[[noreturn]] void refuse_index(std::span<const std::uint64_t> index, std::uint64_t last, const PagesOf& of) {
  const auto bad = std::find_if(index.begin(), index.end(), [&](std::uint64_t page) { return page > last; });
  const auto value = static_cast<std::int64_t>(*bad);  // of unsigned ones: those beyond 2^63 read as negative
  raise(ErrorCode::out_of_range,
        std::string(of.side) + "[" + std::to_string(bad - index.begin()) + "] is " + std::to_string(value) +
            (value < 0 ? ", which is negative"
                       : ": that page ends beyond the region's " + std::to_string(of.size_bytes) + " bytes"));
}

[[noreturn]] void refuse_overlap(std::uint64_t page, const char* side) {
  raise(ErrorCode::invalid_argument, std::string(side) + " names page " + std::to_string(page) +
                                         " in more than one place: it would be written twice");
}

// In four chains, of which a core follows several at once. What is negative is larger than any page's number.
std::uint64_t largest(std::span<const std::uint64_t> index) {
  std::uint64_t a = 0, b = 0, c = 0, d = 0;
  const std::uint64_t *at = index.data(), *const end = at + index.size();
  for (; end - at >= 4; at += 4) {
    a = std::max(a, at[0]);
    b = std::max(b, at[1]);
    c = std::max(c, at[2]);
    d = std::max(d, at[3]);
  }
  for (; at != end; ++at) a = std::max(a, *at);
  return std::max(std::max(a, b), std::max(c, d));
}

}  // namespace

std::span<const std::uint64_t> page_numbers(py::handle given, Pins& pins, const char* side) {
  if (PyObject_CheckBuffer(given.ptr()) || py::hasattr(given, "__dlpack_device__")) {
    const View view = view_of(given);
    if (view.on_gpu) raise(ErrorCode::invalid_argument, std::string(side) + " is on a GPU: pass " + side + ".cpu()");
    if (view.shape.counts.size() != 1)
      raise(ErrorCode::invalid_argument,
            std::string(side) + " has " + std::to_string(view.shape.counts.size()) + " dimensions, not one");
    const std::uint64_t size = view.shape.item_bytes;
    const bool is_integers =
        (view.kind == 'i' || view.kind == 'u') && (size == 1 || size == 2 || size == 4 || size == 8);
    if (!is_integers && !(view.kind == 0 && size == 1))  // uint8 counts as bytes
      raise(ErrorCode::invalid_argument, std::string(side) + " does not hold integers in this machine's byte order");
    if (size == 8 && view.shape.strides[0] == 8 && view.address % 8 == 0) {
      pins.holds.push_back(view.hold);
      return {reinterpret_cast<const std::uint64_t*>(view.address), static_cast<std::size_t>(view.shape.counts[0])};
    }
    return pins.indexes.emplace_back(widened(view));
  }
  if (!py::isinstance<py::iterable>(given))
    raise(ErrorCode::invalid_argument,
          std::string(side) + " is an array or a list of page numbers, not " + Py_TYPE(given.ptr())->tp_name);
  std::vector<std::uint64_t> copy;
  for (const py::handle item : py::reinterpret_borrow<py::iterable>(given)) {
    const py::ssize_t value = PyNumber_AsSsize_t(item.ptr(), nullptr);  // cuts off what is too large for any region
    if (value == -1 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      raise(ErrorCode::invalid_argument, std::string(side) + "[" + std::to_string(copy.size()) +
                                             "] is no whole number but " + py::cast<std::string>(py::repr(item)));
    }
    copy.push_back(static_cast<std::uint64_t>(value));
  }
  return pins.indexes.emplace_back(std::move(copy));
}

// No branch for each page. The array may be written meanwhile: the mask keeps what is read inside the marks.
bool PageMarks::accept(std::span<const std::uint64_t> index, std::uint64_t last) {
  const auto words = static_cast<std::size_t>(std::bit_ceil(last / 64 + 1));
  if (marks_.size() < words) marks_.resize(words);
  std::uint64_t* const marks = marks_.data();
  const std::uint64_t mask = words - 1;
  std::uint64_t most = 0, twice = 0;
  for (const std::uint64_t page : index) {
    std::uint64_t& word = marks[page / 64 & mask];
    const std::uint64_t before = word;
    most = std::max(most, page);
    twice |= before >> page % 64;
    word = before | std::uint64_t{1} << page % 64;
  }
  const bool accepted = most <= last && (twice & 1) == 0;
  if (words > kKept)
    marks_ = {};
  else if (words < index.size() || !accepted)
    std::fill_n(marks, words, 0);
  else
    for (const std::uint64_t page : index) marks[page / 64 & mask] = 0;
  return accepted;
}

bool PageMarks::takes(std::uint64_t last, std::size_t count) {
  return last / 64 < std::max<std::uint64_t>(kKept, count);
}

// Nothing moves before this has ended.
void check_pages(std::span<const std::uint64_t> index, const PagesOf& of, PageMarks* written) {
  if (of.page_bytes == 0 || of.unit == 0) raise(ErrorCode::invalid_argument, "page_bytes and units are at least 1");
  if (of.size_bytes < of.page_bytes)
    raise(ErrorCode::out_of_range, std::string(of.side) + ": the region's " + std::to_string(of.size_bytes) +
                                       " bytes are less than a page of " + std::to_string(of.page_bytes));
  const std::uint64_t last = (of.size_bytes - of.page_bytes) / of.unit;
  const bool marked = written != nullptr && of.unit >= of.page_bytes && PageMarks::takes(last, index.size());
  if (marked && written->accept(index, last)) return;
  if (largest(index) > last) refuse_index(index, last, of);
  if (written == nullptr || index.size() < 2) return;
  std::vector<std::uint64_t> sorted(index.begin(), index.end());  // finds the one, or pages that overlap
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if ((sorted[i] - sorted[i - 1]) * of.unit < of.page_bytes) refuse_overlap(sorted[i], of.side);
}

}  // namespace fairway::python
