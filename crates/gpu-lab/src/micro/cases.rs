//! The small kernels with their arguments, in sizes that depend on the GPU.

/// A kernel argument.
#[derive(Debug, Clone, Copy)]
pub(super) enum Given {
    /// The address of its n-th array.
    Array(usize),
    Int(i32),
    Float(f32),
    Double(f64),
}

/// Initial content of an array; left uninitialised where addresses do not depend on it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Holds {
    Anything,
    /// 8-byte pointers into the same array, one in every `every` bytes, in random order.
    Ring {
        every: u64,
    },
    /// Random numbers below a limit.
    Random {
        below: u32,
    },
    /// Row offsets: 8 to 24 elements per row, at random.
    Rows,
    Zeros,
}

/// A kernel with its arguments.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) group: &'static str,
    pub(super) file: &'static str,
    pub(super) kernel: &'static str,
    pub(super) blocks: (u32, u32),
    pub(super) threads: u32,
    pub(super) given: Vec<Given>,
    pub(super) arrays: Vec<(u64, Holds)>,
    /// True if L2 is warm from the run before.
    pub(super) warm: bool,
    /// Lowest architecture: 80 for `sm_80`.
    pub(super) least: u32,
}

/// Properties of the GPU that sizes depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Card {
    pub(super) multiprocessors: u32,
    pub(super) l2_bytes: u64,
}

use Given::{Array, Double, Float, Int};
use Holds::{Anything, Random, Ring, Rows, Zeros};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn case(group: &'static str, file: &'static str, kernel: &'static str, name: impl Into<String>) -> Case {
    Case {
        name: name.into(),
        group,
        file,
        kernel,
        blocks: (1, 1),
        threads: 32,
        given: Vec::new(),
        arrays: Vec::new(),
        warm: false,
        least: 70,
    }
}

impl Case {
    fn grid(mut self, blocks: u32, threads: u32) -> Self {
        (self.blocks, self.threads) = ((blocks, 1), threads);
        self
    }

    fn plane(mut self, blocks: (u32, u32), threads: u32) -> Self {
        (self.blocks, self.threads) = (blocks, threads);
        self
    }

    fn given<const N: usize>(mut self, given: [Given; N]) -> Self {
        self.given = given.to_vec();
        self
    }

    fn arrays<const N: usize>(mut self, arrays: [(u64, Holds); N]) -> Self {
        self.arrays = arrays.to_vec();
        self
    }

    fn warm(mut self) -> Self {
        self.warm = true;
        self.name += "_warm";
        self
    }
}

/// Lists every case for a GPU.
pub(super) fn all(card: Card) -> Vec<Case> {
    let parts = [launches, latencies, streams, scattered, atomics, pipes, blocks, kernels];
    parts.iter().flat_map(|part| part(card)).collect()
}

fn launches(card: Card) -> Vec<Case> {
    let sms = card.multiprocessors;
    let empty =
        |name: &str, blocks, threads| case("launch", "launch.cu", "empty", name).grid(blocks, threads);
    let small = |name: &str, blocks: u32, threads| {
        let made = case("launch", "launch.cu", "small_blocks", name).grid(blocks, threads);
        made.given([Array(0)]).arrays([(4 * u64::from(blocks), Anything)])
    };
    vec![
        empty("empty_1", 1, 32),
        empty("empty_wave", sms, 1024),
        small("blocks_16k_1warp", 16 << 10, 32),
        small("blocks_64k_1warp", 64 << 10, 32),
        small("blocks_16k_8warps", 16 << 10, 256),
        small("blocks_4k_32warps", 4 << 10, 1024),
    ]
}

