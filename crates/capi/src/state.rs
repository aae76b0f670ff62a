//! Global state: the GPU of each context in use, and the allocations.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use buddy_cuda::{Allocation, Gpu};

use crate::{error::Failure, types::Handle};

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct State {
    /// By context id.
    gpus: HashMap<u64, Gpu>,
    allocations: HashMap<Handle, Owned>,
    /// Allocations that [`change`] took out of `allocations` for its time.
    changing: Vec<Handle>,
    last: Handle,
}

struct Owned {
    context: u64,
    allocation: Arc<Allocation>,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the GPU of the current context.
pub fn gpu() -> Result<Gpu, Failure> {
    let context = Gpu::current_id()?;
    if let Some(gpu) = state().gpus.get(&context) {
        return Ok(gpu.clone());
    }
    let gpu = Gpu::current()?;
    Ok(state().gpus.entry(context).or_insert(gpu).clone())
}

/// Stores an allocation of the current context, and returns its handle.
pub fn keep(allocation: Allocation) -> Result<Handle, Failure> {
    let context = Gpu::current_id()?;
    let mut state = state();
    state.last += 1;
    let handle = state.last;
    state.allocations.insert(handle, Owned { context, allocation: Arc::new(allocation) });
    Ok(handle)
}

/// Finds an allocation of the current context.
pub(crate) fn find(handle: Handle) -> Result<Arc<Allocation>, Failure> {
    check(&state(), handle)
}

/// Returns whether an allocation was not freed, of whatever context.
pub fn exists(handle: Handle) -> bool {
    let state = state();
    state.allocations.contains_key(&handle) || state.changing.contains(&handle)
}

/// Changes an allocation of the current context that no other call uses.
///
/// # Errors
/// As for finding it; [`Failure::Value`] if another thread is in a call on it; that of the change.
pub fn change(
    handle: Handle,
    change: impl FnOnce(&mut Allocation) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut owned = {
        let mut state = state();
        drop(check(&state, handle)?);
        let owned = state.allocations.remove(&handle).ok_or(Failure::Handle(handle))?;
        state.changing.push(handle);
        owned
    };
    let busy = || Failure::Value("another thread is in a call on this allocation".to_owned());
    // Outside the lock: a change waits for the GPU.
    let outcome = Arc::get_mut(&mut owned.allocation).ok_or_else(busy).and_then(change);
    let mut state = state();
    state.allocations.insert(handle, owned);
    state.changing.retain(|changing| *changing != handle);
    outcome
}

/// Removes an allocation; the last call that uses it frees its memory.
pub(crate) fn take(handle: Handle) -> Result<(), Failure> {
    let mut state = state();
    let destroyed = match check(&state, handle) {
        Ok(_) => false,
        Err(Failure::Destroyed) => true,
        Err(failure) => return Err(failure),
    };
    let taken = state.allocations.remove(&handle);
    if let Some(owned) = taken.as_ref().filter(|_| destroyed) {
        // The driver freed memory, streams and kernels with their context; they must not be freed
        // again.
        std::mem::forget(state.gpus.remove(&owned.context));
        std::mem::forget(taken);
        return Ok(());
    }
    drop(state);
    // Freeing waits for the GPU, so it happens outside the lock.
    drop(taken);
    Ok(())
}

fn check(state: &State, handle: Handle) -> Result<Arc<Allocation>, Failure> {
    let owned = state.allocations.get(&handle).ok_or(Failure::Handle(handle))?;
    let current = Gpu::current_id();
    if current.as_ref().is_ok_and(|id| *id == owned.context) {
        return Ok(owned.allocation.clone());
    }
    let lives = state.gpus.get(&owned.context).is_some_and(|gpu| gpu.has_context(owned.context));
    match (lives, current) {
        (false, _) => Err(Failure::Destroyed),
        (true, Ok(_)) => Err(Failure::Context),
        (true, Err(error)) => Err(error.into()),
    }
}
