#include "engine/staging/staging.h"

namespace fairway::engine {

bool Staging::proceed(Time now) {
  bool queued = false;
  for (StagedChunk& chunk : pool.chunks())
    if (chunk.state == StagedChunk::State::copying) queued |= chunk.owner->proceed(chunk);
  queued |= leases.proceed(now);
  queued |= operations.proceed();
  if (pool.copier() != nullptr) pool.copier()->flush();
  if (queued) pool.again();
  return queued;
}

}  // namespace fairway::engine
