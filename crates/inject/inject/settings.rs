//! Settings from the command: a file in the folder that the environment variable names.

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::ErrorKind,
    ops::Range,
    path::PathBuf,
};

/// The environment variable of the folder.
const FOLDER: &str = "BUDDY_WATCH";
/// Environment variables in which launchers pass the rank.
const RANKS: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"];

/// When snapshots are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum When {
    /// By launches: of all kernels, or of those whose name contains a text.
    Launches { kernel: String },
    /// By milliseconds, at the next launch.
    Time,
    /// On request of the program.
    OnRequest,
}

/// Settings of the injected library.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) folder: PathBuf,
    /// Base name of the program's files: the process id, and a count after an exec.
    pub(crate) name: String,
    /// Possible files of CUPTI, the likeliest first.
    pub(crate) cupti: Vec<String>,
    /// Names of the codecs.
    pub(crate) codecs: Vec<String>,
    /// Groups of codecs whose sizes one kernel counts; the kernel of the first group is
    /// `sm_90-0.cubin`.
    pub(crate) groups: Vec<Range<usize>>,
    /// True for codecs that are trained.
    pub(crate) learns: Vec<bool>,
    /// Warps per CTA of the kernels, and CTAs per SM.
    pub(crate) warps: u32,
    pub(crate) blocks: u32,
    pub(crate) when: When,
    /// Ticks between the first snapshots.
    pub(crate) every: u64,
    /// Thin snapshots when there are many.
    pub(crate) limited: bool,
    /// A folder for full snapshots.
    pub(crate) dump: Option<PathBuf>,
    /// Search launch arguments for pointers.
    pub(crate) accesses: bool,
    /// Log the allocation events too.
    pub(crate) events: bool,
}

impl Settings {
    pub(crate) fn read() -> Result<Self, String> {
        let folder = PathBuf::from(env::var_os(FOLDER).ok_or_else(|| format!("{FOLDER} is not set"))?);
        let file = folder.join("settings");
        let text =
            fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        Self::parse(folder, &text)
    }

    /// Returns the file of a snapshot.
    pub(crate) fn look_file(&self, look: u64) -> PathBuf {
        self.folder.join(format!("{}.{look}.look", self.name))
    }

    /// Returns the folder for the bytes of a snapshot, if requested.
    pub(crate) fn dump_folder(&self, look: u64) -> Option<PathBuf> {
        Some(self.dump.as_ref()?.join(&self.name).join(format!("snapshot-{look}")))
    }

    /// Creates the log of this process, and so chooses its name.
    pub(crate) fn begin_log(&mut self, pid: u32) -> Result<File, String> {
        self.name = pid.to_string();
        for program in 2.. {
            let file = self.folder.join(format!("{}.log", self.name));
            match OpenOptions::new().create_new(true).append(true).open(&file) {
                Ok(log) => return Ok(log),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    self.name = format!("{pid}-{program}");
                }
                Err(error) => return Err(format!("cannot write {}: {error}", file.display())),
            }
        }
        Err("there are too many logs".to_owned())
    }

    fn parse(folder: PathBuf, text: &str) -> Result<Self, String> {
        let all = |key: &str| -> Vec<String> {
            let of_key =
                text.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| *name == key);
            of_key.map(|(_, value)| value.to_owned()).collect()
        };
        let one = |key: &str| all(key).into_iter().next();
        let number = |key: &str| -> Result<u64, String> {
            one(key)
                .and_then(|value| value.parse().ok())
                .ok_or_else(|| format!("the settings lack a number {key}"))
        };
        let when = match one("when").as_deref() {
            Some("time") => When::Time,
            Some("asked") => When::OnRequest,
            _ => When::Launches { kernel: one("kernel").unwrap_or_default() },
        };
        let (mut codecs, mut groups, learning) = (Vec::<String>::new(), Vec::new(), all("learns"));
        for group in all("group") {
            let first = codecs.len();
            codecs.extend(group.split(' ').map(str::to_owned));
            groups.push(first..codecs.len());
        }
        Ok(Self {
            cupti: all("cupti"),
            learns: codecs.iter().map(|codec| learning.contains(codec)).collect(),
            codecs,
            groups,
            warps: number("warps")? as u32,
            blocks: number("blocks")? as u32,
            when,
            every: number("every")?,
            limited: one("limited").is_some(),
            dump: one("dump").map(PathBuf::from),
            accesses: one("accesses").is_some(),
            events: one("events").is_some(),
            name: String::new(),
            folder,
        })
    }
}

/// Returns the process's rank, if a launcher sets one.
pub(crate) fn rank() -> Option<String> {
    RANKS.iter().find_map(|name| env::var(name).ok()).filter(|rank| rank.parse::<u32>().is_ok())
}
