/*
 * Buddy Compression on a real GPU, for C11 and C++17. Link with -lbuddy.
 *
 * An allocation keeps its data compressed. Its target fixes the bytes of each 128-byte entry in
 * device memory; the rest of an entry that does not fit goes to pinned host memory, over the link.
 * No data is lost at any target; the target decides speed.
 *
 * Every function works in the calling thread's current CUDA context. The CUDA runtime sets one
 * (cudaSetDevice, or its first call); with the driver API the caller does. Free allocations before
 * their context is destroyed: afterwards they return BUDDY_ERROR_CONTEXT_LOST, except from
 * buddyFree. Needs a driver for CUDA 13.0 or later (driver 580). Functions are thread-safe; callers
 * order calls that touch the same bytes, through streams or otherwise.
 *
 * docs/guide/c-programs.md is the guide; examples/c/round_trip.c is a whole program.
 */
#ifndef BUDDY_H
#define BUDDY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A CUDA stream: CUstream or cudaStream_t. NULL is the default stream. */
struct CUstream_st;
typedef struct CUstream_st *buddyStream;

/* A GPU address: a CUdeviceptr, or a pointer from cudaMalloc as a number. */
typedef unsigned long long buddyDevicePtr;

/* An allocation; 0 is none. Handles are never reused: a freed one stays an error. */
typedef uint64_t buddyHandle;

/* Error codes of all functions. */
typedef enum buddyError {
    BUDDY_SUCCESS = 0,
    BUDDY_ERROR_INVALID_VALUE = 1,         /* an argument is invalid */
    BUDDY_ERROR_INVALID_HANDLE = 2,        /* not an allocation, or freed */
    BUDDY_ERROR_NO_DRIVER = 3,             /* no CUDA driver on this machine */
    BUDDY_ERROR_NO_CONTEXT = 4,            /* no CUDA context is current on this thread */
    BUDDY_ERROR_WRONG_CONTEXT = 5,         /* the allocation belongs to another context */
    BUDDY_ERROR_OUT_OF_DEVICE_MEMORY = 6,  /* not enough device memory */
    BUDDY_ERROR_OUT_OF_HOST_MEMORY = 7,    /* not enough host memory that can be pinned */
    BUDDY_ERROR_CODEC = 8,                 /* unknown codec, or one without GPU kernels */
    BUDDY_ERROR_COMPILER = 9,              /* no NVRTC, or it failed */
    BUDDY_ERROR_DRIVER = 10,               /* the CUDA driver failed */
    BUDDY_ERROR_CONTEXT_LOST = 11,         /* an earlier error ended the context */
    BUDDY_ERROR_INTERNAL = 12,             /* a defect of this library */
    BUDDY_ERROR_DATA = 13                  /* data failed to decode: damaged, or never written */
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
    uint64_t classes[BUDDY_CLASSES]; /* entries by class */
    uint64_t optimistic_bytes;       /* their bytes at the best of 0, 8, 16, 32, 64, 80, 96, 128 */
} buddySizes;

/* Memory to be sized. */
typedef struct buddySpan {
    buddyDevicePtr data;    /* aligned to 16 bytes */
    size_t bytes;           /* a partial last entry counts as padded with zeros */
    const char *codec;
    buddyDevicePtr classes; /* receives each entry's class, one byte each; 0 for none */
} buddySpan;

/* Statistics of an allocation. */
typedef struct buddyStatistics {
    uint64_t bytes;
    uint64_t entries;
    uint64_t device_bytes;           /* device memory, with four bits of metadata per entry */
    uint64_t buddy_bytes;            /* pinned host memory */
    uint64_t classes[BUDDY_CLASSES];
    uint64_t overflowing;            /* entries with bytes in host memory */
    uint64_t faulty_entry;           /* lowest entry that failed to decode since the last call; UINT64_MAX for none */
} buddyStatistics;

