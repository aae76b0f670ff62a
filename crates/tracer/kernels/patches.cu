// Callbacks of a traced kernel's events: memory accesses, barriers, shuffles, calls. Each writes
// one record for the active lanes of a warp. A warp takes its slots in program order, so that
// records are in order within a warp.
typedef unsigned int u32;
typedef unsigned long long u64;

struct Record {
    u64 pc;
    u32 mask, kind, block, warp, size, flags;
    u64 address[32];
};

// Records the first `blocks` thread blocks. Beyond `room` records only the count increases.
struct Buffer {
    u64 taken, room;
    u32 blocks, unused;
    Record* records;
};

#define BUDDY_PATCH extern "C" __device__ __noinline__ __attribute__((used)) u32

static __device__ u32 note(void* data, u64 pc, u32 kind, u64 address, u32 size, u32 flags) {
    Buffer* buffer = (Buffer*)data;
    if (!buffer) return 0;
    u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    if (block >= buffer->blocks) return 0;
    u32 mask = __activemask(), lane, leader = __ffs(mask) - 1;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    u64 slot = 0;
    if (lane == leader) slot = atomicAdd(&buffer->taken, 1ull);
    slot = __shfl_sync(mask, slot, leader);
    if (slot >= buffer->room) return 0;
    Record* record = buffer->records + slot;
    if (lane == leader) {
        u32 thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        record->pc = pc, record->mask = mask, record->kind = kind;
        record->block = block, record->warp = thread / 32, record->size = size, record->flags = flags;
    }
    record->address[lane] = address;
    return 0;
}

// Kinds are numbered like Sanitizer_InstructionId.
BUDDY_PATCH buddy_enter(void* data, u64 pc) { return note(data, pc, 1, 0, 0, 0); }
BUDDY_PATCH buddy_global(void* data, u64 pc, void* at, u32 size, u32 flags, const void*) { return note(data, pc, 3, (u64)at, size, flags); }
BUDDY_PATCH buddy_shared(void* data, u64 pc, void* at, u32 size, u32 flags, const void*) { return note(data, pc, 4, (u64)at, size, flags); }
BUDDY_PATCH buddy_local(void* data, u64 pc, void* at, u32 size, u32 flags, const void*) { return note(data, pc, 5, (u64)at, size, flags); }
BUDDY_PATCH buddy_barrier(void* data, u64 pc, u32 bar, u32 threads, u32 flags) { return note(data, pc, 6, bar, 0, flags); }
BUDDY_PATCH buddy_shuffle(void* data, u64 pc) { return note(data, pc, 8, 0, 0, 0); }
BUDDY_PATCH buddy_call(void* data, u64 pc, u64 target, u32 flags) { return note(data, pc, 9, target, 0, flags); }
BUDDY_PATCH buddy_return(void* data, u64 pc) { return note(data, pc, 10, 0, 0, 0); }
BUDDY_PATCH buddy_copy(void* data, u64 pc, void* from, u32 to, u32 size) { return note(data, pc, 14, (u64)from, size, to); }
BUDDY_PATCH buddy_matrix(void* data, u64 pc, u32 at, u32 size, u32 flags, u32 count, const void*) { return note(data, pc, 19, at, size, flags); }
