//! Size classes as colours: blue for compressible to red for incompressible, as in the paper.

use buddy_core::{Histogram, SizeClass};

use crate::{count, share};

/// Describes a class in a word or two.
pub(crate) fn meaning(class: SizeClass) -> &'static str {
    ["zero, 0 B", "8 B", "1 sector, 32 B", "2 sectors, 64 B", "3 sectors, 96 B", "raw, 128 B"][class.index()]
}

/// Renders a bar with the shares of the classes.
pub fn class_bar(histogram: &Histogram) -> String {
    let entries = histogram.entries().max(1) as f64;
    let part = |class: SizeClass| {
        let n = histogram.classes[class.index()];
        let share_of_all = n as f64 / entries;
        let label = format!("{}: {} entries, {}", meaning(class), count(n), share(share_of_all));
        let width = share_of_all * 100.0;
        match n {
            0 => String::new(),
            _ => {
                format!("<i class=\"c{}\" style=\"width:{width:.2}%\" title=\"{label}\"></i>", class.index())
            }
        }
    };
    format!("<span class=\"bar\">{}</span>", SizeClass::ALL.map(part).concat())
}

/// Renders the legend of the classes.
pub fn class_legend() -> String {
    let item = |class: SizeClass| format!("<li><i class=\"c{}\"></i>{}</li>", class.index(), meaning(class));
    format!("<ul class=\"legend\">{}</ul>\n", SizeClass::ALL.map(item).concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_a_part_for_each_class_that_occurs() {
        let html = class_bar(&Histogram { classes: [1, 0, 0, 0, 0, 3], optimistic_bytes: 0 });
        assert!(
            html.contains("class=\"c0\" style=\"width:25.00%\"")
                && html.contains("class=\"c5\" style=\"width:75.00%\"")
        );
        assert_eq!(html.matches("<i ").count(), 2);
        assert_eq!(class_bar(&Histogram::default()), "<span class=\"bar\"></span>");
        assert_eq!(class_legend().matches("<li>").count(), 6);
    }
}
