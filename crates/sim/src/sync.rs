//! Synchronization of a simulation's threads: meetings between steps, and turns of SMs.
//!
//! A step takes some ten microseconds, so threads spin before they yield.

use std::{
    hint, iter,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

/// Tests of a condition before a thread yields its core: a few microseconds.
const SPINS: u32 = 1 << 9;

/// Waits until a condition holds.
fn wait_until(condition: impl Fn() -> bool) {
    let mut spins = 0;
    while !condition() {
        spins += 1;
        if spins < SPINS { hint::spin_loop() } else { thread::yield_now() }
    }
}

/// A barrier of all threads. A thread that panics makes the others panic instead of wait for ever.
#[derive(Debug)]
pub(crate) struct Meeting {
    threads: usize,
    arrived: AtomicUsize,
    number: AtomicUsize,
    left: AtomicBool,
}

impl Meeting {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            threads,
            arrived: AtomicUsize::new(0),
            number: AtomicUsize::new(0),
            left: AtomicBool::new(false),
        }
    }

    /// Waits until all threads have called this.
    ///
    /// # Panics
    /// If another thread has panicked.
    pub(crate) fn wait(&self) {
        let number = self.number.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.number.store(number.wrapping_add(1), Ordering::Release);
            return;
        }
        wait_until(|| self.number.load(Ordering::Acquire) != number || self.left.load(Ordering::Relaxed));
        assert!(!self.left.load(Ordering::Relaxed), "another thread of the simulation panicked");
    }

    /// Makes all threads panic that wait.
    pub(crate) fn leave(&self) {
        self.left.store(true, Ordering::Relaxed);
    }
}

/// The order of SMs in a window: an SM's turn comes when all SMs of lower numbers have ended it.
#[derive(Debug)]
pub(crate) struct Turns {
    /// For each thread, an SM below which all of its SMs have ended the window.
    ended_below: Vec<Aligned>,
}

/// A counter in a host cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Aligned(AtomicUsize);

impl Turns {
    pub(crate) fn new(threads: usize) -> Self {
        let turns = iter::repeat_with(|| Aligned(AtomicUsize::new(usize::MAX))).take(threads).collect();
        Self { ended_below: turns }
    }

    /// Begins a window on all threads.
    pub(crate) fn begin(&self) {
        self.ended_below.iter().for_each(|thread| thread.0.store(0, Ordering::Relaxed));
    }

    /// Begins an SM; the thread's SMs of lower numbers have ended.
    pub(crate) fn begin_sm(&self, thread: usize, sm: u16) {
        self.ended_below[thread].0.store(usize::from(sm), Ordering::Release);
    }

    /// Ends the window on a thread.
    pub(crate) fn end(&self, thread: usize) {
        self.ended_below[thread].0.store(usize::MAX, Ordering::Release);
    }

    /// Waits until all SMs below this one have ended the window.
    pub(crate) fn wait(&self, sm: u16) {
        for thread in &self.ended_below {
            wait_until(|| thread.0.load(Ordering::Acquire) >= usize::from(sm));
        }
    }
}
