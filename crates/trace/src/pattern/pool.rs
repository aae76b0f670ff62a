//! Pooling: the maximum or mean of a window of an image, and its gradient.

use super::{Array, lanes_for};
use crate::{At, Code, Error, Inst, Kernel, Launch, NO_REGISTER, Op, WARP_LANES};

/// A pooling kernel: one thread per output forward, per input backward.
#[derive(Debug, Clone)]
pub struct Pool {
    launch: Launch,
    arrays: Vec<Array>,
    to: Array,
    from: Window,
    threads: u64,
    backward: bool,
}

/// Geometry of a pooling layer: each channel of each image is a plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Planes: images times channels.
    pub planes: u64,
    /// Rows and columns of a plane of the input.
    pub input: [u64; 2],
    /// Rows and columns of a plane of the output.
    pub output: [u64; 2],
    /// Rows and columns of a window.
    pub kernel: u64,
    /// Pixels between windows.
    pub stride: u64,
    /// Zero padding in pixels.
    pub pad: u64,
}

/// Threads of a block.
const THREADS: u64 = 256;

impl Pool {
    /// Creates the forward pass.
    pub fn forward(name: &str, window: Window, input: Array, output: Array) -> Self {
        Self::new(name, window, vec![input], output, false)
    }

    /// Creates the backward pass, from input, output and its gradient to the gradient of the input.
    /// Each input reads the last window that contains it.
    pub fn backward(name: &str, window: Window, input: Array, output: [Array; 2], gradient: Array) -> Self {
        Self::new(name, window, vec![input, output[0], output[1]], gradient, true)
    }

    /// Makes the kernel accumulate into the gradient of the input.
    pub fn accumulating(mut self) -> Self {
        self.arrays.push(self.to);
        self
    }

    fn new(name: &str, from: Window, arrays: Vec<Array>, to: Array, backward: bool) -> Self {
        let [rows, columns] = if backward { from.input } else { from.output };
        let threads = from.planes * rows * columns;
        let blocks = u32::try_from(threads.div_ceil(THREADS)).expect("at most 2^40 pixels");
        let launch = Launch::linear(name, blocks, THREADS as u32);
        Self { launch, arrays, to, from, threads, backward }
    }

    /// Returns the warp instructions of a whole run, counting edges as interior.
    pub fn instructions(&self) -> u64 {
        let loads =
            if self.backward { self.arrays.len() as u64 } else { self.from.kernel * self.from.kernel };
        self.threads.div_ceil(u64::from(WARP_LANES)) * (2 * loads + 2)
    }

    /// Returns the plane, row and column of a thread.
    fn coordinates(&self, thread: u64) -> [u64; 3] {
        let [rows, columns] = if self.backward { self.from.input } else { self.from.output };
        [thread / (rows * columns), thread / columns % rows, thread % columns]
    }

    /// Returns the input that a thread's window has at a tap.
    fn tap(&self, [plane, row, column]: [u64; 3], tap: u64) -> Option<u64> {
        let Window { input, kernel, stride, pad, .. } = self.from;
        let pixel =
            |at: u64, tap: u64, size: u64| (at * stride + tap).checked_sub(pad).filter(|&at| at < size);
        let (y, x) = (pixel(row, tap / kernel, input[0])?, pixel(column, tap % kernel, input[1])?);
        Some((plane * input[0] + y) * input[1] + x)
    }

    /// Returns the last window that contains a thread's input.
    fn window(&self, [plane, row, column]: [u64; 3]) -> u64 {
        let Window { output, stride, pad, .. } = self.from;
        let window = |at: u64, windows: u64| ((at + pad) / stride).min(windows - 1);
        (plane * output[0] + window(row, output[0])) * output[1] + window(column, output[1])
    }

