//! Documents link only to existing files and headings, and ARCHITECTURE.md lists every folder.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the files that git tracks; `None` outside a clone.
fn tracked() -> Option<Vec<String>> {
    let listed = Command::new("git").arg("ls-files").current_dir(root()).output().ok()?;
    let files = String::from_utf8(listed.stdout).ok()?;
    let files: Vec<String> = files.lines().map(str::to_owned).collect();
    if files.is_empty() {
        eprintln!("skipped: not a git clone, so the tracked files are unknown");
        return None;
    }
    Some(files)
}

/// Returns the lines of a page outside code blocks.
fn lines(page: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    page.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// Returns the anchors of a page's headings: lower case, hyphens for spaces, numbered from the
/// second of a name on.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut seen = BTreeMap::<String, usize>::new();
    let headings = lines(page)
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    headings
        .map(|heading| {
            let kept = heading.trim().chars().filter(|&c| c.is_alphanumeric() || "-_ ".contains(c));
            let name: String =
                kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
            let before = seen.entry(name.clone()).or_default();
            *before += 1;
            if *before == 1 { name } else { format!("{name}-{}", *before - 1) }
        })
        .collect()
}

/// Returns the targets of a page's links: `](PLACE)` in its text.
fn links(page: &str) -> Vec<String> {
    let places = |line: &str| -> Vec<String> {
        line.split("](")
            .skip(1)
            .filter_map(|rest| rest.split_once(')'))
            .map(|(place, _)| place.to_owned())
            .collect()
    };
    lines(page).flat_map(places).filter(|place| !place.contains("://")).collect()
}

/// Resolves `..` in a path.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// Returns the broken links of a page; `read` gives the text of linked pages.
fn broken(name: &str, page: &str, read: impl Fn(&Path) -> Option<String>) -> Vec<String> {
    let wrong = |place: &String| {
        let (path, anchor) = place.split_once('#').unwrap_or((place, ""));
        let path =
            if path.is_empty() { PathBuf::from(name) } else { plain(&Path::new(name).with_file_name(path)) };
        let Some(text) = read(&path) else {
            return Some(format!("{name} links {place}, which does not exist"));
        };
        let found = anchor.is_empty() || anchors(&text).contains(anchor);
        (!found).then(|| format!("{name} links {place}, and {} has no such heading", path.display()))
    };
    links(page).iter().filter_map(wrong).collect()
}

#[test]
fn every_link_has_a_target() {
    let Some(files) = tracked() else { return };
    let read = |path: &Path| {
        let path = root().join(path);
        if path.is_dir() {
            Some(String::new())
        } else {
            fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        }
    };
    let pages = files.iter().filter(|name| name.ends_with(".md"));
    let wrong: Vec<String> =
        pages.flat_map(|name| broken(name, &read(Path::new(name)).unwrap_or_default(), read)).collect();
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn every_kind_of_broken_link_is_reported() {
    let other = "# One (two)\n\n```\n# no heading\n```\n## Same\n## Same\n### `code`, and more\n";
    let read = |path: &Path| (path == Path::new("docs/other.md")).then(|| other.to_owned());
    let wrong = |text: &str| broken("docs/page.md", text, read).len();
    for good in [
        "other.md",
        "../docs/other.md#one-two",
        "other.md#same-1",
        "other.md#code-and-more",
        "https://nowhere.example",
    ] {
        assert_eq!(wrong(&format!("see [it]({good}).")), 0, "{good}");
    }
    for bad in ["another.md", "../other.md", "other.md#no-heading", "other.md#same-2", "#one-two"] {
        assert_eq!(wrong(&format!("[a](other.md) and [it]({bad})")), 1, "{bad}");
    }
    assert_eq!(wrong("```\n[it](another.md)\n```"), 0, "code is no link");
}

/// Down to the second level; crates have their own table.
#[test]
fn every_folder_is_in_the_architecture() {
    let Some(files) = tracked() else { return };
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = page.lines().skip_while(|line| !line.starts_with("| folder |")).skip(2);
    let named: BTreeSet<&str> = rows
        .take_while(|line| line.starts_with('|'))
        .filter_map(|line| line.split('|').nth(1))
        .map(str::trim)
        .collect();
    let folders: BTreeSet<&str> = files
        .iter()
        .filter(|file| !file.starts_with("crates/"))
        .flat_map(|file| file.match_indices('/').take(2).map(|(end, _)| &file[..end]))
        .collect();
    for folder in &folders {
        // A folder without files of its own needs no row.
        let holds_files = files.iter().any(|file| Path::new(file).parent() == Some(Path::new(folder)));
        assert!(named.contains(folder) || !holds_files, "ARCHITECTURE.md has no row for {folder}");
    }
    for row in named {
        assert!(root().join(row).is_dir(), "ARCHITECTURE.md has a row for {row}, which does not exist");
    }
}
