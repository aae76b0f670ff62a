//! Random programs against a model: a `Vec<u8>` per allocation.

use buddy_codec::CodecKind;
use buddy_core::{Target, TargetRange, Targets};
use buddy_memory::{BuddyMemory, Error, Handle, Request, Spec};
use proptest::{prelude::*, sample::Index};

const PAGE: u64 = 8192;
const DEVICE: u64 = 24 * PAGE;

/// One step of a program. Allocation and offset are drawn as fractions of what exists.
#[derive(Debug, Clone)]
enum Step {
    Allocate {
        bytes: u64,
        plan: Vec<Target>,
    },
    AllocatePlain {
        bytes: u64,
    },
    Free {
        which: Index,
    },
    /// Most are truncated to fit; the others may be refused.
    Write {
        which: Index,
        offset: Index,
        data: Data,
        fit: bool,
    },
    Read {
        which: Index,
        offset: Index,
        len: Index,
    },
    Retarget {
        which: Index,
        plan: Vec<Target>,
    },
    UseFreed {
        which: Index,
    },
}

/// Data of some kind and length.
#[derive(Debug, Clone)]
struct Data {
    kind: Kind,
    seed: u32,
    len: usize,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Zeros,
    Ramp,
    Smooth,
    Pointers,
    Sparse,
    Noise,
}

impl Data {
    fn bytes(&self) -> Vec<u8> {
        let mut noise = self.seed | 1;
        let mut bytes = Vec::new();
        for i in 0..self.len.div_ceil(4) as u32 {
            noise ^= noise << 13;
            noise ^= noise >> 17;
            noise ^= noise << 5;
            let word = match self.kind {
                Kind::Zeros => 0,
                Kind::Ramp => self.seed.wrapping_add(i.wrapping_mul(self.seed & 0xff)),
                Kind::Smooth => ((i as f32 * 0.01).sin() + 2.0).to_bits(),
                Kind::Pointers if i % 2 == 1 => 0x5555,
                Kind::Pointers => (self.seed & 0xffff) + 64 * i,
                Kind::Sparse if noise.is_multiple_of(11) => noise,
                Kind::Sparse => 0,
                Kind::Noise => noise,
            };
            bytes.extend(word.to_le_bytes());
        }
        bytes.truncate(self.len);
        bytes
    }
}

fn data() -> impl Strategy<Value = Data> {
    let kinds = [Kind::Zeros, Kind::Ramp, Kind::Smooth, Kind::Pointers, Kind::Sparse, Kind::Noise];
    // Words, entries, parts of entries, and pages.
    let len = prop_oneof![0..16usize, 100..400usize, Just(128), 5000..20_000usize];
    (prop::sample::select(kinds.to_vec()), any::<u32>(), len).prop_map(|(kind, seed, len)| Data {
        kind,
        seed,
        len,
    })
}

/// One target, or one per range of pages.
fn plan() -> impl Strategy<Value = Vec<Target>> {
    prop::collection::vec(prop::sample::select([&Target::ALL[..], &[Target::Uncompressed]].concat()), 1..4)
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || prop_oneof![1..300u64, 1..12 * PAGE];
    prop_oneof![
        3 => (bytes(), plan()).prop_map(|(bytes, plan)| Step::Allocate { bytes, plan }),
        1 => bytes().prop_map(|bytes| Step::AllocatePlain { bytes }),
        2 => any::<Index>().prop_map(|which| Step::Free { which }),
        8 => (any::<(Index, Index)>(), data(), prop::bool::weighted(0.8))
            .prop_map(|((which, offset), data, fit)| Step::Write { which, offset, data, fit }),
        4 => any::<(Index, Index, Index)>().prop_map(|(which, offset, len)| Step::Read { which, offset, len }),
        2 => (any::<Index>(), plan()).prop_map(|(which, plan)| Step::Retarget { which, plan }),
        1 => any::<Index>().prop_map(|which| Step::UseFreed { which }),
    ]
}

/// Splits the pages of `bytes` into one range per target of the plan.
fn targets(plan: &[Target], bytes: u64) -> Targets {
    let pages = bytes.div_ceil(PAGE);
    if let [target] = plan {
        return Targets::Uniform(*target);
    }
    let count = (plan.len() as u64).min(pages);
    let range =
        |i: u64| TargetRange { pages: pages * (i + 1) / count - pages * i / count, target: plan[i as usize] };
    Targets::Pages((0..count).map(range).collect())
}

/// The memory and its expected contents.
struct Twins {
    memory: BuddyMemory,
    live: Vec<(Handle, Vec<u8>)>,
    freed: Vec<Handle>,
}

