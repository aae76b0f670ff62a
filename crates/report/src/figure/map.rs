//! Heat maps as SVG files.

use buddy_core::{PageMap, SizeClass};
use buddy_record::Heat;

use crate::{escape, stack_maps};

/// Rows of a map in a file, enough to show regions and stripes.
const ROWS: usize = 96;
const ACROSS: usize = 4;
const CELL: (f64, f64) = (240.0, 170.0);

/// Draws all maps, four per row.
pub(super) fn maps(heats: &[&Heat]) -> (f64, f64, String) {
    let place = |(index, heat): (usize, &&Heat)| {
        let (x, y) = ((index % ACROSS) as f64 * CELL.0, (index / ACROSS) as f64 * CELL.1);
        let name = escape(&format!("{}  {}", heat.title, heat.remark));
        let map = stack_maps(&[&heat.map], ROWS);
        let (wide, high) = ((CELL.0 - 20.0) / 64.0, (CELL.1 - 34.0) / map.rows().len().max(1) as f64);
        format!(
            "<text x=\"{:.0}\" y=\"{:.0}\">{name}</text><g transform=\"translate({:.0} {:.0}) scale({wide:.4} {high:.4})\">{}</g>",
            x + 10.0,
            y + 18.0,
            x + 10.0,
            y + 24.0,
            runs(&map)
        )
    };
    let inner = heats.iter().enumerate().map(place).collect();
    let rows = heats.len().div_ceil(ACROSS) as f64;
    (CELL.0 * ACROSS as f64, CELL.1 * rows, inner)
}

/// Draws one path per class, with a rectangle per run of equal entries in a row.
pub(super) fn runs(map: &PageMap) -> String {
    let mut paths = vec![String::new(); SizeClass::ALL.len()];
    for (y, row) in map.rows().enumerate() {
        let mut x = 0;
        for run in row.chunk_by(|a, b| a == b) {
            let length = run.len();
            paths[run[0].index()].push_str(&format!("M{x} {y}h{length}v1h-{length}z"));
            x += length;
        }
    }
    let path = |(class, path): (usize, &String)| match path.is_empty() {
        true => String::new(),
        false => format!("<path class=\"c{class}\" d=\"{path}\"/>"),
    };
    paths.iter().enumerate().map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_entries_are_one_rectangle() {
        let map = PageMap::from_digits(1, &["0005"]).unwrap();
        assert_eq!(
            runs(&map),
            "<path class=\"c0\" d=\"M0 0h3v1h-3z\"/><path class=\"c5\" d=\"M3 0h1v1h-1z\"/>"
        );
    }
}