fn latencies(card: Card) -> Vec<Case> {
    let chase = |name: &str, bytes: u64, every: u64| {
        let made = case("latency", "latency.cu", "chase", name).grid(1, 1);
        made.given([Array(0), Int(2048), Array(1)]).arrays([(bytes, Ring { every }), (8, Anything)])
    };
    vec![
        chase("chase_l1", 16 * KIB, 128),
        chase("chase_l2", card.l2_bytes / 8, 4096).warm(),
        chase("chase_memory", card.l2_bytes / 8, 4096),
        chase("chase_memory_far", 256 * MIB, 64 * KIB),
        case("latency", "latency.cu", "chase_shared", "chase_shared")
            .grid(1, 1)
            .given([Int(2048), Array(0)])
            .arrays([(4 * KIB, Anything)]),
    ]
}

fn streams(card: Card) -> Vec<Case> {
    let (sms, l2) = (card.multiprocessors, card.l2_bytes);
    let one = |kernel, name: String, arrays: u64, bytes: u64, blocks: u32| {
        let n = Int((bytes / 16) as i32);
        let made = case("stream", "stream.cu", kernel, name).grid(blocks, 256);
        match arrays {
            1 => made.given([Array(0), n]).arrays([(bytes, Anything)]),
            2 => made.given([Array(0), Array(1), n]).arrays([(bytes, Anything), (bytes, Anything)]),
            _ => made.given([Array(0), Array(1), Array(2), n]).arrays([(bytes, Anything); 3]),
        }
    };
    let read = |name: String, bytes: u64, blocks: u32| {
        let made = case("stream", "stream.cu", "read4", name).grid(blocks, 256);
        let out = 1024 * u64::from(blocks);
        made.given([Array(0), Int((bytes / 16) as i32), Array(1)])
            .arrays([(bytes, Anything), (out, Anything)])
    };
    let strided = |kernel, name: &str, stride: u64| {
        let threads = 4096 * 256;
        let made = case("strided", "stream.cu", kernel, name).grid(4096, 256);
        let array = (4 * threads * stride, Anything);
        match kernel {
            "strided_read" => {
                made.given([Array(0), Int(stride as i32), Array(1)]).arrays([array, (4 * threads, Anything)])
            }
            _ => made.given([Array(0), Int(stride as i32)]).arrays([array]),
        }
    };
    let add = |name: &str, bytes: u64| {
        let n = bytes / 4;
        let made = case("stream", "stream.cu", "vector_add", name).grid((n / 256) as u32, 256);
        made.given([Array(0), Array(1), Array(2), Int(n as i32)]).arrays([(bytes, Anything); 3])
    };
    vec![
        read("read_1_block".to_owned(), MIB, 1),
        read("read_half_the_sms".to_owned(), 2 * l2, sms / 2),
        read("read_wave".to_owned(), 2 * l2, sms),
        read("read_full".to_owned(), 2 * l2, 8 * sms),
        read("read_l2".to_owned(), l2 / 4, 8 * sms).warm(),
        one("write4", "write_full".to_owned(), 1, 2 * l2, 8 * sms),
        one("copy4", "copy_small".to_owned(), 2, 2 * MIB, 2 * sms),
        one("copy4", "copy_l2_size".to_owned(), 2, l2 / 2, 8 * sms),
        one("copy4", "copy_full".to_owned(), 2, 2 * l2, 8 * sms),
        one("triad4", "triad_full".to_owned(), 3, 2 * l2, 8 * sms),
        add("add_4MB", 4 * MIB),
        add("add_64MB", 64 * MIB),
        strided("strided_read", "strided_read_2", 2),
        strided("strided_read", "strided_read_8", 8),
        strided("strided_read", "strided_read_32", 32),
        strided("strided_write", "strided_write_8", 8),
    ]
}

