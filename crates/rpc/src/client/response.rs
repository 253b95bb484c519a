//! What comes before and after the messages of an answer.

use api::Code;

use crate::Status;
use crate::http2::frame::{Fault, Reason};
use crate::http2::hpack::{Decoder, Field};

/// What a header block of an answer says.
#[derive(Debug, Default)]
pub(super) struct ResponseHead {
    http_status: Option<u16>,
    is_grpc: bool,
    grpc_status: Option<Code>,
    grpc_message: Vec<u8>,
    list_bytes: usize,
    regular: bool,
    malformed: bool,
}

/// What is to be made of the first header block of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// It goes before the real one.
    Informational,
    /// Messages follow.
    Body,
    /// The call has ended.
    Over(Status),
}

impl ResponseHead {
    /// Decodes `block`, which has come on `stream`.
    pub(super) fn decode(
        block: &[u8],
        decoder: &mut Decoder,
        stream: u32,
        list_bytes_max: usize,
    ) -> Result<ResponseHead, Fault> {
        let mut head = ResponseHead::default();
        decoder
            .decode(block, |field| head.field(&field, list_bytes_max))
            .map_err(|_| Fault::connection(Reason::COMPRESSION_ERROR))?;
        if head.malformed { Err(Fault::stream(stream, Reason::PROTOCOL_ERROR)) } else { Ok(head) }
    }

    fn field(&mut self, field: &Field<'_>, list_bytes_max: usize) {
        self.list_bytes = self.list_bytes.saturating_add(field.size_bytes());
        if self.list_bytes > list_bytes_max {
            self.malformed = true;
            return;
        }
        match field.name {
            b":status" => {
                let digits = field.value.len() == 3 && field.value.iter().all(u8::is_ascii_digit);
                // Anything but three digits may be too much for a number, and is none.
                let sum = |sum: u16, digit: &u8| sum.saturating_mul(10).saturating_add(u16::from(digit & 0xf));
                let number = if digits { field.value.iter().fold(0, sum) } else { 0 };
                self.malformed |= self.regular || !digits || self.http_status.replace(number).is_some();
            }
            b"content-type" => self.is_grpc = field.value.starts_with(b"application/grpc"),
            b"grpc-status" => self.grpc_status = Some(code(field.value)),
            b"grpc-message" => self.grpc_message = field.value.to_vec(),
            [b':', ..] | [] => self.malformed = true,
            _ => {}
        }
        self.regular |= field.name != b":status";
    }

    /// As the first block of an answer. `ends` if nothing follows it.
    pub(super) fn beginning(self, stream: u32, ends: bool) -> Result<Beginning, Fault> {
        let malformed = Err(Fault::stream(stream, Reason::PROTOCOL_ERROR));
        match self.http_status {
            None | Some(..100) => malformed,
            Some(100..200) if ends => malformed,
            Some(100..200) => Ok(Beginning::Informational),
            Some(_) if self.grpc_status.is_some() && ends => Ok(Beginning::Over(self.status())),
            Some(200) if !self.is_grpc => Ok(Beginning::Over(Status::new(
                Code::Unknown,
                "the answer is not of gRPC: its content type is another",
            ))),
            Some(200) if !ends => Ok(Beginning::Body),
            Some(200) => Ok(Beginning::Over(no_status())),
            Some(other) => Ok(Beginning::Over(http_status(other))),
        }
    }

    /// As the last block of an answer.
    pub(super) fn end(self, stream: u32) -> Result<Status, Fault> {
        if self.http_status.is_some() {
            return Err(Fault::stream(stream, Reason::PROTOCOL_ERROR));
        }
        Ok(if self.grpc_status.is_some() { self.status() } else { no_status() })
    }

    fn status(self) -> Status {
        match self.grpc_status {
            Some(Code::Ok) => Status::OK,
            Some(code) => Status::new(code, percent_decoded(&self.grpc_message)),
            None => no_status(),
        }
    }
}

/// What an answer without a status ends with.
pub(super) fn no_status() -> Status {
    Status::new(Code::Unknown, "the answer ended without a status")
}

