//! The shell of every page: title, sections, style and script in one file.

use crate::escape;

const STYLE: &str =
    concat!(include_str!("page.css"), include_str!("figure/plot.css"), include_str!("print.css"));
const SCRIPT: &str =
    concat!(include_str!("page.js"), include_str!("tables.js"), include_str!("figure/plot.js"));

/// A page under construction.
#[derive(Debug, Clone)]
pub struct Page {
    title: String,
    lead: String,
    body: String,
    data: String,
}

impl Page {
    /// Creates a page with a title and a sentence below it.
    pub fn new(title: &str, lead: &str) -> Self {
        Self { title: escape(title), lead: escape(lead), body: String::new(), data: String::new() }
    }

    /// Adds a section with a heading, a remark (either may be empty) and HTML.
    #[must_use]
    pub fn section(self, heading: &str, remark: &str, html: &str) -> Self {
        self.part("", heading, remark, html)
    }

    /// Adds a section with an anchor.
    #[must_use]
    pub fn part(mut self, id: &str, heading: &str, remark: &str, html: &str) -> Self {
        match id.is_empty() {
            true => self.body.push_str("<section>\n"),
            false => self.body.push_str(&format!("<section id=\"{}\">\n", escape(id))),
        }
        if !heading.is_empty() {
            self.body.push_str(&format!("<h2>{}</h2>\n", escape(heading)));
        }
        if !remark.is_empty() {
            self.body.push_str(&format!("<p class=\"remark\">{}</p>\n", escape(remark)));
        }
        self.body.push_str(html);
        self.body.push_str("</section>\n");
        self
    }

    /// Embeds the page's data as JSON, which a button saves under the name `file`.
    #[must_use]
    pub fn data(self, file: &str, json: &str) -> Self {
        // In JSON `<` occurs only in texts, and no text may end the element.
        let (file, json) = (escape(file), json.replace('<', "\\u003c"));
        let data =
            format!("<script type=\"application/json\" id=\"record\" data-file=\"{file}\">{json}</script>\n");
        Self { data, ..self }
    }

    /// Renders the whole file. `tool` made the record. The content policy forbids every connection.
    pub fn render(&self, tool: &str) -> String {
        let Self { title, lead, body, data } = self;
        let tool = escape(tool);
        let save = match data.is_empty() {
            true => "",
            false => "<p class=\"save\"><button id=\"save\">Download the data (JSON)</button></p>",
        };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <header><h1>{title}</h1><p>{lead}</p>{save}</header>\n<main>\n{body}</main>\n\
             <footer>Made by {tool}. This file is complete: it loads nothing.</footer>\n\
             {data}<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_data_is_complete_and_escaped() {
        let json = "{\"name\":\"</script><b>\",\"n\":1.5}";
        let page = Page::new("t", "l").data("t.json", json).render("buddy");
        let (_, rest) = page.split_once("data-file=\"t.json\">").unwrap();
        let (text, _) = rest.split_once("</script>").unwrap();
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(value, serde_json::from_str::<serde_json::Value>(json).unwrap());
        assert!(page.contains("<button id=\"save\">"));
        assert!(!Page::new("t", "l").render("buddy").contains("<button id=\"save\">"), "nothing to save");
    }

    #[test]
    fn a_printed_page_is_light_without_scroll_boxes() {
        let page = Page::new("t", "l").render("buddy");
        let (screen, print) = page.split_once("@media print").unwrap();
        assert!(!screen.contains("@media (prefers-color-scheme: dark)"), "dark is for screens");
        assert!(print.contains("max-height: none") && print.contains("break-inside: avoid"));
    }
}
