//! The result of one check.

use crate::checks::format::Grade;
use crate::print::json::Object;

/// The verdict of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) name: &'static str,
    pub(super) grade: Grade,
    pub(super) text: String,
}

impl Finding {
    pub(super) fn new(name: &'static str, grade: Grade, text: impl Into<String>) -> Finding {
        Finding { name, grade, text: text.into() }
    }

    pub(super) fn json(&self) -> String {
        Object::default().text("name", self.name).text("grade", self.grade.name()).text("text", &self.text).end()
    }
}
