/*
 * Buddy Compression on a real GPU, from C11 and C++17. Link with -lbuddy.
 *
 * An allocation keeps its data compressed in device memory. Its target says how many bytes of each 128-byte entry lie
 * there; what does not fit goes to pinned host memory, over the link. Data is never lost: the target decides speed.
 *
 * Every function works in the CUDA context that is current on the calling thread, and in no other. The CUDA runtime
 * makes one current by itself (cudaSetDevice, or the first call that needs it); with the driver API it is the
 * caller's. Destroy a context only after its allocations were freed; one of a context that is gone answers with
 * BUDDY_ERROR_CONTEXT_LOST, and only buddyFree takes it. Needs a driver for CUDA 13.0 or later (driver 580). Functions may be called from several threads;
 * calls that touch the same bytes must be ordered by the caller, through streams or otherwise.
 *
 * docs/reference/c-interface.md leads from buddyMalloc to reading data back; examples/c/round_trip.c is a whole program.
 */
#ifndef BUDDY_H
#define BUDDY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The driver's stream, as in cuda.h; a cudaStream_t is the same. NULL is the default stream. */
struct CUstream_st;
typedef struct CUstream_st *buddyStream;

/* An address of the GPU: a CUdeviceptr, or the number of a pointer that cudaMalloc gave. */
typedef unsigned long long buddyDevicePtr;

/* An allocation. 0 is none. Numbers are not used twice: a freed one stays an error. */
typedef uint64_t buddyHandle;

/* Error codes of all functions. */
typedef enum buddyError {
    BUDDY_SUCCESS = 0,
    BUDDY_ERROR_INVALID_VALUE = 1,         /* an argument has a value that it cannot have */
    BUDDY_ERROR_INVALID_HANDLE = 2,        /* this is no allocation, or it was freed */
    BUDDY_ERROR_NO_DRIVER = 3,             /* no CUDA driver on this machine */
    BUDDY_ERROR_NO_CONTEXT = 4,            /* no CUDA context is current on this thread */
    BUDDY_ERROR_WRONG_CONTEXT = 5,         /* the allocation belongs to another context */
    BUDDY_ERROR_OUT_OF_DEVICE_MEMORY = 6,  /* not enough device memory */
    BUDDY_ERROR_OUT_OF_HOST_MEMORY = 7,    /* not enough host memory that can be pinned */
    BUDDY_ERROR_CODEC = 8,                 /* unknown codec, or one without GPU kernels */
    BUDDY_ERROR_COMPILER = 9,              /* no NVRTC, or it refused the kernels */
    BUDDY_ERROR_DRIVER = 10,               /* the CUDA driver refused a call */
    BUDDY_ERROR_CONTEXT_LOST = 11,         /* an earlier error ended the context */
    BUDDY_ERROR_INTERNAL = 12,             /* a defect of this library */
    BUDDY_ERROR_DATA = 13                  /* data did not decode: it was damaged, or never written */
} buddyError;

/* Target compression ratio: 128, 96, 64, 32 or 8 bytes of each 128-byte entry are in device memory. */
typedef enum buddyTarget {
    BUDDY_TARGET_1X = 0,
    BUDDY_TARGET_4_3X = 1,
    BUDDY_TARGET_2X = 2,
    BUDDY_TARGET_4X = 3,
    BUDDY_TARGET_16X = 4
} buddyTarget;

/* The size classes of compressed entries, in the order of all arrays below. */
enum {
    BUDDY_CLASS_ZERO = 0, /* nothing is stored */
    BUDDY_CLASS_B8 = 1,   /* at most 8 bytes */
    BUDDY_CLASS_S1 = 2,   /* one sector of 32 bytes */
    BUDDY_CLASS_S2 = 3,
    BUDDY_CLASS_S3 = 4,
    BUDDY_CLASS_RAW = 5,  /* does not compress: 128 bytes */
    BUDDY_CLASSES = 6
};

/* Size histogram of some memory. */
typedef struct buddySizes {
    uint64_t classes[BUDDY_CLASSES]; /* how many entries have each class */
    uint64_t optimistic_bytes;       /* their bytes if each had the best of 0, 8, 16, 32, 64, 80, 96 and 128 */
} buddySizes;

/* Memory to take a size histogram of. */
typedef struct buddySpan {
    buddyDevicePtr data;    /* aligned to 16 bytes */
    size_t bytes;           /* a last entry that is cut short counts as padded with zeros */
    const char *codec;
    buddyDevicePtr classes; /* device memory for the class of each entry, one byte each; 0 for none */
} buddySpan;

