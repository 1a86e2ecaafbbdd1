#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fairway::python {

// Finds pages that are named twice, by a bit for each page of a region. The bits are kept from one request to the next,
// all of them clear, so that a request costs a nanosecond or two for each page that it names and nothing for the
// others.
class PageMarks {
 public:
  // Whether all are at most `last`, for which takes() is true, and no two are the same.
  bool accept(std::span<const std::uint64_t> index, std::uint64_t last);
  // False: the bits would be many more than the pages that are named.
  [[nodiscard]] static bool takes(std::uint64_t last, std::size_t count);

 private:
  static constexpr std::size_t kKept = std::size_t{1} << 20;  // words, 8 MiB: for 67 million pages

  std::vector<std::uint64_t> marks_;
};

// Memory for copies of page numbers, kept from one request to the next: a large array that is made anew costs a page
// fault for each 4 KiB of it, which can be more than all the rest of the request.
class SpareNumbers {
 public:
  std::vector<std::uint64_t> take();  // of any size and content
  void give_back(std::vector<std::uint64_t> numbers);

 private:
  static constexpr std::size_t kMost = 4;                        // arrays: two requests' worth
  static constexpr std::size_t kLargest = std::size_t{1} << 20;  // numbers of one, 8 MiB

  std::vector<std::vector<std::uint64_t>> spare_;
};

// One side of a request of pages, for its check.
struct PagesOf {
  std::uint64_t unit;
  std::uint64_t page_bytes;
  std::uint64_t size_bytes;  // of the region
  const char* side;
};

// Raises where a page is not inside its region. `written`: also where a byte would be written twice.
void check_pages(std::span<const std::uint64_t> index, const PagesOf& of, PageMarks* written);

}  // namespace fairway::python