fn scattered(card: Card) -> Vec<Case> {
    let threads = 4096 * 256u64;
    let move_ = |kernel, name: &str, bytes: u64| {
        let random = (4 * threads, Random { below: (bytes / 4) as u32 });
        let made = case("scattered", "scatter.cu", kernel, name).grid(4096, 256).given([
            Array(0),
            Array(1),
            Array(2),
        ]);
        let (large, small) = ((bytes, Anything), (4 * threads, Anything));
        if kernel == "gather" {
            made.arrays([random, large, small])
        } else {
            made.arrays([random, small, large])
        }
    };
    let rows = 1 << 16;
    let spmv = |kernel, name: &str, blocks| {
        let made = case("scattered", "scatter.cu", kernel, name).grid(blocks, 256);
        let entries = 24 * rows;
        let columns = (4 * entries, Random { below: rows as u32 });
        made.given([Array(0), Array(1), Array(2), Array(3), Array(4), Int(rows as i32)]).arrays([
            (4 * (rows + 1), Rows),
            columns,
            (4 * entries, Anything),
            (4 * rows, Anything),
            (4 * rows, Anything),
        ])
    };
    vec![
        move_("gather", "gather_l2", card.l2_bytes / 8),
        move_("gather", "gather_memory", 256 * MIB),
        move_("scatter", "scatter_memory", 256 * MIB),
        spmv("spmv_thread", "spmv_thread", (rows / 256) as u32),
        spmv("spmv_warp", "spmv_warp", (rows / 8) as u32),
    ]
}

fn atomics(card: Card) -> Vec<Case> {
    let sms = card.multiprocessors;
    let global = |name: &str, mask: i32| {
        let data = (16 * 1024 * 256, Random { below: 1 << 20 });
        let made = case("atomics", "atomics.cu", "histogram_global", name).grid(1024, 256);
        made.given([Array(0), Array(1), Int(mask)]).arrays([data, (4 * (mask as u64 + 1), Zeros)])
    };
    let n = 1 << 20;
    vec![
        case("atomics", "atomics.cu", "atomic_same", "atomic_same")
            .grid(sms, 256)
            .given([Array(0), Int(4)])
            .arrays([(4, Zeros)]),
        case("atomics", "atomics.cu", "atomic_warp", "atomic_warp")
            .grid(2048, 256)
            .given([Array(0)])
            .arrays([(2048 * 8 * 32, Zeros)]),
        case("atomics", "atomics.cu", "atomic_own", "atomic_own")
            .grid(2048, 256)
            .given([Array(0), Array(1)])
            .arrays([(4 * 2048 * 256, Zeros), (4 * 2048 * 256, Anything)]),
        global("histogram_global_64", 63),
        global("histogram_global_64k", 65535),
        case("atomics", "atomics.cu", "histogram_shared", "histogram_shared_256")
            .grid(2 * sms, 256)
            .given([Array(0), Array(1), Int(255), Int(n)])
            .arrays([(4 * n as u64, Random { below: 1 << 20 }), (4 * 256, Zeros)]),
    ]
}

fn pipes(card: Card) -> Vec<Case> {
    let sms = card.multiprocessors;
    let out = |warps: u32| (8 * u64::from(sms * warps * 32), Anything);
    let float = |kernel, name: &str, warps: u32, turns| {
        let made = case("pipes", "pipes.cu", kernel, name).grid(sms, 32 * warps);
        made.given([Float(0.5), Float(0.25), Int(turns), Array(0)]).arrays([out(warps)])
    };
    let double = |kernel, name: &str, warps: u32, turns| {
        let made = case("pipes", "pipes.cu", kernel, name).grid(sms, 32 * warps);
        made.given([Double(0.5), Double(0.25), Int(turns), Array(0)]).arrays([out(warps)])
    };
    let int = |kernel, name: &str, warps: u32, turns| {
        let made = case("pipes", "pipes.cu", kernel, name).grid(sms, 32 * warps);
        made.given([Int(3), Int(5), Int(turns), Array(0)]).arrays([out(warps)])
    };
    let tensor = |name: &str, warps: u32, turns| {
        let made = case("pipes", "pipes.cu", "tensor_4", name).grid(sms, 32 * warps);
        Case { least: 80, ..made.given([Int(turns), Array(0)]).arrays([out(warps)]) }
    };
    vec![
        float("fma32_1", "fma32_chain1_4warps", 4, 64),
        float("fma32_1", "fma32_chain1_16warps", 16, 32),
        float("fma32_4", "fma32_chain4_16warps", 16, 16),
        double("fma64_1", "fma64_chain1_4warps", 4, 64),
        double("fma64_4", "fma64_chain4_16warps", 16, 16),
        int("imad_1", "imad_chain1_4warps", 4, 64),
        int("imad_4", "imad_chain4_16warps", 16, 16),
        int("logic_4", "logic_chain4_16warps", 16, 16),
        float("exponential_1", "exponential_chain1_4warps", 4, 64),
        float("exponential_4", "exponential_chain4_16warps", 16, 16),
        float("mixed_4", "mixed_chain4_16warps", 16, 16),
        tensor("tensor_4warps", 4, 128),
        tensor("tensor_16warps", 16, 64),
    ]
}