/*
 * Allocates compressed memory, filled with zeros, on the device and on the host. Waits for the GPU.
 *
 * codec: "bpc", "planes64", "zeros16", "zeros32", "bf16", "fp16", "fp32", "near64" or "bpc-best".
 * "bf16" may name one of the 241 windows of exponents, as in "bf16:117" (buddyTrain). Kernels are
 * compiled at the first use of a codec, about a second, and kept on disk ($BUDDY_CACHE_DIR, or
 * "buddy" in the user's cache folder).
 */
buddyError buddyMalloc(buddyHandle *handle, size_t bytes, buddyTarget target, const char *codec);

/*
 * Frees an allocation after all work on it. The data stays in memory until it is overwritten;
 * buddyFreeScrubbed zeroes device and host memory first. If that fails, the allocation remains.
 */
buddyError buddyFree(buddyHandle handle);
buddyError buddyFreeScrubbed(buddyHandle handle);

/*
 * Compresses `bytes` bytes of device memory into the allocation from `offset` on, in stream order.
 * `offset` is a multiple of 128; `bytes` is one too, or reaches to the allocation's end; the memory
 * is aligned to 16 bytes.
 */
buddyError buddyWrite(buddyHandle handle, size_t offset, buddyDevicePtr from, size_t bytes, buddyStream stream);

/*
 * Decompresses into device memory; otherwise like buddyWrite. An entry that fails to decode, which
 * only damaged memory has, reads as zeros, and the next buddyStats names it. buddyReadChecked waits
 * for the stream, and returns BUDDY_ERROR_DATA with the lowest such entry in its message.
 */
buddyError buddyRead(buddyHandle handle, size_t offset, buddyDevicePtr to, size_t bytes, buddyStream stream);
buddyError buddyReadChecked(buddyHandle handle, size_t offset, buddyDevicePtr to, size_t bytes, buddyStream stream);

/*
 * Gives an allocation another target. Takes new memory, moves all entries, waits for the stream and
 * frees the old memory; on an error the allocation is as before. No other thread may use it
 * meanwhile, and views of it end.
 */
buddyError buddyRetarget(buddyHandle handle, buddyTarget target, buddyStream stream);

/*
 * Writes the BuddyView of buddy_device.cuh, through which the caller's own kernels read and write
 * the allocation in place:
 *     BuddyView view; buddyView(handle, &view, sizeof view); kernel<<<...>>>(view);
 * The kernel must use the allocation's codec. The view is valid until buddyFree or a new target.
 */
buddyError buddyView(buddyHandle handle, void *view, size_t view_bytes);

/* Returns statistics at this point of the stream. Waits for the stream and for other callers. */
buddyError buddyStats(buddyHandle handle, buddyStatistics *stats, buddyStream stream);

/* Computes the compressed sizes of plain device memory. Waits for the stream. */
buddyError buddyHistogram(buddyDevicePtr data, size_t bytes, const char *codec, buddySizes *sizes, buddyStream stream);

/* The same for several spans: one launch per codec, one wait in all. */
buddyError buddyHistograms(const buddySpan *spans, size_t count, buddySizes *sizes, buddyStream stream);

/*
 * Trains a codec on a sample of device memory and writes its name with parameters, such as
 * "bf16:117", for use as a codec. 16 bytes of room suffice. Waits for the stream.
 */
buddyError buddyTrain(const char *codec, buddyDevicePtr data, size_t bytes, char *trained, size_t room,
                      buddyStream stream);

/*
 * Functions over the caller's memory. From here on, no function but the checked reads waits, none
 * allocates, and there are no handles: a struct of the caller describes the memory and may be made
 * anew for every call. All can be captured in a graph, after a first call has compiled the kernels.
 */

/* A compressed buffer. Parts are aligned to 128 bytes and live until the last call has passed its stream. */
typedef struct buddyBuffer {
    buddyDevicePtr device;   /* device memory: the compressed parts of entries */
    buddyDevicePtr metadata; /* device memory */
    buddyDevicePtr overflow; /* pinned host memory, by its device address, or device memory */
    size_t bytes;            /* of the data; a multiple of 128 */
    const char *codec;
    buddyTarget target;
    buddyDevicePtr window;   /* 0; or for codec "bf16" the window from buddyTrainWindow */
} buddyBuffer;

