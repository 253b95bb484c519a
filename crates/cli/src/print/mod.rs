//! What commands print, in each form: `simple` for people and scripts, `fields`, `json`, `protobuf` and `table`.

pub(crate) mod fields;
pub(crate) mod go;
pub(crate) mod json;
pub(crate) mod simple;
pub(crate) mod table;
pub(crate) mod text;

use crate::failure::{Failure, Outcome, code};
use api::Message;
use api::etcdserverpb::{RangeResponse, ResponseHeader};
use json::Style;
use std::io::Write;

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Simple,
    Fields,
    Json,
    Protobuf,
    Table,
}

impl Format {
    pub(crate) fn parse(name: &str) -> Outcome<Format> {
        match name {
            "simple" => Ok(Format::Simple),
            "fields" => Ok(Format::Fields),
            "json" => Ok(Format::Json),
            "protobuf" => Ok(Format::Protobuf),
            "table" => Ok(Format::Table),
            _ => Err(Failure::new(code::BAD_FEATURE, "unsupported output format")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Format::Simple => "simple",
            Format::Fields => "fields",
            Format::Json => "json",
            Format::Protobuf => "protobuf",
            Format::Table => "table",
        }
    }
}

/// Where and how a command prints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    pub(crate) format: Format,
    /// `--hex`.
    pub(crate) hex: bool,
    /// Only values (`--print-value-only`).
    pub(crate) values_only: bool,
}

/// Writes to the standard output. A reader that is gone ends the process quietly, as it does any filter.
pub(crate) fn out(bytes: &[u8]) -> Outcome {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Failure::new(code::ERROR, "")),
        outcome => Ok(outcome?),
    }
}

impl Printer {
    /// Prints the answer of the type `name`: `simple` and `fields` say how in their forms; none, if they cannot.
    pub(crate) fn answer<A: Message>(
        self,
        name: &str,
        answer: &A,
        simple: Option<&dyn Fn() -> Vec<u8>>,
        fields: Option<&dyn Fn() -> String>,
    ) -> Outcome {
        match (self.format, simple, fields) {
            (Format::Simple, Some(simple), _) => out(&simple()),
            (Format::Fields, _, Some(fields)) => out(fields().as_bytes()),
            (Format::Json, ..) => self.json(&json::message(name, answer, Style::default())),
            (Format::Protobuf, ..) => out(&answer.encode_to_vec()),
            _ => Err(self.unsupported()),
        }
    }

    /// Prints an answer that says no more than that it is done; `text` says so in the simple form.
    pub(crate) fn done<A: Message>(
        self,
        name: &str,
        answer: &A,
        header: Option<&ResponseHeader>,
        text: &str,
    ) -> Outcome {
        let simple = || format!("{text}\n").into_bytes();
        let fields = || fields::Lines::of_header(self.hex, header);
        self.answer(name, answer, Some(&simple), Some(&fields))
    }

    /// Prints the answer to a range.
    pub(crate) fn range(self, answer: &RangeResponse) -> Outcome {
        let simple = || self.simple_range(answer);
        let fields = || {
            let mut lines = fields::Lines::with_hex_ids(self.hex);
            lines.range(answer);
            lines.end()
        };
        self.answer("etcdserverpb.RangeResponse", answer, Some(&simple), Some(&fields))
    }

    pub(crate) fn json(self, text: &str) -> Outcome {
        out(format!("{text}\n").as_bytes())
    }

    /// The form is none of this command's.
    pub(crate) fn unsupported(self) -> Failure {
        Failure::new(code::BAD_FEATURE, format!("{} not supported as output format", self.format.name()))
    }
}