/* Statistics of an allocation. */
typedef struct buddyStatistics {
    uint64_t bytes;
    uint64_t entries;
    uint64_t device_bytes;           /* device memory that it takes, with four bits of metadata for each entry */
    uint64_t buddy_bytes;            /* pinned host memory that it takes */
    uint64_t classes[BUDDY_CLASSES];
    uint64_t overflowing;            /* entries with bytes in host memory */
    uint64_t faulty_entry;           /* lowest entry that did not decode since the last call; UINT64_MAX for none */
} buddyStatistics;

/*
 * Takes compressed memory that holds zeros. All that it will ever need is taken now, in device memory and on the
 * host. Waits for the GPU.
 *
 * codec: "bpc", "planes64", "zeros16", "zeros32", "zeros64", "bf16", "fp16", "fp32", "near64" or "bpc-best". "bf16" may say which of the 241
 * windows of exponents it uses, as in "bf16:117"; see buddyTrain. Kernels are compiled at the first use of a codec, a
 * second or so, and kept on disk ($BUDDY_CACHE_DIR, or "buddy" in the user's cache folder).
 */
buddyError buddyMalloc(buddyHandle *handle, size_t bytes, buddyTarget target, const char *codec);

/*
 * Gives the memory back, after all work on it. What it held stays in device memory and on the host until someone else
 * overwrites it, and so does what an entry held before zeros were written to it. buddyFreeScrubbed overwrites all of it with
 * zeros first, at the cost of a pass over both; if it fails, the allocation is still there.
 */
buddyError buddyFree(buddyHandle handle);
buddyError buddyFreeScrubbed(buddyHandle handle);

/*
 * Compresses `bytes` bytes of device memory into the allocation from `offset` on, when the stream gets there. The call
 * returns at once. offset is a multiple of 128; bytes is one too, or reaches to the allocation's end; the memory is
 * aligned to 16 bytes.
 */
buddyError buddyWrite(buddyHandle handle, size_t offset, buddyDevicePtr from, size_t bytes, buddyStream stream);

/*
 * Decompresses into device memory; otherwise as buddyWrite. An entry that does not decode, which only damaged memory has,
 * becomes zeros, and the call has returned BUDDY_SUCCESS long before: the next buddyStats says which entry it was.
 * buddyReadChecked waits for the stream instead, and returns BUDDY_ERROR_DATA with the lowest such entry in its message.
 */
buddyError buddyRead(buddyHandle handle, size_t offset, buddyDevicePtr to, size_t bytes, buddyStream stream);
buddyError buddyReadChecked(buddyHandle handle, size_t offset, buddyDevicePtr to, size_t bytes, buddyStream stream);

/* What the allocation holds at this point of the stream. Waits for the stream, and for other threads that ask the same. */
buddyError buddyStats(buddyHandle handle, buddyStatistics *stats, buddyStream stream);

/* How plain device memory would compress, at this point of the stream. Waits for the stream. */
buddyError buddyHistogram(buddyDevicePtr data, size_t bytes, const char *codec, buddySizes *sizes, buddyStream stream);

/* The same for many pieces of memory: one launch for each codec, one wait in all. */
buddyError buddyHistograms(const buddySpan *spans, size_t count, buddySizes *sizes, buddyStream stream);

/*
 * Writes the codec's name with what it learns from a sample of device memory, such as "bf16:117", which every other
 * function takes as a codec. 16 bytes of room are enough. Waits for the stream.
 */
buddyError buddyTrain(const char *codec, buddyDevicePtr data, size_t bytes, char *trained, size_t room,
                      buddyStream stream);

/*
 * Memory of the caller's. From here on no function waits, none takes memory, and there are no handles: a struct of the caller's says
 * where things lie, and may be made anew for every call. All of them can be captured in a graph. Kernels are compiled at the first
 * use of a codec or of a kind of layer, which a capture should not be: call once before.
 */

/* A compressed buffer. Every part is aligned to 128 bytes and lives until the last call on it has passed its stream. */
typedef struct buddyBuffer {
    buddyDevicePtr device;   /* device memory for what the target keeps of each entry */
    buddyDevicePtr metadata; /* device memory */
    buddyDevicePtr overflow; /* memory that the GPU reaches: pinned host memory by its device address, or device memory */
    size_t bytes;            /* of the data; a multiple of 128 */
    const char *codec;
    buddyTarget target;
    buddyDevicePtr window;   /* 0; or, for bf16, the window that buddyTrainWindow leaves in device memory, and "bf16" as the codec */
} buddyBuffer;

/* Bytes of a buffer's parts. */
typedef struct buddyRoom {
    size_t device;
    size_t metadata;
    size_t overflow;
} buddyRoom;

/* Writes the sizes of the parts of a buffer of `bytes` bytes. */
buddyError buddyBufferRoom(size_t bytes, buddyTarget target, buddyRoom *room);

/* Makes a buffer hold zeros: its creation, when the stream gets there. To free it, use its memory for something else. */
buddyError buddyBufferClear(const buddyBuffer *buffer, buddyStream stream);