/* Bytes of a buffer's parts. */
typedef struct buddyRoom {
    size_t device;
    size_t metadata;
    size_t overflow;
} buddyRoom;

/* Writes the sizes of the parts of a buffer of `bytes` bytes. */
buddyError buddyBufferRoom(size_t bytes, buddyTarget target, buddyRoom *room);

/* Fills a buffer with zeros, in stream order; must be the first call. The memory needs no release. */
buddyError buddyBufferClear(const buddyBuffer *buffer, buddyStream stream);

/* Like buddyWrite, buddyRead and buddyReadChecked, for whole entries; only the last one waits. */
buddyError buddyBufferWrite(const buddyBuffer *buffer, size_t offset, buddyDevicePtr from, size_t bytes, buddyStream stream);
buddyError buddyBufferRead(const buddyBuffer *buffer, size_t offset, buddyDevicePtr to, size_t bytes, buddyStream stream);
buddyError buddyBufferReadChecked(const buddyBuffer *buffer, size_t offset, buddyDevicePtr to, size_t bytes, buddyStream stream);

/*
 * Trains bf16's window on a sample of device memory, aligned to 16 bytes, and leaves it in device
 * memory as a 32-bit number, in stream order. Read data with the window that it was written with.
 */
buddyError buddyTrainWindow(buddyDevicePtr data, size_t bytes, buddyDevicePtr window, buddyStream stream);

/*
 * A frozen buffer: read-only data packed into one piece of device memory, overflow included
 * (docs/reference/format.md). A bf16 matrix of whole entries is stored in tiles of 16 rows, as
 * buddyLinear reads it.
 */
typedef struct buddyFrozen {
    buddyDevicePtr memory; /* aligned to 128 bytes */
    size_t memory_bytes;
    size_t bytes;          /* of the data: whole 128-byte entries, whole rows of a matrix */
    size_t row_bytes;      /* of a matrix's row, a multiple of 128; 0 for no matrix */
    const char *codec;
    buddyTarget target;
} buddyFrozen;

/*
 * Writes the bytes of a frozen buffer whose data overflows by `sectors` sectors of 32 bytes.
 * buddyHistogram counts them: at 4/3x one per raw entry, at any target the sectors beyond it.
 */
buddyError buddyFrozenRoom(size_t bytes, size_t row_bytes, buddyTarget target, const char *codec, size_t sectors, size_t *room);

/*
 * Packs device memory. If the overflow does not fit, none is written; the first 8 bytes are then
 * zero instead of "BUDDYFZ", and bytes 48 to 51 hold the number of sectors needed.
 */
buddyError buddyFreeze(const buddyFrozen *frozen, buddyDevicePtr from, buddyStream stream);

/* Decompresses whole entries, or whole rows of a matrix from a multiple of 16 on. */
buddyError buddyFrozenRead(const buddyFrozen *frozen, size_t offset, buddyDevicePtr to, size_t bytes, buddyStream stream);

/* One linear layer, y = W x. */
typedef struct buddyLayer {
    buddyDevicePtr x;       /* bf16, a contiguous row per token; aligned to 16 bytes */
    buddyDevicePtr bias;    /* bf16, one value per output; 0 for none */
    buddyDevicePtr y;       /* a row of results per token */
    buddyDevicePtr scratch; /* aligned to 128 bytes */
    size_t scratch_bytes;
    size_t tokens;
    int wide;               /* nonzero for fp32 results, 0 for bf16 */
    int overlaps;           /* programmatic dependent launch; the preceding kernel must not write the weights */
} buddyLayer;

/* Writes the scratch bytes for up to `tokens` tokens. Concurrent layers need separate scratch memory. */
buddyError buddyLinearRoom(const buddyFrozen *weights, size_t tokens, size_t *room);

