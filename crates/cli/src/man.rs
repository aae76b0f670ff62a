//! `buddy man`: manual pages of all verbs.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use clap::{Args, CommandFactory};

/// Write manual pages of the command and each verb
#[derive(Args)]
#[command(after_help = "Examples:\n  buddy man ~/.local/share/man/man1 && man buddy-profile")]
pub(crate) struct Man {
    /// Folder to write to; created if missing
    folder: PathBuf,
}

impl Man {
    /// Runs the verb.
    pub(crate) fn run(self) -> Result<()> {
        let cannot = || format!("cannot write manual pages to {}", self.folder.display());
        fs::create_dir_all(&self.folder).with_context(cannot)?;
        let mut command = crate::Command::command().disable_help_subcommand(true);
        // Sets the names of pages, such as buddy-trace-info.
        command.build();
        write_pages(&command, &self.folder).with_context(cannot)
    }
}

/// Writes the page of a command and of its subcommands.
fn write_pages(command: &clap::Command, folder: &Path) -> io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write_pages(verb, folder)?;
    }
    let made = concat!("buddy ", env!("CARGO_PKG_VERSION"));
    let man = clap_mangen::Man::new(command.clone()).source(made).manual("Buddy");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    page.extend(notes(command).into_bytes());
    fs::write(folder.join(man.get_filename()), page)
}

/// Returns the text after the options, preformatted because most lines are commands to copy.
fn notes(command: &clap::Command) -> String {
    let Some(text) = command.get_after_long_help().or(command.get_after_help()) else { return String::new() };
    let text = text.to_string();
    let (title, text) = match text.strip_prefix("Examples:\n") {
        Some(rest) => ("EXAMPLES", rest),
        None => ("NOTES", text.as_str()),
    };
    let line = |line: &str| format!("\\&{}\n", line.replace('\\', "\\e").replace('-', "\\-"));
    format!(".SH {title}\n.nf\n{}.fi\n", text.lines().map(line).collect::<String>())
}