impl Twins {
    fn new() -> Self {
        let memory = BuddyMemory::new(Spec::new(DEVICE)).unwrap();
        Self { memory, live: Vec::new(), freed: Vec::new() }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Allocate { bytes, plan } => {
                self.allocate(&Request::new(bytes, CodecKind::Bpc.train(&[]), targets(&plan, bytes)));
            }
            Step::AllocatePlain { bytes } => self.allocate(&Request::plain(bytes)),
            Step::UseFreed { which } if !self.freed.is_empty() => self.use_freed(*which.get(&self.freed)),
            _ if self.live.is_empty() => {}
            Step::Free { which } => self.free(which.index(self.live.len())),
            Step::Write { which, offset, data, fit } => {
                self.write(which.index(self.live.len()), offset, data.bytes(), fit);
            }
            Step::Read { which, offset, len } => self.read(which.index(self.live.len()), offset, len),
            Step::Retarget { which, plan } => self.retarget(which.index(self.live.len()), &plan),
            Step::UseFreed { .. } => {}
        }
    }

    fn allocate(&mut self, request: &Request) {
        match self.memory.allocate(request) {
            Ok(handle) => self.live.push((handle, vec![0; request.bytes as usize])),
            Err(error) => assert!(is_exhaustion(&error), "{error}"),
        }
    }

    fn free(&mut self, index: usize) {
        let (handle, _) = self.live.swap_remove(index);
        self.memory.free(handle).unwrap();
        self.freed.push(handle);
    }

    fn write(&mut self, index: usize, offset: Index, mut data: Vec<u8>, fit: bool) {
        let (handle, bytes) = &mut self.live[index];
        let offset = offset.index(bytes.len());
        if fit {
            data.truncate(bytes.len() - offset);
        }
        let written = self.memory.write(*handle, offset as u64, &data);
        match bytes.get_mut(offset..offset + data.len()) {
            Some(part) => {
                part.copy_from_slice(&data);
                assert_eq!(written, Ok(()));
            }
            None => assert!(matches!(written, Err(Error::OutOfRange { .. }))),
        }
    }

    fn read(&self, index: usize, offset: Index, len: Index) {
        let (handle, bytes) = &self.live[index];
        let offset = offset.index(bytes.len());
        let mut out = vec![0xcc; len.index(bytes.len() - offset + 1)];
        self.memory.read(*handle, offset as u64, &mut out).unwrap();
        assert_eq!(out, bytes[offset..][..out.len()]);
    }

    fn retarget(&mut self, index: usize, plan: &[Target]) {
        let (handle, bytes) = &self.live[index];
        match self.memory.retarget(*handle, &targets(plan, bytes.len() as u64)) {
            Ok(_) => {}
            Err(Error::NotCompressed(refused)) => assert_eq!(refused, *handle),
            Err(error) => assert!(is_exhaustion(&error), "{error}"),
        }
    }

    fn use_freed(&self, handle: Handle) {
        assert_eq!(self.memory.read(handle, 0, &mut [0]), Err(Error::Freed(handle)));
        assert_eq!(self.memory.write(handle, 0, &[1]), Err(Error::Freed(handle)));
        assert_eq!(self.memory.free(handle), Err(Error::Freed(handle)));
    }

    /// Checks every byte of every allocation, and the accounting.
    fn check(&self) {
        for (handle, bytes) in &self.live {
            let mut out = vec![0xcc; bytes.len()];
            self.memory.read(*handle, 0, &mut out).unwrap();
            assert_eq!(&out, bytes);
        }
        let report = self.memory.report();
        let total = &report.total;
        assert_eq!(total.bytes, self.live.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>());
        assert_eq!(total.device_bytes + report.free.device.total, DEVICE);
        assert_eq!(total.buddy_bytes + report.free.carve_out.total, 3 * DEVICE);
    }
}

fn is_exhaustion(error: &Error) -> bool {
    use Error::{CarveOutExhausted, DeviceExhausted, PagesExhausted};
    matches!(error, DeviceExhausted { .. } | CarveOutExhausted { .. } | PagesExhausted { .. })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
    #[test]
    fn any_program_reads_what_it_wrote(steps in prop::collection::vec(step(), 1..60)) {
        let mut twins = Twins::new();
        for step in steps {
            twins.take(step);
        }
        twins.check();
        while !twins.live.is_empty() {
            twins.free(0);
        }
        let free = twins.memory.free_space();
        prop_assert_eq!((free.device.largest, free.carve_out.largest), (DEVICE, 3 * DEVICE));
        prop_assert_eq!((free.device.runs, free.carve_out.runs, free.pages.runs), (1, 1, 1));
    }
}
