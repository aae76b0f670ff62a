//! `--on slurm` with a fake Slurm of a few lines of shell, for events that a real one rarely
//! produces (tools/slurm_check.sh uses a real one).

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::common::{Run, command};

const PLAN: &str = "[axes]\nprogram = 'stream'\nsize = 1\nmode = 'pinned'\nlink = [50, 200]\n";

/// Lists the files of `queue`, each a job; the first call fails as if the controller were down.
const SQUEUE: &str = r#"
[ -e answered ] || { touch answered; echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; }
cat queue/* 2>/dev/null || true
"#;

/// The first array only waits; later arrays run at once.
const SBATCH: &str = r#"
number=$(($(ls submitted | wc -l) + 1))
printf '%s\n' "$@" >submitted/$number
if [ $number = 1 ]; then
    echo "1_1 PENDING 0:00 launch failed requeued held" >queue/1_1
    echo "1_2 PENDING 0:00 Resources" >queue/1_2
else
    for wrap; do :; done
    SLURM_ARRAY_TASK_ID=1 sh -c "${wrap#--wrap=}" >>out 2>&1
fi
echo $number
"#;

/// Only the stuck job is cancelled; the other ends by itself with its work undone.
const SCANCEL: &str = r#"
[ "$*" = 1_1 ]
rm queue/1_1 queue/1_2
"#;

/// Creates a folder with the fake Slurm.
fn slurm(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("slurm-{name}"));
    let _ = fs::remove_dir_all(&folder);
    for part in ["queue", "submitted"] {
        fs::create_dir_all(folder.join(part)).unwrap();
    }
    for (name, text) in [("squeue", SQUEUE), ("sbatch", SBATCH), ("scancel", SCANCEL)] {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\nset -e\ncd '{}'\n{text}", folder.display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(folder.join("plan.toml"), PLAN).unwrap();
    folder
}

/// Runs a verb of `buddy sweep` in the folder.
fn sweep(folder: &Path, verb: &str, args: &[&str]) -> Run {
    let (plan, store) = (folder.join("plan.toml"), folder.join("store"));
    let which = ["sweep", verb, plan.to_str().unwrap(), "--store", store.to_str().unwrap()];
    let path = format!("{}:{}", folder.display(), env::var("PATH").unwrap());
    let output = command(&[&which, args].concat()).env("PATH", path).output().unwrap();
    Run {
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code().expect("not ended by a signal"),
    }
}

#[test]
fn a_job_that_slurm_will_not_start_is_cancelled_and_its_work_submitted_again() {
    let folder = slurm("stuck");
    fs::write(folder.join("answered"), "").unwrap();
    let begun = sweep(&folder, "run", &["--on", "slurm", "--detach"]);
    assert!(begun.code == 0 && begun.stderr.contains("submitted"), "{}", begun.stderr);
    let status = sweep(&folder, "status", &[]);
    assert!(status.stdout.contains("Slurm: 0 jobs run, 1 wait (Resources)\n"), "{}", status.stdout);
    assert!(status.stderr.contains("Slurm will not start them: 1_1;"), "{}", status.stderr);

    fs::remove_file(folder.join("answered")).unwrap();
    let run = sweep(&folder, "collect", &[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("2 of 2 points are done"), "{}", run.stderr);
    assert_eq!(fs::read_dir(folder.join("queue")).unwrap().count(), 0, "the stuck job was not cancelled");
}
