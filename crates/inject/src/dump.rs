//! Full snapshots: turns the library's files into a run directory.

use std::{fs, path::Path};

use buddy_record::{RunInfo, SnapshotInfo};

use crate::{Error, Watched};

/// Converts the dumps of one process, `from/snapshot-N/SLOT`, into a run in `to`. A run has every
/// allocation in every snapshot; allocations that are not live throughout go to the subfolder
/// `sometimes`. Returns their number.
///
/// # Errors
/// [`Error::File`] if a file cannot be moved or written.
pub fn collect(watched: &Watched, from: &Path, to: &Path) -> Result<usize, Error> {
    let seen = watched.seen();
    let throughout = |slot: &usize| watched.looks.iter().all(|look| look.seen.contains_key(slot));
    let (kept, others): (Vec<usize>, Vec<usize>) = seen.into_iter().partition(throughout);
    for (index, look) in watched.looks.iter().enumerate() {
        let files = from.join(format!("snapshot-{}", look.index));
        let name = format!("snapshot-{index}");
        move_files(watched, &kept, &files, &to.join(&name))?;
        move_files(watched, &others, &files, &to.join("sometimes").join(&name))?;
        let _ = fs::remove_dir(&files);
    }
    let _ = fs::remove_dir(from);
    if let Some(mut run) = watched.record().map(|record| record.run) {
        let names: Vec<String> = kept.iter().map(|&slot| watched.name(slot)).collect();
        run.allocations.retain(|allocation| names.contains(&allocation.name));
        if !run.allocations.is_empty() {
            write_run(run, to)?;
        }
    }
    Ok(others.len())
}

fn move_files(watched: &Watched, slots: &[usize], from: &Path, to: &Path) -> Result<(), Error> {
    for slot in slots {
        let file = from.join(slot.to_string());
        if file.exists() {
            fs::create_dir_all(to).map_err(Error::file(to))?;
            let name = to.join(watched.name(*slot).replace('/', "_"));
            fs::rename(&file, &name).map_err(Error::file(&name))?;
        }
    }
    Ok(())
}

fn write_run(mut run: RunInfo, to: &Path) -> Result<(), Error> {
    let name = |(index, snapshot): (usize, SnapshotInfo)| SnapshotInfo {
        file: Some(format!("snapshot-{index}")),
        ..snapshot
    };
    run.snapshots = run.snapshots.into_iter().enumerate().map(name).collect();
    let file = to.join("run.json");
    let text = serde_json::to_string_pretty(&run).unwrap_or_default() + "\n";
    fs::write(&file, text).map_err(Error::file(&file))
}