/// What a call ends with whose stream was reset.
pub(super) fn reset(reason: Reason) -> Status {
    let code = match reason {
        Reason::REFUSED_STREAM => Code::Unavailable,
        Reason::CANCEL => Code::Canceled,
        Reason::ENHANCE_YOUR_CALM => Code::ResourceExhausted,
        Reason(12) => Code::PermissionDenied,
        _ => Code::Internal,
    };
    Status::new(code, format!("the stream was reset by the server (HTTP/2 error {})", reason.0))
}

/// The gRPC status of answers that are not gRPC.
fn http_status(status: u16) -> Status {
    let code = match status {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    };
    Status::new(code, format!("the answer is not of gRPC: its HTTP status is {status}"))
}

fn code(value: &[u8]) -> Code {
    let number = match value {
        [ones @ b'0'..=b'9'] => usize::from(ones & 0xf),
        [b'1', ones @ b'0'..=b'9'] => usize::from(ones & 0xf).saturating_add(10),
        _ => return Code::Unknown,
    };
    Code::ALL.get(number).copied().unwrap_or(Code::Unknown)
}

/// Undoes the encoding of `grpc-message`. What is not encoded as it should be stays as it is.
fn percent_decoded(text: &[u8]) -> String {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, more @ ..] = rest {
        if let [b'%', high, low, behind @ ..] = rest
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            bytes.push((high << 4 | low) as u8);
            rest = behind;
        } else {
            bytes.push(*first);
            rest = more;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::hpack::{Encoder, Indexing, TABLE_BYTES_DEFAULT};

    fn head(fields: &[(&str, &str)]) -> Result<ResponseHead, Fault> {
        let (mut encoder, mut block) = (Encoder::new(), Vec::new());
        for (name, value) in fields {
            encoder.encode(&mut block, name.as_bytes(), value.as_bytes(), Indexing::Without);
        }
        ResponseHead::decode(&block, &mut Decoder::new(TABLE_BYTES_DEFAULT), 1, 1000)
    }

    #[test]
    fn beginnings_are_told_apart() {
        const GRPC: (&str, &str) = ("content-type", "application/grpc+proto");
        let beginning =
            |fields: &[(&str, &str)], ends| head(fields).and_then(|head| head.beginning(1, ends)).map_err(|_| ());
        assert_eq!(beginning(&[(":status", "200"), GRPC], false), Ok(Beginning::Body));
        assert_eq!(beginning(&[(":status", "103")], false), Ok(Beginning::Informational));
        let fields = [(":status", "200"), GRPC, ("grpc-status", "5"), ("grpc-message", "50%25 gone%zz%C3%B6")];
        let over = Beginning::Over(Status::new(Code::NotFound, "50% gone%zzö"));
        assert_eq!(beginning(&fields, true), Ok(over));
        let code = |fields: &[(&str, &str)], ends| match beginning(fields, ends) {
            Ok(Beginning::Over(status)) => Some(status.code),
            _ => None,
        };
        assert_eq!(code(&[(":status", "404")], false), Some(Code::Unimplemented));
        for status in ["", "20", "2000", "2x0", "99999999999999999999"] {
            assert!(head(&[(":status", status)]).is_err(), "{status}");
        }
        assert_eq!(code(&[(":status", "503"), ("content-type", "text/html")], true), Some(Code::Unavailable));
        assert_eq!(code(&[(":status", "200"), ("content-type", "text/html")], false), Some(Code::Unknown));
        assert_eq!(code(&[(":status", "200"), GRPC], true), Some(Code::Unknown));
        assert_eq!(code(&[(":status", "200"), GRPC, ("grpc-status", "99")], true), Some(Code::Unknown));
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let long = "x".repeat(1000);
        for fields in [
            &[("content-type", "application/grpc")][..],
            &[(":status", "20")],
            &[(":status", "2oo")],
            &[(":status", "200"), (":status", "200")],
            &[("server", "x"), (":status", "200")],
            &[(":status", "200"), (":path", "/")],
            &[(":status", "200"), ("x", &long)],
        ] {
            assert!(head(fields).and_then(|head| head.beginning(1, false)).is_err(), "{fields:?}");
        }
        assert!(head(&[(":status", "200")]).and_then(|head| head.end(1)).is_err());
        assert_eq!(head(&[("x", "y")]).and_then(|head| head.end(1)).map(|status| status.code), Ok(Code::Unknown));
    }
}
