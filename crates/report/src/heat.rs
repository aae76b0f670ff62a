//! The paper's spatial heat map: 64 entries of a page along x, pages down y, the size class as
//! colour.

use buddy_core::{PageMap, SizeClass};

use crate::{count, escape};

/// Renders a heat map with its title and a remark. The script draws it when it scrolls into view.
pub fn heat_map(title: &str, remark: &str, map: &PageMap) -> String {
    let (rows, pages) = (map.rows().len(), map.pages());
    let shown = match map.is_whole() {
        true => format!("{} pages", count(pages)),
        false => format!("{} of {} pages", count(rows as u64), count(pages)),
    };
    // Two pixels per row if they fit; small arrays stay visible.
    let height = (rows * 2).clamp(16, 320);
    let [title, remark] = [title, remark].map(escape);
    format!(
        "<figure class=\"heat\"><figcaption><b title=\"{title}\">{title}</b><span>{remark}</span></figcaption>\
         <canvas width=\"64\" height=\"{rows}\" style=\"height:{height}px\" role=\"img\" \
         aria-label=\"{title}: size classes of {shown}\" data-pages=\"{pages}\" data-rows=\"{data}\"></canvas>\
         <p class=\"readout\" data-rest=\"{shown}\">{shown}</p></figure>\n",
        rows = rows.max(1),
        data = map.digits().join(","),
    )
}

/// Stacks several maps in order: `rows` rows evenly spread over all their pages, each the nearest
/// sampled row.
pub fn stack_maps(maps: &[&PageMap], rows: usize) -> PageMap {
    let pages: u64 = maps.iter().map(|map| map.pages()).sum();
    let rows = rows.min(usize::try_from(pages).unwrap_or(usize::MAX));
    let row = |row| {
        let mut page = PageMap::page_of_row(pages, rows, row);
        let map = maps.iter().find(|map| {
            let inside = page < map.pages();
            page -= if inside { 0 } else { map.pages() };
            inside
        });
        map.map_or(&[][..], |map| nearest(map, page))
    };
    PageMap::new(pages, (0..rows).map(row))
}

/// Returns the last sampled row at or before a page.
fn nearest(map: &PageMap, page: u64) -> &[SizeClass] {
    let index = u128::from(page) * map.rows().len() as u128 / u128::from(map.pages().max(1));
    map.rows().nth(index as usize).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pages: u64, rows: &[&str]) -> PageMap {
        PageMap::from_digits(pages, rows).unwrap()
    }

    #[test]
    fn a_map_states_its_sampled_pages() {
        let html = heat_map("<w>", "bpc", &map(2000, &["05", "50"]));
        assert!(html.contains("2 of 2\u{202f}000 pages") && html.contains("data-rows=\"05,50\""));
        assert!(html.contains("<b title=\"&lt;w&gt;\">&lt;w&gt;</b>"));
        assert!(heat_map("w", "", &map(1, &["5"])).contains(">1 pages<"));
    }

    #[test]
    fn stacked_maps_keep_their_proportions() {
        let (small, large) = (map(2, &["0", "1"]), map(6, &["2", "3", "4"]));
        let all = stack_maps(&[&small, &large], 100);
        assert_eq!((all.pages(), all.digits().join("")), (8, "01223344".to_owned()));
        assert_eq!(stack_maps(&[&small, &large], 4).digits().join(""), "0234");
        assert_eq!(stack_maps(&[], 4).rows().len(), 0);
    }
}