/* Compresses and decompresses whole entries, as buddyWrite, buddyRead and buddyReadChecked, which alone waits, do. */
buddyError buddyBufferWrite(const buddyBuffer *buffer, size_t offset, buddyDevicePtr from, size_t bytes, buddyStream stream);
buddyError buddyBufferRead(const buddyBuffer *buffer, size_t offset, buddyDevicePtr to, size_t bytes, buddyStream stream);
buddyError buddyBufferReadChecked(const buddyBuffer *buffer, size_t offset, buddyDevicePtr to, size_t bytes, buddyStream stream);

/*
 * Trains bf16's window of exponents on a sample of device memory, aligned to 16 bytes, as buddyTrain does, but leaves it in device
 * memory, a 32-bit number, when the stream gets there. What is written with a window must be read with the same one.
 */
buddyError buddyTrainWindow(buddyDevicePtr data, size_t bytes, buddyDevicePtr window, buddyStream stream);

/*
 * A frozen buffer: data that will not change, packed once into one piece of device memory that holds all of it, what overflows
 * included (docs/reference/format.md). A matrix of bf16 whose rows are whole entries lies in tiles of sixteen rows, as buddyLinear wants it.
 */
typedef struct buddyFrozen {
    buddyDevicePtr memory; /* aligned to 128 bytes */
    size_t memory_bytes;
    size_t bytes;          /* of the data: whole entries of 128 bytes, whole rows of a matrix */
    size_t row_bytes;      /* of a matrix's row, a multiple of 128; 0 for no matrix */
    const char *codec;
    buddyTarget target;
} buddyFrozen;

/*
 * Writes the bytes of a frozen buffer whose data overflows by `sectors` sectors of 32 bytes. buddyHistogram counts them: at 4/3x one for each raw
 * entry, at any target what its class has more than the target keeps.
 */
buddyError buddyFrozenRoom(size_t bytes, size_t row_bytes, buddyTarget target, const char *codec, size_t sectors, size_t *room);

/*
 * Packs device memory. If what overflows has no room, nothing of it is written, and the buffer's first 8 bytes are zeros instead of
 * "BUDDYFZ"; its bytes 48 to 51 then say how many sectors there are.
 */
buddyError buddyFreeze(const buddyFrozen *frozen, buddyDevicePtr from, buddyStream stream);

/* Decompresses whole entries; of a matrix whole rows, from one whose number is a multiple of 16 on. */
buddyError buddyFrozenRead(const buddyFrozen *frozen, size_t offset, buddyDevicePtr to, size_t bytes, buddyStream stream);

/* One linear layer, y = W x. */
typedef struct buddyLayer {
    buddyDevicePtr x;       /* bf16, a row for each token, one after the other; aligned to 16 bytes */
    buddyDevicePtr bias;    /* bf16, one for each output; 0 for none */
    buddyDevicePtr y;       /* a row of results for each token */
    buddyDevicePtr scratch; /* aligned to 128 bytes */
    size_t scratch_bytes;
    size_t tokens;
    int wide;               /* results are fp32; otherwise bf16 */
    int overlaps;           /* may begin while the kernel before it in the stream ends, if that does not write the weights */
} buddyLayer;

/* Writes the scratch bytes of layers with these weights and up to `tokens` tokens. Concurrent layers need their own. */
buddyError buddyLinearRoom(const buddyFrozen *weights, size_t tokens, size_t *room);

/* Makes scratch memory ready, once. Layers leave it ready for the next. */
buddyError buddyLinearPrepare(buddyDevicePtr scratch, size_t bytes, buddyStream stream);

/* Multiplies x by weights that are a frozen matrix of bf16 at 4/3x. Needs compute capability 9.0, or cuBLASLt. */
buddyError buddyLinear(const buddyFrozen *weights, const buddyLayer *layer, buddyStream stream);

/*
 * A matrix of bf16 at 4/3x that may be written row by row and multiplied in place: weights that change. It lies in tiles of sixteen
 * rows as a frozen one does, but what overflows has a slot for every entry, so that nothing moves and nothing is lost.
 */
typedef struct buddyMatrix {
    buddyDevicePtr device;   /* device memory, aligned to 128 bytes, as the two below */
    buddyDevicePtr metadata; /* device memory */
    buddyDevicePtr overflow; /* memory that the GPU reaches */
    size_t rows;
    size_t row_bytes;        /* a multiple of 128 */
    const char *codec;       /* "bf16", or with its window, as "bf16:117" */
} buddyMatrix;

/* Bytes of a matrix's parts. */
buddyError buddyMatrixRoom(size_t rows, size_t row_bytes, buddyRoom *room);

/* Makes a matrix hold zeros: its creation, when the stream gets there. */
buddyError buddyMatrixClear(const buddyMatrix *matrix, buddyStream stream);

