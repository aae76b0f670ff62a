//! Files of a study: one page, its pictures and the summary.

use std::{fs, io::Write, path::Path};

use buddy_report::{figure_files, study_page, summary_picture, summary_text};
use buddy_snapshot::write_atomic;

use crate::{Done, Error, Settings, deviations};

/// Writes `index.html`, `figures/*.svg`, `summary.svg` and `summary.md` into a directory.
///
/// # Errors
/// If one of them cannot be written.
pub fn write(dir: &Path, settings: &Settings, done: &Done) -> Result<(), Error> {
    let figures = &done.figures;
    let pictures = dir.join("figures");
    fs::create_dir_all(&pictures).map_err(|source| Error::Directory { path: pictures.clone(), source })?;
    let (scale, caution) = (settings.describe(), settings.caution());
    let page = study_page(figures, &done.undrawn, &deviations(), (&scale, &caution));
    put(&dir.join("index.html"), &page)?;
    put(&dir.join("summary.svg"), &summary_picture(figures))?;
    let caution = if caution.is_empty() { caution } else { format!("{caution}\n\n") };
    put(&dir.join("summary.md"), &(caution + &summary_text(figures)))?;
    for (name, svg) in figures.iter().flat_map(|record| figure_files(&record.data)) {
        put(&pictures.join(name), &svg)?;
    }
    Ok(())
}

/// Writes a file atomically.
pub(crate) fn put(path: &Path, text: &str) -> Result<(), Error> {
    Ok(write_atomic(path, |out| out.write_all(text.as_bytes()))?)
}