/* Initialises scratch memory, once; layers leave it initialised. */
buddyError buddyLinearPrepare(buddyDevicePtr scratch, size_t bytes, buddyStream stream);

/* Computes y = W x for frozen bf16 weights at 4/3x. Needs compute capability 9.0, or cuBLASLt. */
buddyError buddyLinear(const buddyFrozen *weights, const buddyLayer *layer, buddyStream stream);

/*
 * A writable bf16 matrix at 4/3x, multiplied in place. It is stored like a frozen one, but with an
 * overflow slot for every entry, so that rewriting a row moves and loses nothing.
 */
typedef struct buddyMatrix {
    buddyDevicePtr device;   /* device memory; all parts are aligned to 128 bytes */
    buddyDevicePtr metadata; /* device memory */
    buddyDevicePtr overflow; /* pinned host memory or device memory */
    size_t rows;
    size_t row_bytes;        /* a multiple of 128 */
    const char *codec;       /* "bf16", or with its window: "bf16:117" */
} buddyMatrix;

/* Writes the sizes of a matrix's parts. */
buddyError buddyMatrixRoom(size_t rows, size_t row_bytes, buddyRoom *room);

/* Fills a matrix with zeros, in stream order; must be the first call. */
buddyError buddyMatrixClear(const buddyMatrix *matrix, buddyStream stream);

/* Compresses and decompresses any rows. */
buddyError buddyMatrixWrite(const buddyMatrix *matrix, size_t first_row, buddyDevicePtr from, size_t rows, buddyStream stream);
buddyError buddyMatrixRead(const buddyMatrix *matrix, size_t first_row, buddyDevicePtr to, size_t rows, buddyStream stream);

/* Like buddyLinearRoom and buddyLinear. With `overlaps`, do not launch directly after writing the weights. */
buddyError buddyMatrixLinearRoom(const buddyMatrix *matrix, size_t tokens, size_t *room);
buddyError buddyMatrixLinear(const buddyMatrix *matrix, const buddyLayer *layer, buddyStream stream);

/*
 * A KV cache (bf16) in compressed memory at 4/3x, in the caller's memory; docs/explain/attention.md
 * explains it. This struct describes the cache completely. No function here waits or allocates, and
 * each can be captured in a graph after its first use. Needs a GPU of sm_90 or later.
 */
typedef struct buddyKv {
    uint32_t layers;
    uint32_t pages;           /* per layer */
    uint32_t heads;           /* KV heads */
    uint32_t head_values;     /* head dimension: 64 or 128 */
    uint32_t page_tokens;     /* a power of two, at least 16 */
    uint32_t reserved;
    buddyDevicePtr entries;   /* device memory; all parts are aligned to 128 bytes */
    buddyDevicePtr overflow;  /* pinned host memory, by its device address, or device memory */
    buddyDevicePtr metadata;  /* device memory */
} buddyKv;

/* Sizes of a KV cache's memory, in bytes. */
typedef struct buddyKvSizes {
    uint64_t entries;
    uint64_t overflow;
    uint64_t metadata;
    uint64_t scratch;         /* device memory: scratch of attention */
} buddyKvSizes;

/* Plain keys and values: [layer][token][head]. Strides are in values and multiples of 8; memory is aligned to 16 bytes. */
typedef struct buddyKvRows {
    buddyDevicePtr keys;
    buddyDevicePtr values;
    uint64_t layer_stride;
    uint64_t token_stride;
    uint32_t layer;           /* the first layer */
    uint32_t layers;          /* number of layers */
    uint32_t tokens;
    uint32_t reserved;
} buddyKvRows;

