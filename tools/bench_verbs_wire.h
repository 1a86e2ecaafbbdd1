#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <sys/types.h>

#include "bench_verbs_batch.h"

// What the two processes of `fairway bench verbs` say to each other: one order, one answer, over a pair of sockets.
namespace fairway::tool::bench::raw {

struct Order {
  enum class Kind : std::uint8_t { open, reserve, pairs, batch, done } kind = Kind::open;
  std::array<char, 64> device{};  // open; empty: any
  std::int32_t gid_index = -1;
  std::uint64_t area = 0;  // reserve
  Shape shape;             // pairs; their endpoints follow
  std::uint32_t path_mtu = 0;
  Place place;  // of who orders
  Batch batch;  // batch; done: so many of it
};
struct Answer {
  ErrorCode code = ErrorCode::ok;
  std::array<char, 512> text{};
  std::array<char, 64> device{};  // open
  Place place;                    // open, reserve
  Verdict verdict;                // done; and so is the rest
  Counts counts;
  double cpu_seconds = 0;
};
static_assert(std::is_trivially_copyable_v<Order> && std::is_trivially_copyable_v<Answer>);

template <std::size_t size>
void put(std::array<char, size>& into, const std::string& text) {
  into[text.copy(into.data(), size - 1)] = '\0';
}
Answer answer_of(const Status& status);

// One end of the sockets. A resource.
class Wire {
 public:
  explicit Wire(int socket) : socket_(socket) {}
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // False: the other process is gone.
  bool send(const void* bytes, std::size_t size) const;
  bool receive(void* bytes, std::size_t size) const;  // exactly so many
  template <class T>
  bool send(const T& value) const {
    return send(&value, sizeof value);
  }
  template <class T>
  bool receive(T& value) const {
    return receive(&value, sizeof value);
  }
  [[nodiscard]] bool has_something() const;  // to receive, or an end

 private:
  int socket_;
};

// The other process: does as it is told until the wire ends.
void serve(const Wire& wire);

double cpu_seconds();  // of this process

}  // namespace fairway::tool::bench::raw
