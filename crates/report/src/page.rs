//! The shell of every page: title, sections, style and script in one file.

use crate::escape;

const STYLE: &str = concat!(include_str!("page.css"), include_str!("figure/plot.css"));
const SCRIPT: &str = concat!(include_str!("page.js"), include_str!("figure/plot.js"));

/// A page under construction.
#[derive(Debug, Clone)]
pub struct Page {
    title: String,
    lead: String,
    body: String,
}

impl Page {
    /// A page with a title and a sentence below it.
    pub fn new(title: &str, lead: &str) -> Self {
        Self { title: escape(title), lead: escape(lead), body: String::new() }
    }

    /// Adds a section with a heading, a remark below it (either may be empty) and HTML from the pieces.
    #[must_use]
    pub fn section(self, heading: &str, remark: &str, html: &str) -> Self {
        self.part("", heading, remark, html)
    }

    /// The same with a name that links can point at.
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

    /// The whole file. `tool` made the record that it shows. The policy in its head forbids every connection.
    pub fn render(&self, tool: &str) -> String {
        let Self { title, lead, body } = self;
        let tool = escape(tool);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <header><h1>{title}</h1><p>{lead}</p></header>\n<main>\n{body}</main>\n\
             <footer>Made by {tool}. This file is complete: it loads nothing.</footer>\n\
             <script>\n{SCRIPT}</script>\n</body>\n</html>\n"
        )
    }
}