fn blocks(card: Card) -> Vec<Case> {
    let sms = card.multiprocessors;
    let out = |warps: u32| (4 * u64::from(sms * warps * 32), Anything);
    let shared = |name: &str, stride, warps: u32| {
        let made = case("block", "block.cu", "shared_read", name).grid(sms, 32 * warps);
        made.given([Int(stride), Int(16), Array(0)]).arrays([out(warps)])
    };
    let barriers = |name: &str, warps: u32| {
        case("block", "block.cu", "barriers", name).grid(sms, 32 * warps).given([Int(16)])
    };
    vec![
        barriers("barriers_4warps", 4),
        barriers("barriers_32warps", 32),
        case("block", "block.cu", "shuffles", "shuffles_16warps")
            .grid(sms, 512)
            .given([Int(16), Array(0)])
            .arrays([out(16)]),
        shared("shared_stride_1", 1, 16),
        shared("shared_stride_2", 2, 16),
        shared("shared_stride_8", 8, 16),
        shared("shared_stride_32", 32, 16),
        case("block", "block.cu", "cached_read", "cached_read_16warps")
            .grid(sms, 512)
            .given([Array(0), Int(16), Array(1)])
            .arrays([(4 * (512 + 16 * 256), Anything), out(16)]),
    ]
}

fn kernels(_: Card) -> Vec<Case> {
    let square = |kernel, n: u64, per: (u64, u64)| {
        let made = case("kernels", "kernels.cu", kernel, kernel)
            .plane(((n / per.0) as u32, (n / per.1) as u32), 256);
        made.given([Array(0), Array(1), Int(n as i32)]).arrays([(4 * n * n, Anything); 2])
    };
    let n = 2048;
    let side = 128u64;
    vec![
        case("kernels", "kernels.cu", "reduce", "reduce")
            .grid(1024, 256)
            .given([Array(0), Array(1), Int(16 << 20)])
            .arrays([(64 * MIB, Anything), (4 * KIB, Anything)]),
        square("transpose", n, (32, 32)),
        square("transpose_tile", n, (32, 32)),
        square("stencil2d", n, (64, 4)),
        case("kernels", "kernels.cu", "stencil3d", "stencil3d")
            .plane((side as u32, side as u32), side as u32)
            .given([Array(0), Array(1), Int(side as i32)])
            .arrays([(4 * side * side * side, Anything); 2]),
        case("kernels", "kernels.cu", "gemm", "gemm_512")
            .plane((16, 16), 256)
            .given([Array(0), Array(1), Array(2), Int(512)])
            .arrays([(4 * 512 * 512, Anything); 3]),
        case("kernels", "kernels.cu", "softmax", "softmax")
            .grid(2048, 256)
            .given([Array(0), Array(1), Int(2048)])
            .arrays([(4 * 2048 * 2048, Anything); 2]),
    ]
}