/* Compresses and decompresses rows, any of them. */
buddyError buddyMatrixWrite(const buddyMatrix *matrix, size_t first_row, buddyDevicePtr from, size_t rows, buddyStream stream);
buddyError buddyMatrixRead(const buddyMatrix *matrix, size_t first_row, buddyDevicePtr to, size_t rows, buddyStream stream);

/* As buddyLinearRoom and buddyLinear. A layer that overlaps must not follow a write of its weights at once. */
buddyError buddyMatrixLinearRoom(const buddyMatrix *matrix, size_t tokens, size_t *room);
buddyError buddyMatrixLinear(const buddyMatrix *matrix, const buddyLayer *layer, buddyStream stream);

/*
 * Keys and values of attention (bf16) in compressed memory, at 4/3x, in memory of the caller; docs/explain/attention.md leads through
 * it. A cache is what this says and nothing else: it is not created, and nothing is kept. No function here waits or takes
 * memory, and each can be captured in a graph (the first use of one compiles its kernels, before the capture). They need a GPU
 * of sm_90 or later.
 */
typedef struct buddyKv {
    uint32_t layers;
    uint32_t pages;           /* of each layer */
    uint32_t heads;           /* of keys and values */
    uint32_t head_values;     /* 64 or 128 */
    uint32_t page_tokens;     /* a power of two from 16 on */
    uint32_t reserved;
    buddyDevicePtr entries;   /* device memory, aligned to 128, as the two below */
    buddyDevicePtr overflow;  /* pinned host memory, as the GPU sees it, or device memory */
    buddyDevicePtr metadata;  /* device memory */
} buddyKv;

/* Sizes of a KV cache's memory, in bytes. */
typedef struct buddyKvSizes {
    uint64_t entries;
    uint64_t overflow;
    uint64_t metadata;
    uint64_t scratch;         /* device memory for attention to work in */
} buddyKvSizes;

/* Plain keys and values of some tokens, of each all its heads. Strides are in values, multiples of 8; memory is aligned to 16. */
typedef struct buddyKvRows {
    buddyDevicePtr keys;
    buddyDevicePtr values;
    uint64_t layer_stride;
    uint64_t token_stride;
    uint32_t layer;           /* the first layer */
    uint32_t layers;          /* how many */
    uint32_t tokens;
    uint32_t reserved;
} buddyKvRows;

/* One attention call. group * tokens is at most 16. */
typedef struct buddyKvAsked {
    buddyDevicePtr queries;   /* of each sequence its tokens that ask, of each all heads that ask */
    buddyDevicePtr out;       /* in the same order */
    buddyDevicePtr table;     /* table_pages numbers of pages (32 bits) for each sequence */
    buddyDevicePtr lengths;   /* tokens of each sequence (32 bits), those that ask included */
    buddyDevicePtr scratch;   /* zeros before the first use; it is left ready for the next */
    uint32_t table_pages;
    uint32_t sequences;
    uint32_t tokens;          /* of each sequence that ask: its last ones; each sees those before it and itself */
    uint32_t group;           /* query heads per KV head */
    uint32_t layer;
    float scale;              /* of the logits; usually 1 / sqrt(head_values) */
} buddyKvAsked;

/* How many bytes a cache of this shape needs; its memory is not looked at. */
buddyError buddyKvSizesOf(const buddyKv *cache, uint32_t sequences, buddyKvSizes *sizes);

/* Makes every token zeros, and windows those of an untrained codec. */
buddyError buddyKvClear(const buddyKv *cache, buddyStream stream);

/* Chooses the windows of the rows' layers by these tokens; before the layers' first tokens are appended, and never after. */
buddyError buddyKvTrain(const buddyKv *cache, const buddyKvRows *rows, buddyStream stream);

/*
 * Appends tokens: that of row i goes to slots[i] (64 bits, device memory), which is page * page_tokens + its place there. One below
 * zero, or past the end, is left out; no two may be the same.
 */
buddyError buddyKvAppend(const buddyKv *cache, const buddyKvRows *rows, buddyDevicePtr slots, buddyStream stream);

/* Reads tokens of one sequence, by its pages (32 bits, device memory), as they were: of each all its heads. */
buddyError buddyKvRead(const buddyKv *cache, uint32_t layer, buddyDevicePtr pages, uint32_t first, uint32_t count,
                       buddyDevicePtr keys, buddyDevicePtr values, buddyStream stream);

/* Attention of the last tokens of each sequence over its keys and values, read in place. */
buddyError buddyKvAttend(const buddyKv *cache, const buddyKvAsked *asked, buddyStream stream);

/* Returns the static description of an error code. */
const char *buddyGetErrorString(buddyError error);

/* Returns the message of the last failure on this thread, valid until the next failure. */
const char *buddyGetLastErrorMessage(void);

#ifdef __cplusplus
}
#endif
#endif
