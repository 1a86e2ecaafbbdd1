#include <algorithm>
#include <cstring>

#include "requests.h"

// The page numbers of a request: as they are given, and whether they can be obeyed.
namespace fairway::python {
namespace {

template <class T>
void widen(const std::byte* from, std::int64_t step, std::vector<std::uint64_t>& out) {
  for (std::uint64_t& index : out) {
    T value;
    std::memcpy(&value, from, sizeof value);
    index = static_cast<std::uint64_t>(static_cast<std::int64_t>(value));  // what is negative stays so
    from += step;
  }
}

// A copy of page numbers, for as long as its transfer takes.
class Numbers final : public Hold {
 public:
  explicit Numbers(std::shared_ptr<SpareNumbers> spare) : list(spare->take()), spare_(std::move(spare)) {}
  ~Numbers() override { spare_->give_back(std::move(list)); }
  std::vector<std::uint64_t> list;

 private:
  const std::shared_ptr<SpareNumbers> spare_;
};

// Integers of any size and step, as 64 bits.
void widen(const View& view, std::vector<std::uint64_t>& out) {
  const bool negative = view.kind == 'i';
  auto read = widen<std::int64_t>;
  switch (view.shape.item_bytes) {
    case 1: read = negative ? widen<std::int8_t> : widen<std::uint8_t>; break;
    case 2: read = negative ? widen<std::int16_t> : widen<std::uint16_t>; break;
    case 4: read = negative ? widen<std::int32_t> : widen<std::uint32_t>; break;
    default: break;
  }
  out.resize(static_cast<std::size_t>(view.shape.counts[0]));
  read(reinterpret_cast<const std::byte*>(view.address), view.shape.strides[0], out);
}

[[noreturn]] void refuse_index(std::size_t at, std::uint64_t page, const PagesOf& of) {
  const auto value = static_cast<std::int64_t>(page);  // of unsigned ones: those beyond 2^63 read as negative
  raise(ErrorCode::out_of_range,
        std::string(of.side) + "[" + std::to_string(at) + "] is " + std::to_string(value) +
            (value < 0 ? ", which is negative"
                       : ": that page ends beyond the region's " + std::to_string(of.size_bytes) + " bytes"));
}

[[noreturn]] void refuse_overlap(std::uint64_t page, const char* side) {
  raise(ErrorCode::invalid_argument, std::string(side) + " names page " + std::to_string(page) +
                                         " in more than one place: it would be written twice");
}

}  // namespace

std::span<const std::uint64_t> page_numbers(py::handle given, const std::shared_ptr<SpareNumbers>& spare, Pins& pins,
                                            const char* side) {
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
    auto copy = std::make_shared<Numbers>(spare);
    widen(view, copy->list);
    pins.holds.push_back(copy);
    return copy->list;
  }
  if (!py::isinstance<py::iterable>(given))
    raise(ErrorCode::invalid_argument,
          std::string(side) + " is an array or a list of page numbers, not " + Py_TYPE(given.ptr())->tp_name);
  auto copy = std::make_shared<Numbers>(spare);
  copy->list.clear();
  for (const py::handle item : py::reinterpret_borrow<py::iterable>(given)) {
    const py::ssize_t value = PyNumber_AsSsize_t(item.ptr(), nullptr);  // cuts off what is too large for any region
    if (value == -1 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      raise(ErrorCode::invalid_argument, std::string(side) + "[" + std::to_string(copy->list.size()) +
                                             "] is no whole number but " + py::cast<std::string>(py::repr(item)));
    }
    copy->list.push_back(static_cast<std::uint64_t>(value));
  }
  pins.holds.push_back(copy);
  return copy->list;
}

// Branches that are never taken cost less than to compute without them. A page is looked at before it is marked, and
// again before its mark goes: the array may be written meanwhile.
bool PageMarks::accept(std::span<const std::uint64_t> index, std::uint64_t last) {
  const auto words = static_cast<std::size_t>(last / 64 + 1);
  if (marks_.size() < words) marks_.resize(words);
  std::uint64_t* const marks = marks_.data();
  const bool accepted = std::all_of(index.begin(), index.end(), [=](std::uint64_t page) {
    if (page > last) return false;
    const std::uint64_t word = marks[page / 64], bit = std::uint64_t{1} << page % 64;
    marks[page / 64] = word | bit;
    return (word & bit) == 0;
  });
  if (words > kKept) {
    marks_ = {};
  } else if (words < index.size() || !accepted) {
    std::fill_n(marks, words, 0);
  } else {
    for (const std::uint64_t page : index)
      if (page <= last) marks[page / 64] = 0;
  }
  return accepted;
}

std::vector<std::uint64_t> SpareNumbers::take() {
  if (spare_.empty()) return {};
  std::vector<std::uint64_t> out = std::move(spare_.back());
  spare_.pop_back();
  return out;
}

void SpareNumbers::give_back(std::vector<std::uint64_t> numbers) {
  if (numbers.capacity() > 0 && numbers.capacity() <= kLargest && spare_.size() < kMost)
    spare_.push_back(std::move(numbers));
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
  const auto bad = std::find_if(index.begin(), index.end(), [=](std::uint64_t page) { return page > last; });
  if (bad != index.end()) refuse_index(static_cast<std::size_t>(bad - index.begin()), *bad, of);
  if (written == nullptr || index.size() < 2) return;
  std::vector<std::uint64_t> sorted(index.begin(), index.end());  // finds the one, or pages that overlap
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if ((sorted[i] - sorted[i - 1]) * of.unit < of.page_bytes) refuse_overlap(sorted[i], of.side);
}

}  // namespace fairway::python
