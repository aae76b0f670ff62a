//! The headline numbers of a page.

use crate::escape;

/// A number with its name and a remark.
#[derive(Debug, Clone)]
pub struct Card {
    /// Short name of the number.
    pub name: String,
    /// The number with its unit, shown large.
    pub value: String,
    /// Remark in small type.
    pub remark: String,
}

/// Renders a row of cards.
pub fn cards(cards: &[Card]) -> String {
    let card = |card: &Card| {
        let [name, value, remark] = [&card.name, &card.value, &card.remark].map(|text| escape(text));
        format!(
            "<div class=\"card\"><h3>{name}</h3><p class=\"value\">{value}</p><p class=\"remark\">{remark}</p></div>"
        )
    };
    format!("<div class=\"cards\">{}</div>\n", cards.iter().map(card).collect::<String>())
}
