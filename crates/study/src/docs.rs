//! Tables and pictures in the documentation, generated from figures.
//!
//! A table is between the lines `<!-- table NAME -->` and `<!-- end -->`, where NAME is a figure's;
//! `NAME 2` is its second table. A page in a folder of the documentation links to a figure's
//! picture as `../img/FILE`. The table `headlines` and the picture `summary.svg` need every figure;
//! a partial run leaves both unchanged.

use std::{
    fs,
    path::{Path, PathBuf},
};

use buddy_record::{Figure, Grid, Panel, Record};
use buddy_report::{figure_files, grid_markdown, summary_picture, summary_text};

use crate::{EXPERIMENTS, Error, output::put};

const BEGIN: &str = "\n<!-- table ";
const END: &str = "<!-- end -->\n";
/// Table of the paper's headline numbers, from all figures.
const HEADLINES: &str = "headlines";

/// Writes the tables and pictures of `figures` into the pages in the folders of `dir`. Tables and
/// pictures of other figures stay unchanged.
///
/// # Errors
/// An unreadable or unwritable page, an unknown table, or a table without its end.
pub fn write(dir: &Path, figures: &[Record<Figure>]) -> Result<(), Error> {
    let read = |source| Error::Read { path: dir.to_owned(), source };
    let folders = fs::read_dir(dir).map_err(read)?.map(|entry| entry.map(|one| one.path()));
    let folders: Vec<PathBuf> = folders.collect::<Result<_, _>>().map_err(read)?;
    let pages = folders.iter().filter(|path| path.is_dir()).map(fs::read_dir).collect::<Result<Vec<_>, _>>();
    for entry in pages.map_err(read)?.into_iter().flatten() {
        let path = entry.map_err(read)?.path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let page = fs::read_to_string(&path).map_err(|source| Error::Read { path: path.clone(), source })?;
        let filled = fill(&page, figures).map_err(|what| Error::Page { path: path.clone(), what })?;
        if filled != page {
            put(&path, &filled)?;
        }
        let summary = is_whole(figures).then(|| ("summary.svg".to_owned(), summary_picture(figures)));
        for (name, svg) in figures.iter().flat_map(|record| figure_files(&record.data)).chain(summary) {
            if page.contains(&format!("](../img/{name})")) {
                put(&dir.join("img").join(name), &svg)?;
            }
        }
    }
    Ok(())
}

/// Returns a page with its tables filled in.
fn fill(page: &str, figures: &[Record<Figure>]) -> Result<String, String> {
    let mut parts = page.split(BEGIN);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once(" -->\n").ok_or("a table has no name")?;
        let (old, rest) = rest.split_once(END).ok_or_else(|| format!("table {name} has no end"))?;
        let made = match name {
            HEADLINES => is_whole(figures).then(|| summary_text(figures)),
            _ => table(name, figures)?.map(grid_markdown),
        };
        text += &format!("{BEGIN}{name} -->\n{}{END}{rest}", made.as_deref().unwrap_or(old));
    }
    Ok(text)
}

/// Returns whether every figure was made.
fn is_whole(figures: &[Record<Figure>]) -> bool {
    EXPERIMENTS.iter().all(|one| figures.iter().any(|record| record.data.name == one.about().name))
}

/// Finds a table by figure name and number; `None` if the figure was not made.
fn table<'a>(name: &str, figures: &'a [Record<Figure>]) -> Result<Option<&'a Grid>, String> {
    let (figure, number) = name.split_once(' ').unwrap_or((name, "1"));
    let Some(record) = figures.iter().find(|record| record.data.name == figure) else { return Ok(None) };
    let table = |panel: &'a Panel| if let Panel::Table(grid) = panel { Some(grid) } else { None };
    let number: Option<usize> = number.parse().ok();
    let found =
        number.and_then(|number| record.data.panels.iter().filter_map(table).nth(number.checked_sub(1)?));
    found.map(Some).ok_or_else(|| format!("unknown table {name}"))
}

#[cfg(test)]
mod tests {
    use buddy_record::{GridCell, Unit};

    use super::*;

    fn figure() -> Record<Figure> {
        let grid = |cell: &str| {
            let columns = vec![("a".to_owned(), Unit::Number)];
            Panel::Table(Grid { title: String::new(), columns, rows: vec![vec![GridCell::from(cell)]] })
        };
        Record::new(Figure { name: "f".to_owned(), panels: vec![grid("x"), grid("y")], ..Figure::default() })
    }

    #[test]
    fn tables_are_replaced_and_prose_stays() {
        let page = "`<!-- table f -->`\n<!-- table f -->\nold\n<!-- end -->\nq\n<!-- table f 2 -->\n<!-- end -->\nr\n";
        let filled = fill(page, &[figure()]).unwrap();
        let [one, two] = ["x", "y"].map(|cell| format!("| a |\n|---|\n| {cell} |\n"));
        let expected = format!(
            "`<!-- table f -->`\n<!-- table f -->\n{one}<!-- end -->\nq\n<!-- table f 2 -->\n{two}<!-- end -->\nr\n"
        );
        assert_eq!(filled, expected);
        assert_eq!(fill(&filled, &[figure()]).unwrap(), filled, "idempotent");
        assert_eq!(fill(page, &[]).unwrap(), page, "the figure was not made");
    }

    #[test]
    fn unknown_and_unterminated_tables_are_errors() {
        let wrong = |page: &str| fill(page, &[figure()]).unwrap_err();
        assert_eq!(wrong("\n<!-- table f 3 -->\n<!-- end -->\n"), "unknown table f 3");
        assert_eq!(wrong("\n<!-- table f 0 -->\n<!-- end -->\n"), "unknown table f 0");
        assert_eq!(wrong("\n<!-- table f -->\nold"), "table f has no end");
    }

    #[test]
    fn headlines_need_every_figure() {
        let page = "\n<!-- table headlines -->\nold\n<!-- end -->\n";
        let named = |name: &str| Record::new(Figure { name: name.to_owned(), ..Figure::default() });
        let mut all: Vec<Record<Figure>> = EXPERIMENTS.iter().map(|one| named(one.about().name)).collect();
        let filled = fill(page, &all).unwrap();
        assert!(filled.contains("| quantity | paper |") && !filled.contains("old"), "{filled}");
        all.pop();
        assert_eq!(fill(page, &all).unwrap(), page);
    }

    #[test]
    fn pictures_that_a_page_links_to_are_written() {
        use buddy_core::PageMap;
        use buddy_record::Heat;
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("img")).unwrap();
        fs::create_dir(dir.path().join("guide")).unwrap();
        fs::write(dir.path().join("guide/a.md"), "![map](../img/m.svg)\n").unwrap();
        let map = PageMap::from_digits(1, &["5"]).unwrap();
        let heat = |name: &str| {
            let panel = Panel::Heat(Heat { title: String::new(), remark: String::new(), map: map.clone() });
            Record::new(Figure { name: name.to_owned(), panels: vec![panel], ..Figure::default() })
        };
        write(dir.path(), &[heat("m"), heat("n")]).unwrap();
        let names: Vec<_> =
            fs::read_dir(dir.path().join("img")).unwrap().map(|one| one.unwrap().file_name()).collect();
        assert_eq!(names, ["m.svg"]);
    }
}