    fn fill_load(&self, array: Array, mask: u32, elements: &[Option<u64>], register: u8, code: &mut Code) {
        let (mut lanes, mut addresses) = (0, Vec::with_capacity(32));
        for (lane, element) in elements.iter().enumerate().filter(|(lane, _)| mask & 1 << lane != 0) {
            if let Some(element) = element {
                lanes |= 1 << lane;
                addresses.push(array.address(*element));
            }
        }
        if lanes != 0 {
            let load = Inst::new(Op::LoadGlobal, register, &[2]).masked(lanes);
            code.push_list(load, array.element_bytes, &addresses);
            code.push(Inst::new(Op::Fp32, 8, &[8, register]));
        }
    }
}

impl Kernel for Pool {
    fn launch(&self) -> &Launch {
        &self.launch
    }

    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error> {
        let first = at.block * THREADS + u64::from(at.warp * WARP_LANES);
        if at.step > 0 || first >= self.threads {
            return Ok(());
        }
        let mask = lanes_for(self.threads - first);
        let places: Vec<[u64; 3]> = (first..first + 32).map(|thread| self.coordinates(thread)).collect();
        code.push(Inst::new(Op::Int, 2, &[2]));
        if self.backward {
            let windows: Vec<_> = places.iter().map(|&place| Some(self.window(place))).collect();
            let own: Vec<_> = (first..first + 32).map(Some).collect();
            for (array, (elements, register)) in
                self.arrays.iter().zip([(&own, 16), (&windows, 17), (&windows, 18), (&own, 19)])
            {
                self.fill_load(*array, mask, elements, register, code);
            }
        } else {
            for tap in 0..self.from.kernel * self.from.kernel {
                let elements: Vec<_> = places.iter().map(|&place| self.tap(place, tap)).collect();
                self.fill_load(self.arrays[0], mask, &elements, 16 + (tap % 16) as u8, code);
            }
        }
        let bytes = self.to.element_bytes;
        let store = Inst::new(Op::StoreGlobal, NO_REGISTER, &[2, 8]).masked(mask);
        code.push(store.at(self.to.address(first), i32::from(bytes), bytes));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Addresses;

    const WINDOW: Window = Window { planes: 2, input: [6, 6], output: [3, 3], kernel: 3, stride: 2, pad: 1 };

    fn loads(pool: &mut Pool) -> Vec<Vec<u64>> {
        let mut code = Code::default();
        pool.fill(At { block: 0, warp: 0, step: 0 }, &mut code).unwrap();
        let loads = code.insts().iter().filter(|inst| inst.op == Op::LoadGlobal);
        loads
            .map(|inst| match code.addresses(inst) {
                Addresses::List(list) => list.to_vec(),
                Addresses::Strided { .. } => panic!("only lists"),
            })
            .collect()
    }

    #[test]
    fn windows_stay_inside_their_planes() {
        let array = |base| Array { base, element_bytes: 4 };
        let forward = loads(&mut Pool::forward("pool", WINDOW, array(0), array(1 << 20)));
        assert_eq!(forward.len(), 9);
        // The first tap is in the padding for the first row and column of windows: 4 of 9 are left
        // per plane.
        assert_eq!(forward[0], [7, 9, 19, 21, 43, 45, 55, 57].map(|pixel| pixel * 4));
        // The middle tap reads every second pixel.
        assert_eq!(forward[4][..3], [0, 8, 16]);
        let backward = loads(&mut Pool::backward(
            "back",
            WINDOW,
            array(0),
            [array(1 << 20), array(1 << 21)],
            array(1 << 22),
        ));
        assert_eq!(backward[0], (0..32).map(|pixel| pixel * 4).collect::<Vec<_>>());
        // Pixels 0 to 5 of a row are in windows 0, 1, 1, 2, 2 and the last.
        assert_eq!(backward[1][..6], [0, 1, 1, 2, 2, 2].map(|window| (1 << 20) + window * 4));
        assert!(backward[2].iter().all(|&address| ((1 << 21)..(1 << 21) + 18 * 4).contains(&address)));
    }
}