/* One attention call. group * tokens is at most 16. */
typedef struct buddyKvAttention {
    buddyDevicePtr queries;   /* [sequence][token][head] */
    buddyDevicePtr out;       /* in the same order */
    buddyDevicePtr table;     /* page table: table_pages 32-bit pages per sequence */
    buddyDevicePtr lengths;   /* tokens of each sequence (32 bits), query tokens included */
    buddyDevicePtr scratch;   /* zero before the first use; every call leaves it reusable */
    uint32_t table_pages;
    uint32_t sequences;
    uint32_t tokens;          /* query tokens of each sequence, its last ones, with a causal mask */
    uint32_t group;           /* query heads per KV head */
    uint32_t layer;
    float scale;              /* of the logits; usually 1 / sqrt(head_values) */
} buddyKvAttention;

/* The former name, kept for one version. */
typedef buddyKvAttention buddyKvAsked;

/* Writes the sizes of a cache's memory; its addresses are ignored. */
buddyError buddyKvSizesOf(const buddyKv *cache, uint32_t sequences, buddyKvSizes *sizes);

/* Fills all tokens with zeros and resets the windows. */
buddyError buddyKvClear(const buddyKv *cache, buddyStream stream);

/* Chooses the windows and shifts of the rows' layers. Call it before the first append to these layers, never after. */
buddyError buddyKvTrain(const buddyKv *cache, const buddyKvRows *rows, buddyStream stream);

/*
 * Appends row i to slots[i] (64 bits, device memory): page * page_tokens + position in the page.
 * Slots out of range are skipped; no two may be equal.
 */
buddyError buddyKvAppend(const buddyKv *cache, const buddyKvRows *rows, buddyDevicePtr slots, buddyStream stream);

/* Reads tokens of one sequence as [token][head]; `pages` are its pages (32 bits, device memory). */
buddyError buddyKvRead(const buddyKv *cache, uint32_t layer, buddyDevicePtr pages, uint32_t first, uint32_t count,
                       buddyDevicePtr keys, buddyDevicePtr values, buddyStream stream);

/* Computes attention of the last tokens of each sequence, in place. */
buddyError buddyKvAttend(const buddyKv *cache, const buddyKvAttention *attention, buddyStream stream);

/*
 * A sparse matrix in compressed rows (CSR), packed on the CPU and multiplied in place. Needs a GPU
 * only for buddyCsrMultiply. Every bit is kept. Columns of x and y are interleaved: column j of row i
 * is element i * columns + j.
 */
typedef struct buddyCsrArrays {
    uint32_t rows;
    uint32_t columns;
    const uint64_t *starts;  /* host memory: the first element of each row, and the number of elements */
    const uint32_t *indices; /* the column of each element */
    const void *values;      /* float or double */
    uint32_t value_bytes;    /* 4 or 8 */
    uint32_t reserved;       /* 0 */
} buddyCsrArrays;

/* Packs a matrix; the arrays may be freed afterwards. The handle is none of an allocation. */
buddyError buddyCsrCreate(buddyHandle *matrix, const buddyCsrArrays *arrays);

/* Writes the bytes of the packed matrix, and of the plain one with 32-bit columns. Either may be NULL. */
buddyError buddyCsrBytes(buddyHandle matrix, uint64_t *packed, uint64_t *plain);

/*
 * Enqueues y = A x on the device, for 1 to 8 columns. The first call in a context copies the matrix to
 * the device and compiles the kernels. Order calls with a matrix that has a row of more than 8192
 * elements: they share scratch memory.
 */
buddyError buddyCsrMultiply(buddyHandle matrix, buddyDevicePtr x, buddyDevicePtr y, size_t columns, buddyStream stream);

/* Computes y = A x on the CPU, with all cores. The result has the bits of buddyCsrMultiply. */
buddyError buddyCsrMultiplyHost(buddyHandle matrix, const void *x, void *y, size_t columns);

/* Frees a matrix and its copies after all work on them. */
buddyError buddyCsrDestroy(buddyHandle matrix);

/* Returns the static description of an error code. */
const char *buddyGetErrorString(buddyError error);

/* Returns the message of the last failure on this thread, valid until the next failure. */
const char *buddyGetLastErrorMessage(void);

#ifdef __cplusplus
}
#endif
#endif
