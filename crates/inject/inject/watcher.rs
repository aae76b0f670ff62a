//! State shared by the callbacks: the allocation table, the snapshot schedule and the log.

use std::{
    collections::BTreeMap,
    ffi::CStr,
    fmt::Write as _,
    fs::{self, File},
    io::Write as _,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use crate::{
    PIECES,
    accesses::Accesses,
    book::{Book, Event, Span},
    calls::{Call, Parameters},
    driver::Driver,
    look::Contexts,
    pieces::Named,
    settings::{Settings, When, rank},
    site::Sites,
    spacing::Spacing,
};

pub(crate) struct Watcher {
    settings: Settings,
    driver: Driver,
    began: Instant,
    /// The watched process; a fork of it has no GPU and writes nothing.
    pid: u32,
    launches: AtomicU64,
    /// Launches that count for the schedule, and the launch at which a snapshot is due.
    ticks: AtomicU64,
    next: AtomicU64,
    /// True while a thread takes a snapshot; other threads' launches wait for it.
    looking: AtomicBool,
    state: Mutex<State>,
}

struct State {
    log: File,
    book: Book,
    sites: Sites,
    spacing: Spacing,
    contexts: Contexts,
    accesses: Accesses,
    unfollowed: u64,
    /// True if the program reports pieces of its memory.
    cuts: bool,
    /// Snapshots in the log, and those kept.
    looks: u64,
    kept: Vec<u64>,
    described: bool,
}

impl Watcher {
    pub(crate) fn open() -> Result<Self, String> {
        let (mut settings, driver, pid) = (Settings::read()?, Driver::open()?, std::process::id());
        let mut log = settings.begin_log(pid)?;
        let _ = log.write_all(header(&settings, pid).as_bytes());
        let spacing = Spacing::new(settings.every, settings.limited);
        let state = State {
            log,
            book: Book::default(),
            sites: Sites::default(),
            spacing,
            contexts: Contexts::default(),
            accesses: Accesses::default(),
            unfollowed: 0,
            cuts: false,
            looks: 0,
            kept: Vec::new(),
            described: false,
        };
        Ok(Self {
            next: AtomicU64::new(spacing.next()),
            settings,
            driver,
            began: Instant::now(),
            pid,
            launches: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            looking: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line to the log.
    pub(crate) fn note(&self, line: &str) {
        if std::process::id() == self.pid {
            self.state().write(format!("{line}\n"));
        }
    }

    /// Writes the last lines when the process exits normally.
    pub(crate) fn end(&self) {
        if std::process::id() != self.pid {
            return;
        }
        let mut state = self.state();
        state.apply(&Event::Ends, self.settings.events);
        let lines = state.accesses.lines();
        let unknown = state.accesses.unknown;
        let totals = self.totals(&state);
        let unfollowed = state.unfollowed;
        let nanoseconds = self.began.elapsed().as_nanos();
        state
            .write(format!("{lines}unknown {unknown}\nunfollowed {unfollowed}\n{totals}end {nanoseconds}\n"));
    }

    /// Returns the line `totals LAUNCHES ALLOCATIONS SHORT SHORT-BYTES PEAK-BYTES`.
    fn totals(&self, state: &State) -> String {
        let counts = state.book.counts();
        let launches = self.launches.load(Ordering::Relaxed);
        let (short, bytes) = (counts.short, counts.short_bytes);
        format!("totals {launches} {} {short} {bytes} {}\n", counts.allocations, counts.peak_bytes)
    }

    pub(crate) fn context_ends(&self, context: u64) -> Result<(), String> {
        let mut state = self.state();
        state.contexts.forget(context);
        state.apply(&Event::ContextEnds { context }, self.settings.events);
        Ok(())
    }

    /// Handles a call that allocates, frees, maps or captures.
    ///
    /// # Safety
    /// The parameters of the call.
    pub(crate) unsafe fn called(
        &self,
        call: Call,
        parameters: Parameters,
        context: u64,
    ) -> Result<(), String> {
        let mut state = self.state();
        if call == Call::Unfollowed {
            state.unfollowed += 1;
            return Ok(());
        }
        let (Call::Allocate(_, stream) | Call::Free(stream)) = call else {
            // SAFETY: the caller's promise.
            return unsafe { self.apply(&mut state, call, parameters, context) };
        };
        // A captured stream's allocations happen when its graph is launched.
        let of_graph = state.book.is_capturing()
            // SAFETY: likewise.
            && stream.is_some_and(|at| unsafe { self.driver.is_capturing(parameters.stream(at)) });
        if of_graph {
            state.unfollowed += 1;
            return Ok(());
        }
        // SAFETY: likewise.
        unsafe { self.apply(&mut state, call, parameters, context) }
    }

    /// # Safety
    /// As for [`called`](Self::called).
    unsafe fn apply(
        &self,
        state: &mut State,
        call: Call,
        parameters: Parameters,
        context: u64,
    ) -> Result<(), String> {
        let new = matches!(call, Call::Allocate(..) | Call::Map);
        let site = if new { state.site() } else { 0 };
        // SAFETY: the caller's promise.
        if let Some(event) = unsafe { parameters.event(call, context, site) } {
            state.apply(&event, self.settings.events);
        }
        if new && !state.described {
            state.described = true;
            if let Ok((name, version)) = self.driver.card() {
                state.write(format!("card {name}\ndriver {version}\n"));
            }
        }
        Ok(())
    }

    /// Handles a launch of a kernel or a graph that was just made.
    ///
    /// # Safety
    /// The parameters of the call.
    pub(crate) unsafe fn launched(
        &self,
        call: Call,
        parameters: Parameters,
        kernel: &CStr,
    ) -> Result<(), String> {
        self.launches.fetch_add(1, Ordering::Relaxed);
        if self.looking.load(Ordering::Acquire) {
            drop(self.state());
        }
        if self.settings.accesses {
            let State { book, accesses, .. } = &mut *self.state();
            match call {
                Call::Launch { kernel, arguments, packed } => {
                    // SAFETY: the caller's promise.
                    unsafe { accesses.count(&self.driver, book, parameters, (kernel, arguments, packed)) };
                }
                // The arguments of a graph's kernels are unknown.
                _ => accesses.unknown += 1,
            }
        }
        let tick = match &self.settings.when {
            When::Launches { kernel: part } => {
                let wanted = part.is_empty() || kernel.to_string_lossy().contains(part);
                self.ticks.fetch_add(u64::from(wanted), Ordering::Relaxed) + u64::from(wanted)
            }
            When::Time => self.began.elapsed().as_millis() as u64,
            When::OnRequest => 0,
        };
        if tick < self.next.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.look_if_due(tick, &kernel.to_string_lossy())
    }

    fn look_if_due(&self, tick: u64, label: &str) -> Result<(), String> {
        let due = |state: &State| tick >= state.spacing.next() && !state.book.is_capturing();
        if !due(&self.state()) {
            return Ok(());
        }
        let Some(pieces) = PIECES.ask() else { return Ok(()) };
        let mut state = self.state();
        if !due(&state) || !self.look(&mut state, pieces, label)? {
            return Ok(());
        }
        if state.spacing.taken(tick) {
            state.halve(&self.settings);
        }
        self.next.store(state.spacing.next(), Ordering::Relaxed);
        Ok(())
    }

    /// Takes a snapshot on request of the program.
    pub(crate) fn asked(&self, label: &CStr) -> Result<(), String> {
        if self.settings.when != When::OnRequest {
            return Ok(());
        }
        let Some(pieces) = PIECES.ask() else { return Ok(()) };
        let mut state = self.state();
        if !state.book.is_capturing() {
            self.look(&mut state, pieces, &label.to_string_lossy())?;
        }
        Ok(())
    }

    /// Surveys all live memory, context by context. Returns false if there is none.
    fn look(&self, state: &mut State, pieces: Vec<Named>, label: &str) -> Result<bool, String> {
        state.cut(pieces, self.settings.events);
        let mut contexts: BTreeMap<u64, Vec<(usize, u64, u64)>> = BTreeMap::new();
        for Span { slot, base, bytes, context } in state.book.readable() {
            contexts.entry(context).or_default().push((slot, base, bytes));
        }
        if contexts.is_empty() {
            return Ok(false);
        }
        self.looking.store(true, Ordering::Release);
        // Time that the program would have waited anyway is not counted.
        let settled = contexts
            .keys()
            .try_for_each(|&context| self.driver.within(context, || self.driver.synchronize()));
        let began = Instant::now();
        let label: String = label.chars().filter(|c| !c.is_control()).take(200).collect();
        let launches = self.launches.load(Ordering::Relaxed);
        let head = format!("look {launches} {} {label}\n", self.began.elapsed().as_nanos());
        let mut seen_text = Vec::new();
        let mut seen = settled;
        for (&context, allocations) in &contexts {
            if seen.is_err() {
                break;
            }
            seen = self.driver.within(context, || {
                let State { contexts, .. } = state;
                contexts.look(&self.driver, &self.settings, context, allocations, &mut seen_text)?;
                self.dump(state, context, allocations)
            });
        }
        self.looking.store(false, Ordering::Release);
        seen?;
        state.apply(&Event::Looked, self.settings.events);
        // A separate file, so that readers of the log skip dropped snapshots.
        let _ = fs::write(self.settings.look_file(state.looks), seen_text);
        state.write(format!("{head}{}done {}\n", self.totals(state), began.elapsed().as_nanos()));
        state.kept.push(state.looks);
        state.looks += 1;
        Ok(true)
    }

    /// Writes the bytes of allocations to files, if requested.
    fn dump(&self, state: &State, context: u64, allocations: &[(usize, u64, u64)]) -> Result<(), String> {
        let Some(folder) = self.settings.dump_folder(state.looks) else { return Ok(()) };
        fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        let named = |&(slot, base, bytes): &(usize, u64, u64)| (slot.to_string(), base, bytes);
        let named: Vec<_> = allocations.iter().map(named).collect();
        state.contexts.dump(&self.driver, context, &named, &folder)
    }
}

impl State {
    fn write(&mut self, text: impl AsRef<[u8]>) {
        // Errors are ignored: a full disk must not stop the program.
        let _ = self.log.write_all(text.as_ref());
    }

    /// Returns this thread's call site; writes new ones to the log.
    fn site(&mut self) -> u32 {
        let found = self.sites.here();
        self.introduce(found)
    }

    fn introduce(&mut self, (site, new): (u32, Option<String>)) -> u32 {
        if let Some(name) = new {
            self.write(format!("site {site} {name}\n"));
        }
        site
    }

    fn apply(&mut self, event: &Event, written: bool) {
        if written {
            self.write(format!("event {}\n", event.line()));
        }
        for slot in self.book.apply(event) {
            if let Some(new) = self.book.slot(slot) {
                let (site, number, bytes, how) = (new.site, new.number, new.bytes, new.how.name());
                self.write(format!("slot {slot} {site} {number} {bytes} {how}\n"));
            }
        }
    }

    /// Applies the program's current pool pieces.
    fn cut(&mut self, pieces: Vec<Named>, written: bool) {
        if pieces.is_empty() && !self.cuts {
            return;
        }
        self.cuts = !pieces.is_empty();
        for (address, bytes, name) in pieces {
            let found = name.map(|name| self.sites.named(name));
            let site = found.map(|found| self.introduce(found));
            self.apply(&Event::Piece { address, bytes, site }, written);
        }
        self.apply(&Event::Cut, written);
    }

    /// Drops every second snapshot so far.
    fn halve(&mut self, settings: &Settings) {
        self.write("halve\n");
        let gone: Vec<u64> = self.kept.iter().copied().step_by(2).collect();
        self.kept = self.kept.iter().copied().skip(1).step_by(2).collect();
        for look in gone {
            let _ = fs::remove_file(settings.look_file(look));
            if let Some(folder) = settings.dump_folder(look) {
                let _ = fs::remove_dir_all(folder);
            }
        }
    }
}

/// Returns the log's first lines: the process and the codecs.
fn header(settings: &Settings, pid: u32) -> String {
    let one_line = |text: String| text.replace(['\n', '\r'], " ");
    let mut text = format!("buddy-watch 2\npid {pid}\n");
    if let Some(rank) = rank() {
        let _ = writeln!(text, "rank {rank}");
    }
    let arguments = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    for argument in arguments.split(|byte| *byte == 0).filter(|argument| !argument.is_empty()) {
        let _ = writeln!(text, "argument {}", one_line(String::from_utf8_lossy(argument).into_owned()));
    }
    for codec in &settings.codecs {
        let _ = writeln!(text, "codec {codec}");
    }
    text
}
