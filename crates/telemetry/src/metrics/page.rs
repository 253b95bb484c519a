//! The page as Prometheus reads it.

use std::fmt::{Display, Write as _};

/// Writes families one after the other. One without samples leaves no trace, as with etcd.
#[derive(Default)]
pub struct Page {
    text: String,
    /// The head of a family of which no sample has been written.
    head: Option<String>,
}

impl Page {
    /// An empty page with capacity for `bytes`.
    pub fn with_capacity(bytes: usize) -> Page {
        Page { text: String::with_capacity(bytes), head: None }
    }

    /// What was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The whole text.
    pub fn into_text(self) -> String {
        self.text
    }

    /// Begins a family.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.head = Some(format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// A family of one sample without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.labelled(name, &[], value);
    }

    /// The same for a counter.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "counter", help);
        self.labelled(name, &[], value);
    }

    /// A line; without braces if there are no labels.
    pub fn labelled(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        if let Some(head) = self.head.take() {
            self.text.push_str(&head);
        }
        self.text.push_str(name);
        for (place, (label, text)) in labels.iter().enumerate() {
            self.text.push(if place == 0 { '{' } else { ',' });
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            // Writing to a string cannot fail.
            let _ = write!(self.text, "{label}=\"{text}\"");
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{close} {value}");
    }
}
